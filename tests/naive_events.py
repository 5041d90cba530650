"""A plain event loop in NumPy, and each asynchronous method as its paper writes it.

One node, one link at a time, a queue of events: slow and obvious. The engine is held against it.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from digrad.clocks.clock import Clock

Gradient = Callable[[int, int, Any], Any]  # node, number of the gradient, point
ARRIVAL, WAKE = 0, 1


class Naive(ABC):
    """What all methods share: weights, neighbours, the start."""

    newest = True  # older messages are ignored; otherwise each one counts

    def __init__(self, R: Any, C: Any, x: Any, lr: Callable[[int], float]) -> None:
        self.R, self.C, self.lr, self.n = R, C, lr, len(R)
        self.x = np.array(x, dtype=float)
        self.g = np.zeros_like(self.x)
        links = {
            (j, i) for i in range(self.n) for j in range(self.n) if i != j and self._linked(i, j)
        }
        self.links = sorted(links)

    def _linked(self, i: int, j: int) -> bool:
        return bool(self.R[i, j] or self.C[i, j])

    def point(self, i: int) -> Any:
        return self.x[i]

    @abstractmethod
    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]: ...

    @abstractmethod
    def arrive(self, link: tuple[int, int], parcel: Any) -> None: ...

    @abstractmethod
    def take(self, i: int) -> None: ...

    def waits(self, i: int) -> bool:
        """Whether it cannot go on before something has arrived."""
        return False

    def defect(self, flying: list[tuple[tuple[int, int], Any]]) -> float:
        """How far what must be conserved is off."""
        return 0.0


def run(
    method: Naive,
    clock: Clock,
    gradient: Gradient,
    wakes: int,
    delay: Callable[[int, int], float] | None = None,
    check: Callable[[Naive, list[Any]], None] | None = None,
) -> list[tuple[float, int]]:
    """Play so many wakes; return when who woke. ``check`` is called after every event."""
    order, done, seen = count(), [], dict.fromkeys(method.links, -1)
    number = [0] * method.n
    flying: dict[int, tuple[tuple[int, int], Any]] = {}
    queue: list[Any] = []
    held: set[int] = set()

    def one(value: int) -> Any:
        return np.array([value])

    for i in range(method.n):
        first = float(clock.compute_times(one(i), one(0))[0])
        heapq.heappush(queue, (first, WAKE, i, next(order), None))
    points = [method.point(i).copy() for i in range(method.n)]
    while len(done) < wakes:
        now, kind, who, _, what = heapq.heappop(queue)
        if kind == ARRIVAL:
            link, m, parcel, ticket = what
            del flying[ticket]
            if m > seen[link] or not method.newest:
                seen[link] = max(m, seen[link])
                method.arrive(link, parcel)
            if who in held and not method.waits(who):
                held.remove(who)
                heapq.heappush(queue, (now, WAKE, who, next(order), None))
        elif method.waits(who):
            held.add(who)
        else:
            i, k = who, number[who]
            sent = method.give(i, gradient(i, k, points[i]), now, k)
            for link, parcel in sent.items():
                j_i = one(link[0]), one(link[1]), one(k)
                if clock.is_lost(*j_i)[0]:
                    continue
                d = clock.latency if delay is None else delay(*link)
                late = d + float(clock.jitters(*j_i)[0])
                when = now + late
                if late == 0 and link[0] > link[1]:  # of this instant, but after the wakes so far
                    when = np.nextafter(when, np.inf)
                ticket = next(order)
                flying[ticket] = link, parcel
                heapq.heappush(queue, (when, ARRIVAL, link[1], ticket, (link, k, parcel, ticket)))
            # What has arrived by now without delay is in the queue before later wakes only.
            method.take(i)
            points[i] = method.point(i).copy()
            number[i] = k + 1
            done.append((now, i))
            again = now + float(clock.compute_times(one(i), one(k + 1))[0])
            heapq.heappush(queue, (again, WAKE, i, next(order), None))
        if check is not None:
            check(method, list(flying.values()))
    return done


class RFast(Naive):
    """S1 .. S5 of R-FAST with a running sum per link."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.v, self.z = self.x.copy(), np.zeros_like(self.x)
        zero = np.zeros(self.x.shape[1])
        self.rho, self.got, self.used = ({link: zero.copy() for link in self.links} for _ in "123")
        self.heard = {link: self.x[link[0]].copy() for link in self.links}

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        whole = self.z[i] + g - self.g[i]
        for link in self.links:
            if link[1] == i and self.C[i, link[0]]:
                whole = whole + self.got[link] - self.used[link]
                self.used[link] = self.got[link].copy()
        self.g[i], self.z[i] = g, self.C[i, i] * whole
        self.v[i] = self.x[i] - self.lr(k) * self.z[i]
        sent = {}
        for j, to in self.links:
            if j == i:
                self.rho[j, to] = self.rho[j, to] + self.C[to, i] * whole
                sent[j, to] = self.v[i].copy(), self.rho[j, to].copy()
        return sent

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        self.heard[link], self.got[link] = parcel

    def take(self, i: int) -> None:
        self.x[i] = self.R[i, i] * self.v[i]
        for link in self.links:
            if link[1] == i:
                self.x[i] += self.R[i, link[0]] * self.heard[link]

    def defect(self, flying: list[Any]) -> float:
        moving = sum(self.rho[link] - self.used[link] for link in self.links)
        return float(np.abs(self.z.sum(0) + moving - self.g.sum(0)).max())


