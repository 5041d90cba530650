"""A judge's clock: whoever was not awake to hear others does not count that against them."""

GAP = 1.0  # seconds between two looks, of which a judge that is awake takes many


class PauseAwareClock:
    """Time without the judge's own sleep.

    A process that was stopped, or that an overloaded machine did not run, has heard nobody
    meanwhile, though all may have spoken. Between two looks at most ``GAP`` seconds count.

    >>> clock = PauseAwareClock(100.0)
    >>> clock.at(100.5), clock.at(130.5), clock.at(131.0)
    (100.5, 101.5, 102.0)
    """

    def __init__(self, now: float) -> None:
        self._looked, self._slept = now, 0.0
        self.woke = float("-inf")  # when it woke up last, by itself

    def at(self, now: float) -> float:
        """Return the time that counts."""
        slept = now - self._looked - GAP
        self._looked = now
        if slept > 0:
            self._slept += slept
            self.woke = now - self._slept
        return now - self._slept
