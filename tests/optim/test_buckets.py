"""Stretches of columns: where they are cut, whose memory they use, and where results land."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from digrad.algorithms import ALGORITHMS, PushPull
from digrad.algorithms.contract import Change, add_changes
from digrad.algorithms.counting import CountingMixer
from digrad.base.counters import Sampler
from digrad.optim.bucket_mixer import BucketMixer
from digrad.optim.buckets import Bucket, cut
from digrad.optim.layout import Layout, lay_out

DRAWS = Sampler(torch.tensor(0), torch.arange(1)), 0  # for compressors, of which there are none


def laid_out(*sizes: int, nodes: int = 1) -> Layout:
    return lay_out([[nn.Parameter(torch.randn(size)) for size in sizes] for _ in range(nodes)])


def buckets(layout: Layout, columns: int, algorithm: Any = None) -> list[Bucket]:
    return cut(layout, layout.flatten(), algorithm or PushPull(), 4 * columns, 1)


@pytest.mark.parametrize(
    ("sizes", "columns", "edges"),
    [
        ((3, 4), 10, [0, 7]),  # all in one
        ((3, 4, 5), 8, [0, 7, 12]),  # whole parameters, as many as fit
        ((9, 2, 2), 8, [0, 4, 11, 13]),  # a large one in even parts, the last with what follows
        ((2, 20, 2), 8, [0, 2, 8, 15, 22, 24]),
        ((8, 8), 8, [0, 8, 16]),
        ((1,), 8, [0, 1]),
    ],
)
def test_cut_at_the_bounds_of_parameters(sizes, columns, edges) -> None:
    made = buckets(laid_out(*sizes), columns)
    assert [b.columns.start for b in made] + [made[-1].columns.stop] == edges
    assert all(b.width <= max(2, columns) for b in made)


def give(layout: Layout, seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    for model in layout.models:
        for parameter in model:
            parameter.grad = torch.randn_like(parameter)
    return [p.grad for model in layout.models for p in model]


@torch.no_grad()
def test_gradients_in_one_piece_are_lent_and_given_back() -> None:
    """The step reads them where they are; later it has a copy, so anybody may change them."""
    layout = laid_out(6, 2)
    first, second = buckets(layout, 6)
    for t in range(3):
        (grad, _) = give(layout, t)
        before = grad.clone()
        g = first.gradients(layout, lend=True)
        assert g.data_ptr() == grad.data_ptr()
        own = first.gradients(layout, lend=False)
        assert torch.equal(own, g)
        assert own.data_ptr() != grad.data_ptr()
        last = first.state.g
        first.step(PushPull(), g, CountingMixer(), 0.1)
        assert torch.equal(grad, before)
        grad.fill_(torch.nan)
        assert torch.equal(first.state.g, before[None])
        assert first.state.y.isfinite().all()
        assert last is None or first.state.g is last  # the same memory, step after step
    assert second.gradients(layout, lend=True).shape == (1, 2)
    layout.models[0][0].grad = None
    assert not first.gradients(layout, lend=True).any()


def test_gradients_of_several_nodes_or_parameters_are_gathered() -> None:
    for layout in (laid_out(6, nodes=2), laid_out(3, 3)):
        (bucket,) = buckets(layout, 6)
        grads = give(layout, 0)
        g = bucket.gradients(layout, lend=True)
        assert torch.equal(g.flatten(), torch.cat(grads))
        assert g.data_ptr() not in {grad.data_ptr() for grad in grads}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_landing_changes_nothing(name: str) -> None:
    """Every algorithm, with results put where its old variables were, and without."""
    algorithm = ALGORITHMS[name]()
    torch.manual_seed(0)
    x, gradients = torch.randn(1, 5, dtype=torch.float64), torch.randn(6, 1, 5).double()

    class Landing(CountingMixer):
        places: dict[str, Tensor]

        def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
            mixed, out = super().pull(rows, *changes, of=of), self.places.get(of)
            return mixed if out is None else out.copy_(mixed)

        push = pull

    plain = algorithm.init(x)
    landed = type(plain)(*(None if v is None else v.clone() for v in plain))
    for g in gradients:
        mixer = Landing()
        old = {name: getattr(landed, name) for name in algorithm.overwrites}
        mixer.places = {name: value for name, value in old.items() if value is not None}
        plain = algorithm.step(plain, g, CountingMixer(), 0.1)
        landed = algorithm.step(landed, g, mixer, 0.1)
        for a, b in zip(plain, landed, strict=True):
            assert a is None or torch.equal(a, b)


class Kept(NamedTuple):
    x: Tensor
    other: Tensor | None


def bucket_of(state: Kept) -> Bucket:
    return Bucket(slice(0, 4), 0, state.x, [], state)


def test_results_land_on_what_is_given_up_and_nobody_else_has() -> None:
    x, other = torch.ones(1, 4), torch.zeros(1, 4)
    assert bucket_of(Kept(x, other)).places(()) == {}
    places = bucket_of(Kept(x, other)).places(("x", "other"))
    assert places["x"] is x
    assert places["other"] is other
    assert bucket_of(Kept(x, other)).places(("other",)).keys() == {"other"}
    assert bucket_of(Kept(x, x)).places(("x", "other")) == {}  # two names for one memory
    assert bucket_of(Kept(x, None)).places(("x", "other")).keys() == {"x"}  # not there yet
    weights = torch.ones(1, 1)  # which all buckets have in common
    assert bucket_of(Kept(x, weights)).places(("x", "other")).keys() == {"x"}
    spread = torch.ones(1, 1).expand(1, 4)  # four numbers in one place
    assert bucket_of(Kept(x, spread)).places(("x", "other")).keys() == {"x"}


class Asked:
    """A mixer that keeps where it was told to put results."""

    def __init__(self) -> None:
        self.places: list[Tensor | None] = []

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "", out: Any = None) -> Tensor:
        self.places.append(out)
        return add_changes(rows, changes).clone()


def test_nothing_lands_on_rows_that_are_being_sent() -> None:
    """A message may still be read from there when the first sums are written."""
    x, y, other = torch.ones(1, 4), torch.ones(1, 4), torch.zeros(1, 4)
    asked = Asked()
    bucket_mixer = BucketMixer(asked, *DRAWS).next(slice(0, 4), {"x": x, "y": y})  # type: ignore[arg-type]
    bucket_mixer.pull(other, of="y")
    bucket_mixer.pull(x, of="x")
    bucket_mixer.pull(x, (1, other), of="x")  # what is sent are other rows
    assert asked.places[0] is y
    assert asked.places[1] is None
    assert asked.places[2] is x


def test_a_result_is_not_overwritten_by_the_next() -> None:
    """Who asks twice under one name may still read the first answer."""
    x, other = torch.ones(1, 4), torch.zeros(1, 4)
    asked = Asked()
    bucket_mixer = BucketMixer(asked, *DRAWS).next(slice(0, 4), {"x": x})  # type: ignore[arg-type]
    bucket_mixer.pull(other, of="x")
    bucket_mixer.pull(other, of="x")
    assert asked.places[0] is x
    assert asked.places[1] is None