class APPG(Naive):
    """Shares that are added once each."""

    newest = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.y, self.kept, self.box = (np.zeros_like(self.x) for _ in "123")
        self.heard = {link: (-1, self.x[link[0]].copy()) for link in self.links}
        self.step = np.zeros(self.n)

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        self.y[i] = self.kept[i] + self.box[i] + g - self.g[i]
        self.box[i], self.g[i], self.kept[i] = 0, g, self.C[i, i] * self.y[i]
        self.step[i] = self.lr(k)
        return {
            (j, to): (k, self.x[i].copy(), self.C[to, i] * self.y[i])
            for j, to in self.links
            if j == i
        }

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        k, x, share = parcel
        self.box[link[1]] += share
        if k > self.heard[link][0]:
            self.heard[link] = k, x

    def take(self, i: int) -> None:
        x = self.R[i, i] * self.x[i] - self.step[i] * self.y[i]
        for link in self.links:
            if link[1] == i:
                x = x + self.R[i, link[0]] * self.heard[link][1]
        self.x[i] = x

    def defect(self, flying: list[Any]) -> float:
        moving = sum((share for _, (_, _, share) in flying), np.zeros(self.x.shape[1]))
        return float(np.abs(self.kept.sum(0) + self.box.sum(0) + moving - self.g.sum(0)).max())


