"""Hostile inputs end in a result or in one clear error, in time and in little memory."""

import pytest

from hostile.campaign import Report, campaign, inputs_of
from hostile.worker import KINDS

FEW = 30  # inputs of a kind in every run of the tests
MANY = 2000  # in a long one: 20 000 in all
BATCH = 100


def fine(report: Report) -> None:
    assert not report.bad, str(report)
    assert report.most_bytes < 2 << 30, str(report)


@pytest.mark.parametrize("kind", KINDS)
def test_a_few(kind: str) -> None:
    fine(campaign((kind, seed) for seed in range(FEW)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, BATCH))
def test_many(first: int) -> None:
    fine(campaign(inputs_of(range(first, first + BATCH))))
