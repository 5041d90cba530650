"""Networks that look the same from both ends are summed as two halves."""

import numpy as np
import pytest

from digrad.networks import erdos_renyi, grid, path, star, weigh
from digrad.theory import lifted as module
from digrad.theory.eigenvectors import perron
from digrad.theory.lifted import Lifted

NETWORKS = {
    "path": weigh(path(17)),
    "path, even": weigh(path(16)),
    "path, reverse": weigh(path(19), push_graph="reverse"),
    "grid": weigh(grid(20)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_halves_give_what_the_whole_gives(monkeypatch, name, form):
    net = NETWORKS[name]
    lifted = Lifted.of(net, perron(net), *form)
    even, odd = lifted.parts
    assert len(even.R) + len(odd.R) == net.n
    halves = lifted.norms(1e-10, 1.0) | lifted.squares(1e-10)
    monkeypatch.setattr(module, "SMALLEST", 1000)
    assert lifted.parts == [lifted]
    for key, whole in (lifted.norms(1e-10, 1.0) | lifted.squares(1e-10)).items():
        assert max(whole.low, halves[key].low) <= min(whole.high, halves[key].high), key
        assert halves[key].relative_width <= 1e-9


@pytest.mark.parametrize("net", [weigh(star(20)), weigh(erdos_renyi(20, 0.3, seed=1))])
def test_networks_that_are_not_even_are_left_whole(net):
    assert len(Lifted.of(net, perron(net)).parts) == 1


def test_the_halves_have_the_eigenvalues_of_the_whole():
    net = NETWORKS["path"]
    lifted = Lifted.of(net, perron(net))
    halves = np.concatenate([np.linalg.eigvals(part.R) for part in lifted.parts])
    whole = np.linalg.eigvals(lifted.R)
    np.testing.assert_allclose(np.sort(halves.real), np.sort(whole.real), atol=1e-12)
