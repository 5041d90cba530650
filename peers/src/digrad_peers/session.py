"""A node's part in a run: its links in each epoch, and the way from one epoch to the next."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from threading import Condition
from typing import Any

from digrad.base.errors import DigradError, lookup, message
from digrad.engines.processes.faults import PeerError
from digrad.engines.transports.transport import LinkError
from digrad.networks.network import Network
from digrad_peers.credentials import Credentials
from digrad_peers.engine import PeerEngine
from digrad_peers.epochs import NONE, Epoch
from digrad_peers.hub import Answer, HubConnection
from digrad_peers.link_listener import EpochLinks, LinkListener
from digrad_peers.link_retry import LinkRetrier
from digrad_peers.membership import Membership, MembershipError, links_of

log = logging.getLogger("digrad.peers")
REMINDER = 30.0  # seconds between two lines that say that the hub is awaited


class EvictedError(DigradError, RuntimeError):
    """The others have gone on without this node; it may join them again."""


class Session:
    """One node in a run, from the first epoch to the last.

    Args:
        membership: the run.
        node: the name of the node here.
        key_file: its private half.
        told: is handed every epoch as it begins, and its seconds since the last ended.
    """

    def __init__(
        self,
        membership: Membership,
        node: str,
        key_file: Path,
        told: Callable[[Epoch, float], None] = lambda epoch, seconds: None,
    ) -> None:
        lookup(membership.nodes, node, "node of the run")
        self.membership, self.node, self._on_epoch = membership, node, told
        self._who = Credentials(membership, node, key_file)
        self.epoch, self.epochs = Epoch(), list[Epoch]()
        self.fresh = True  # whether this node has no model of the run yet
        self._news, self._latest = Condition(), Answer(Epoch(), False, False, "")
        self._links: EpochLinks | None = None
        self._running = self._held = False
        self._begun = 0
        self._retrier: LinkRetrier | None = None
        self._listener = LinkListener(self._who, lambda text: log.info("%s", text))
        self._hub = HubConnection(self._who, self._on_answer) if membership.hub else None

    @property
    def goes_on(self) -> bool:
        """Whether there is a hub, which can decide to go on without a lost node."""
        return self._hub is not None

    def _on_answer(self, answer: Answer) -> None:
        """Hear what the hub has decided."""
        with self._news:
            self._latest, links, own = answer, self._links, self.epoch.number
            if answer.leaver and answer.epoch.number == own and self._running and not self._held:
                self._held = True
                self._report(held=True, begun=self._begun)
            self._news.notify_all()
        later = answer.epoch.number > own != NONE
        if links is not None and links.epoch == own and (answer.over or later or answer.stopped):
            links.interrupt()

    def _report(self, **said: Any) -> None:
        if self._hub is not None:
            self._hub.say(**said)

    def may_begin(self, here: int, there: int) -> bool:
        """Whether to go on from one place to another; not if all stop here, since one leaves.

        Waits until that is known; a hub that does not say so soon is not waited for.
        """
        until = time.monotonic() + self.membership.timeout
        with self._news:
            while self._held and not self._latest.over and self._latest.halt is None:
                if time.monotonic() > until:
                    self._held = False
                    self._report(held=False)
                self._news.wait(0.1)
            if self._held and not self._latest.over and self._latest.halt == here:
                return False
            self._begun = max(self._begun, here, there)
            return True

    @property
    def leaver(self) -> str:
        """Who leaves politely now."""
        return self._latest.leaver

    def leave(self, heir: str) -> None:
        """Say that this node wants to leave, and who takes over its tracker, if anybody can."""
        self._report(leaving=True, heir=heir)

    def stop_at(self, place: int) -> bool:
        """Say that this node has stopped where one leaves; whether all have, and go on so."""
        self._report(reached=place, t=place)
        with self._news:
            own = self.epoch.number
            self._news.wait_for(lambda: self._departure_over(own), self.membership.timeout)
            return self._latest.epoch.number == own + 1 and self._latest.epoch.kept

    def _departure_over(self, own: int) -> bool:
        latest = self._latest
        return latest.epoch.number > own or not latest.leaver or bool(latest.stopped)

    @property
    def stopped(self) -> bool:
        """Whether the hub has ended the run, as where too few nodes are left."""
        return bool(self._latest.stopped)

    def join(self, t: int, about: Mapping[str, str], **options: Any) -> PeerEngine:
        """Wait for the next epoch, connect with the neighbours in it, and return the engine.

        Args:
            t: how far this node has come; all start from the farthest.
            about: what all nodes must have in common, as texts.
            options: device, dtype and message_dtype of the engine.
        """
        began = time.monotonic()
        while True:
            self._hang_up()
            epoch = self._next(t)
            self._begun = epoch.t
            net = epoch.network(self.membership)
            place = {name: k for k, name in enumerate(epoch.members)}
            links = [link for link in links_of(net) if self.node in link]
            ends = EpochLinks(self._who, epoch.number, about, place, links)
            with self._news:
                self.epoch, self._links = epoch, ends
            said = {"epoch": epoch.number, "ready": False, "lost": [], "current": epoch.to_dict()}
            self._report(**said, held=False, reached=NONE, mended=[])
            self._listener.use(ends)
            try:
                alone = self._hub is None  # then nobody has waited for all to come
                ends.connect(self.membership.start if alone else self.membership.timeout)
            except MembershipError as error:
                if not self._may_try_again(ends):
                    raise
                log.info("epoch %d: %s", epoch.number, str(error).partition("\n")[0])
                continue
            self.epochs.append(epoch)
            with self._news:
                self._running = True
            self._retrier = LinkRetrier(
                self._who, epoch.cut, lambda back: self._report(mended=back)
            )
            self._on_epoch(epoch, time.monotonic() - began)
            numbers = [self.membership.names.index(name) for name in epoch.members]
            return PeerEngine(net, numbers, place[self.node], ends, **options)

    @property
    def network(self) -> Network:
        """The network of the members there are now."""
        return self.epoch.network(self.membership)

    @property
    def newcomers(self) -> list[int]:
        """The ranks of those who have no model of the run yet, where others have."""
        return [self.epoch.members.index(name) for name in self.epoch.newcomers]

    def _may_try_again(self, ends: EpochLinks) -> bool:
        if self._hub is None or any(end.final for end in ends.ends):
            return False
        down = [[*link, False] for link, end in ends.items() if not end.up]
        if not any(end.over for end in ends.ends):
            self._hub.say(lost=down)
        return True

    def _next(self, t: int) -> Epoch:
        """Wait until the hub has decided on an epoch after this one."""
        if self._hub is None:
            if self.epoch.number != NONE:
                raise PeerError("a node is lost, and no hub can decide to go on")
            return Epoch(0, self.membership.names)
        self._hub.say(ready=True, t=t)
        reminded = time.monotonic()
        with self._news:
            while not self._is_decided(self._latest):
                self._news.wait(0.2)
                if time.monotonic() - reminded > REMINDER:
                    reminded = time.monotonic()
                    where = "decides" if self._hub.up else "does not answer"
                    log.warning("waiting for the hub, which %s", where)
            latest = self._latest
        if latest.stopped:
            hint = "start the hub and the nodes again, with `digrad peers --resume` or resumed=t"
            raise PeerError(f"the run has stopped: {latest.stopped}", hint=hint)
        if not latest.member:
            raise EvictedError(self._eviction_text(latest.epoch))
        return latest.epoch

    def _is_decided(self, answer: Answer) -> bool:
        if self.epoch.number == NONE:  # not in the run yet: wait to be let in
            return answer.member or bool(answer.stopped)
        return answer.epoch.number > self.epoch.number or bool(answer.stopped)

    def _eviction_text(self, epoch: Epoch) -> str:
        return message(
            f"the others have gone on without {self.node}: {epoch.why}",
            f"epoch {epoch.number}: {', '.join(epoch.members)}",
            hint="start it again, or rejoin with `digrad peers --rejoin` or opt.rejoin(): it takes "
            "the others' model",
        )

    def settle(self) -> None:
        """Say that this node has a model of the run, which others may start from."""
        self.fresh = False
        self._report(fresh=False)

    def accuse(self, error: PeerError) -> None:
        """Tell the hub whose messages do not come, unless the epoch is over anyway."""
        cause, links = error.__cause__, self._links
        if self._hub is None or links is None or any(end.over for end in links.ends):
            return
        if isinstance(cause, LinkError):
            lost = [[*link, e.up] for link, e in links.items() if e.rank in cause.peers]
            self._hub.say(lost=lost)

    def rejoin(self) -> None:
        """Forget the epoch that went on without this node; ``join`` then asks to be let in."""
        self._hang_up()
        with self._news:
            self.epoch, self.fresh = Epoch(), True
            self._latest = Answer(Epoch(), False, False, "")
        said = {"epoch": NONE, "lost": [], "current": None, "token": token_hex(8), "fresh": True}
        self._report(**said)

    def _hang_up(self) -> None:
        with self._news:
            self._running = self._held = False
        if self._retrier is not None:
            self._retrier.close()
        self._listener.use(None)
        if self._links is not None:
            self._links.interrupt()
            self._links.close()

    def close(self, *, leaving: bool = False) -> None:
        """Say goodbye to neighbours and hub, and hang up."""
        self._report(done=not leaving, leaving=leaving, heir="")
        if self._retrier is not None:
            self._retrier.close()
        if self._links is not None:
            self._links.leave("left", 10.0)
        self._listener.close()
        if self._hub is not None:
            self._hub.close()
