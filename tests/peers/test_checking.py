"""Which links can be opened, asked by every node for itself."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from digrad_peers.checking import LinkCheck, check_links
from digrad_peers.credentials import Credentials
from digrad_peers.local import key_file, local_run

NAMES = ("a", "b", "c")


def checked(folder: Path, late: dict[str, float], seconds: float) -> dict[str, list[LinkCheck]]:
    """What each node finds; some come later than others, some never."""
    _, membership = local_run(folder, NAMES, {"topology": "directed-ring"}, hub=False)

    def one(name: str) -> list[LinkCheck]:
        time.sleep(late[name])
        return check_links(Credentials(membership, name, key_file(folder, name)), seconds)

    with ThreadPoolExecutor(len(late)) as pool:
        return dict(zip(late, pool.map(one, late), strict=True))


def test_all_nodes_find_all_links_open_though_one_comes_late(tmp_path: Path) -> None:
    found = checked(tmp_path / "run", {"a": 0.0, "b": 0.0, "c": 0.5}, 20.0)
    for name, links in found.items():
        assert [one.problem for one in links] == ["", ""], name
        for one in links:
            sends = one.link[0] == name
            assert (one.latency is not None) == (one.bandwidth is not None) == sends
            assert one.bandwidth is None or 1 < one.bandwidth < 1e6


def test_who_is_not_there_is_named(tmp_path: Path) -> None:
    found = checked(tmp_path / "run", {"a": 0.0, "b": 0.0}, 3.0)
    problems = {one.link: one.problem for links in found.values() for one in links}
    assert problems == {("a", "b"): "", ("b", "c"): "c is not there", ("c", "a"): "c is not there"}
