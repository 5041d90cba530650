"""On which test samples a run was judged, where these are not all."""

from collections.abc import Collection

from digrad.base.metrics import METRICS
from digrad.results.experiment import Experiment


def judged_on(experiment: Experiment, metrics: Collection[str], where: str = "") -> list[str]:
    """Say which of the test samples recorded accuracies are on; nothing if they are on all.

    Args:
        experiment: what was run.
        metrics: that are shown.
        where: which run it is, if there are several.
    """
    said, named = list[str](), f" in {where}" if where else ""
    params, shown = experiment.problem.params, _bounded("test_samples", metrics)
    tested, judged = (params.get(key, 0) for key in ("test_samples", "node_samples"))
    if tested and shown:
        names = " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
        said.append(
            f"{names.replace('_', ' ')}{named}: on at most {tested:,} of the test samples, "
            "evenly spread (test_samples)"
        )
    if judged and _bounded("node_samples", metrics):
        said.append(
            f"worst and mean accuracy{named}: of each node's own model, on at most {judged:,} test "
            "samples, evenly spread (node_samples)"
        )
    return said


def _bounded(key: str, metrics: Collection[str]) -> list[str]:
    """Return the metrics that a key of a problem bounds the samples of."""
    return [m.name for m in METRICS.values() if key in m.samples and m.name in metrics]