class RASGP(Naive):
    """Running sums of numerators and weights; ``patient`` or as printed."""

    def __init__(self, *args: Any, patient: bool = True, slot: float = 1.0) -> None:
        super().__init__(*args)
        self.patient, self.slot = patient, slot
        self.y, self.phi_x, self.phi_y = np.ones(self.n), np.zeros_like(self.x), np.zeros(self.n)
        self.last, self.fresh = [0] * self.n, [True] * self.n
        self.got: dict[Any, Any] = dict.fromkeys(self.links, (0.0, 0.0))
        self.used: dict[Any, Any] = dict.fromkeys(self.links, (0.0, 0.0))
        self.owed = self.x.sum(0)

    def _linked(self, i: int, j: int) -> bool:
        return bool(self.C[i, j])

    def point(self, i: int) -> Any:
        return self.x[i] / self.y[i]

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        slot = int(now // self.slot)
        beta = sum(self.lr(t - 1) for t in range(self.last[i] + 1, slot + 1))
        self.last[i] = slot
        self.x[i] -= beta * g
        self.owed = self.owed - beta * g
        if self.fresh[i] or not self.patient:
            self.phi_x[i] += self.x[i]
            self.phi_y[i] += self.y[i]
            self.x[i] *= self.C[i, i]
            self.y[i] *= self.C[i, i]
            self.fresh[i] = False
        return {
            (j, to): (self.C[to, i] * self.phi_x[i], self.C[to, i] * self.phi_y[i])
            for j, to in self.links
            if j == i
        }

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        self.got[link] = parcel

    def take(self, i: int) -> None:
        for link in self.links:
            if link[1] == i:
                x, y = (
                    self.got[link][0] - self.used[link][0],
                    self.got[link][1] - self.used[link][1],
                )
                self.fresh[i] = self.fresh[i] or y > 0
                self.x[i] += x
                self.y[i] += y
                self.used[link] = self.got[link]

    def defect(self, flying: list[Any]) -> float:
        sent = {link: self.C[link[1], link[0]] for link in self.links}
        x = sum(w * self.phi_x[k[0]] - self.used[k][0] for k, w in sent.items())
        y = sum(w * self.phi_y[k[0]] - self.used[k][1] for k, w in sent.items())
        off = np.abs(self.x.sum(0) + x - self.owed).max()
        return float(max(off, abs(self.y.sum() + y - self.n)))


class AsySPA(Naive):
    """Shares of numerators and weights, and the counter."""

    newest = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.y, self.next, self.top = np.ones(self.n), [1] * self.n, [1] * self.n
        self.box: list[Any] = [[] for _ in range(self.n)]
        self.arrived = [True] * self.n  # so that the first give sends
        self.owed = self.x.sum(0)

    def _linked(self, i: int, j: int) -> bool:
        return bool(self.C[i, j])

    def point(self, i: int) -> Any:
        return self.x[i] / self.y[i]

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        step = sum(self.lr(t - 1) for t in range(self.next[i], self.top[i] + 1))
        self.x[i] -= step * g
        self.owed = self.owed - step * g
        self.next[i] = self.top[i] + 1
        if not self.arrived[i]:
            return {}
        self.arrived[i] = False
        x, y = self.x[i].copy(), self.y[i]
        self.x[i] *= self.C[i, i]
        self.y[i] *= self.C[i, i]
        return {
            (j, to): (self.C[to, i] * x, self.C[to, i] * y, self.next[i])
            for j, to in self.links
            if j == i
        }

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        self.box[link[1]].append(parcel)
        self.arrived[link[1]] = True

    def take(self, i: int) -> None:
        self.top[i] = self.next[i]
        for x, y, told in self.box[i]:
            self.x[i] += x
            self.y[i] += y
            self.top[i] = max(self.top[i], told)
        # The counter that was heard once counts for good, as in ``top`` of the next take.
        self.box[i] = []

    def defect(self, flying: list[Any]) -> float:
        waiting = [parcel for box in self.box for parcel in box] + [p for _, p in flying]
        x = sum((p[0] for p in waiting), np.zeros(self.x.shape[1]))
        off = np.abs(self.x.sum(0) + x - self.owed).max()
        return float(max(off, abs(self.y.sum() + sum(p[1] for p in waiting) - self.n)))


class OverlapSGP(Naive):
    """Shares of numerators and weights after every so many gradients; old ones are awaited."""

    newest = False

    def __init__(self, *args: Any, every: int = 1) -> None:
        super().__init__(*args)
        self.w, self.every = np.ones(self.n), every
        self.box: list[Any] = [[] for _ in range(self.n)]
        self.done, self.came = [0] * self.n, dict.fromkeys(self.links, frozenset[int]())
        self.owed = self.x.sum(0)

    def _linked(self, i: int, j: int) -> bool:
        return bool(self.C[i, j])

    def point(self, i: int) -> Any:
        return self.x[i] / self.w[i]

    def waits(self, i: int) -> bool:
        """The m-th exchange, counted from 0, wants the message m - 1 of every in-link."""
        m, last = divmod(self.done[i], self.every)
        if last != self.every - 1 or m == 0:
            return False
        return any(m - 1 not in came for link, came in self.came.items() if link[1] == i)

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        self.x[i] -= self.lr(k) * g
        self.owed = self.owed - self.lr(k) * g
        self.done[i] += 1
        if self.done[i] % self.every:
            return {}
        for _, x, w in self.box[i]:
            self.x[i] += x
            self.w[i] += w
        self.box[i] = []
        m, x, w = self.done[i] // self.every - 1, self.x[i].copy(), self.w[i]
        self.x[i], self.w[i] = self.C[i, i] * x, self.C[i, i] * w
        return {
            (j, to): (m, self.C[to, i] * x, self.C[to, i] * w) for j, to in self.links if j == i
        }

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        self.box[link[1]].append(parcel)
        self.came[link] |= {parcel[0]}

    def take(self, i: int) -> None:
        pass

    def defect(self, flying: list[Any]) -> float:
        waiting = [parcel for box in self.box for parcel in box] + [p for _, p in flying]
        x = sum((p[1] for p in waiting), np.zeros(self.x.shape[1]))
        off = np.abs(self.x.sum(0) + x - self.owed).max()
        return float(max(off, abs(self.w.sum() + sum(p[2] for p in waiting) - self.n)))


class BroadcastCPP(Naive):
    """One node wakes and broadcasts what is left of its model and its tracker after top-1."""

    newest = False

    def __init__(self, *args: Any, zeta: float = 0.5) -> None:
        super().__init__(*args)
        self.zeta, self.y, self.h = zeta, np.zeros_like(self.x), self.x.copy()
        self.box = np.zeros_like(self.x)
        self.news: dict[Any, Any] = {}
        self.last = dict.fromkeys(self.links, -1)

    @staticmethod
    def small(v: Any) -> Any:
        kept = np.zeros_like(v)
        kept[np.abs(v).argmax()] = v[np.abs(v).argmax()]
        return kept

    def give(self, i: int, g: Any, now: float, k: int) -> dict[tuple[int, int], Any]:
        self.y[i] += g - self.g[i]
        self.g[i] = g
        c = self.zeta * self.small(self.y[i])
        self.y[i] -= (1 - self.C[i, i]) * c
        x = self.x[i].copy()
        for link in [link for link in self.news if link[1] == i]:
            self.x[i] += self.zeta * self.R[i, link[0]] * (self.news.pop(link) - x)
        self.y[i] += self.box[i]
        self.box[i] = 0
        self.x[i] -= self.lr(k) * self.y[i]
        self.h[i] = self.h[i] + self.small(self.x[i] - self.h[i])
        return {(j, to): (k, self.h[i].copy(), self.C[to, i] * c) for j, to in self.links if j == i}

    def arrive(self, link: tuple[int, int], parcel: Any) -> None:
        k, x, share = parcel
        self.box[link[1]] += share
        if k > self.last[link]:
            self.last[link], self.news[link] = k, x

    def take(self, i: int) -> None:
        pass

    def defect(self, flying: list[Any]) -> float:
        moving = sum((share for _, (_, _, share) in flying), self.box.sum(0))
        return float(np.abs(self.y.sum(0) + moving - self.g.sum(0)).max())
