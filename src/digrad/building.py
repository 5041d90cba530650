"""The networks of an experiment; the rest of it needs PyTorch, this does not."""

from typing import Any

from digrad.errors import DigradError
from digrad.experiment import ExperimentError, NetworkSpec
from digrad.networks import Network, build


def network_of(spec: NetworkSpec) -> Network:
    """Build the network that an experiment names.

    Raises:
        ExperimentError: if it cannot be built, as when its file has moved.
    """
    if bool(spec.topology) == bool(spec.file):
        raise ExperimentError(f"networks.{spec.label or '?'} needs either a topology or a file")
    try:
        return build(
            spec.topology or spec.file,
            spec.n or None,
            push_file=spec.push_file or None,
            params={key: _text(value) for key, value in spec.params.items()},
            seed=None if spec.seed < 0 else spec.seed,
            weights=spec.weights or None,
            push_graph=spec.push_graph,  # type: ignore[arg-type]  # looked up by name
            largest_component=spec.largest_component,
            undirected=spec.undirected,
        )
    except DigradError as error:
        raise ExperimentError(f"networks.{spec.label}: {error}") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
