"""How long the loop of one process kept a ready connection or a due slot waiting, and how long the garbage collector
stopped it.
"""

import gc
from collections.abc import Mapping
from time import monotonic as clock


class LagMeter:
    """Collects the stretches, in seconds, in which the loop did not look at its connections."""

    def __init__(self) -> None:
        self._stretches_s: list[float] = []
        self.add = self._stretches_s.append

    def take_us(self) -> tuple[int, int]:
        """(p99, maximum) in microseconds since the last call; nearest rank, 0 where there was nothing."""
        stretches_s = sorted(self._stretches_s)
        self._stretches_s.clear()
        if not stretches_s:
            return 0, 0
        rank = -(-len(stretches_s) * 99 // 100)
        return round(stretches_s[rank - 1] * 1e6), round(stretches_s[-1] * 1e6)


class GcMeter:
    """The longest pause of the garbage collector."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._longest_s = 0.0

    def install(self) -> None:
        """Start to listen."""
        gc.callbacks.append(self._heard)

    def remove(self) -> None:
        """Stop to listen."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def take_us(self) -> int:
        """The longest pause in microseconds since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return round(longest_s * 1e6)

    def _heard(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = clock()
        else:
            self._longest_s = max(self._longest_s, clock() - self._began_s)
