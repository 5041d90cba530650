"""Where the nodes of a run of peers keep their records and models."""

from pathlib import Path

from digrad.results.experiment import Experiment


def folder_of(experiment: Experiment) -> Path:
    """Return the folder of an experiment among peers, if no other is named."""
    return Path("runs") / f"{experiment.name}-peers"
