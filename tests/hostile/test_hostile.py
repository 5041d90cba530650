"""Hostile inputs end in a result or in one clear error, in time and in little memory."""

from collections.abc import Iterator

import pytest

from hostile.campaign import Report, Worker, campaign, inputs_of
from hostile.worker import KINDS, MEMORY

FEW = 20  # inputs of a kind in every run of the tests
MANY = 2000  # in a long one
BATCH = 100


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


def fine(report: Report) -> None:
    assert not report.bad, str(report)
    assert report.most_bytes < MEMORY, str(report)


@pytest.mark.parametrize("kind", KINDS)
def test_a_few(kind: str, worker: Worker) -> None:
    fine(campaign(((kind, seed) for seed in range(FEW)), worker))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, BATCH))
def test_many(first: int, worker: Worker) -> None:
    fine(campaign(inputs_of(range(first, first + BATCH)), worker))


def test_the_watch_sees_what_it_should(worker: Worker) -> None:
    """A harness that calls everything fine would prove nothing."""
    ends = {seed: worker.take("controls", seed)["end"] for seed in range(5)}
    assert list(ends.values()) == [
        *("traceback", "silently accepted", "out of memory", "control characters", "died")
    ]
