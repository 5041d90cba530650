"""Which links of a node can be opened, and how fast they are."""

import time
from dataclasses import dataclass

import torch

from digrad_peers.credentials import Credentials
from digrad_peers.link_ends import LinkEnd
from digrad_peers.link_listener import EpochLinks, LinkListener
from digrad_peers.links import Outlet, memory_of
from digrad_peers.membership import Link, Membership, links_of

CHECK = -2  # the epoch in which links are tried out
PINGS = 10
LOAD = 1 << 23  # bytes by which bandwidth is measured
LINGER = 2.0  # seconds for which others may still measure what comes in here


@dataclass(frozen=True)
class LinkCheck:
    """What was found out about a link; only its sender can measure it."""

    link: Link
    dialler: str
    problem: str = ""  # why it cannot be opened
    latency: float | None = None  # ms, one way
    bandwidth: float | None = None  # Mbit/s


def check_links(who: Credentials, seconds: float) -> list[LinkCheck]:
    """Open every link of a node, wait for the others, and measure those that leave it."""
    membership = who.membership
    own = [link for link in links_of(membership.graph) if who.name in link]
    place = {name: k for k, name in enumerate(membership.names)}
    links, board = EpochLinks(who, CHECK, {}, place, own), LinkListener(who)
    board.use(links)
    try:
        for end in links.ends:
            end.start()
        found: dict[Link, LinkCheck] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(found) < len(own):
            time.sleep(0.02)
            # Each as soon as it is open: who is done first leaves, and was there all the same.
            found |= {
                link: _check(membership, link, end)
                for link, end in links.items()
                if end.up and link not in found
            }
        missing = {
            link: _check(membership, link, end) for link, end in links.items() if link not in found
        }
        _linger([end for end in links.ends if not isinstance(end, Outlet)])
        links.leave("checked", 5.0)
        return [found.get(link) or missing[link] for link, _ in links.items()]
    finally:
        links.close()
        board.close()


def _linger(inlets: list[LinkEnd]) -> None:
    until = time.monotonic() + LINGER
    while time.monotonic() < until and any(end.up for end in inlets):
        time.sleep(0.02)


def _check(membership: Membership, link: Link, end: LinkEnd) -> LinkCheck:
    dialler = membership.dials(link)
    if not end.up:
        reason = end.refused.partition("\n")[0] or f"{end.peer} is not there"
        return LinkCheck(link, dialler, reason)
    if not isinstance(end, Outlet):
        return LinkCheck(link, dialler)
    small, large = (memory_of(torch.zeros(size, dtype=torch.uint8)) for size in (1, LOAD))
    there_and_back = min(_seconds(end, small) for _ in range(PINGS))
    loaded = _seconds(end, large)
    if not end.up or loaded < there_and_back:  # it was closed meanwhile: no measure of anything
        return LinkCheck(link, dialler)
    rate = 8e-6 * LOAD / max(1e-9, loaded - there_and_back / 2)
    return LinkCheck(link, dialler, "", 500 * there_and_back, rate)


def _seconds(outlet: Outlet, memory: memoryview) -> float:
    began = time.perf_counter()
    outlet.send(1, memory)
    outlet.flush(time.monotonic() + outlet.timeout)
    return time.perf_counter() - began
