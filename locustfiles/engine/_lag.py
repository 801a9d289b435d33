"""How long the loop of one process kept a ready connection or a due slot waiting, and how long the garbage collector
stopped it.
"""

import gc
from array import array
from collections.abc import Mapping
from time import monotonic as clock

import numpy as np


class LagMeter:
    """Collects the stretches, in seconds, in which the loop did not look at its connections."""

    def __init__(self) -> None:
        self._stretches_s = array("d")
        self.add = self._stretches_s.append

    def take_us(self) -> tuple[int, int]:
        """(p99, maximum) in microseconds since the last call; nearest rank, 0 where there was nothing."""
        stretches_s = np.array(self._stretches_s)
        del self._stretches_s[:]
        if not stretches_s.size:
            return 0, 0
        place = -(-stretches_s.size * 99 // 100) - 1
        # There are tens of thousands in a busy second: to sort them would stop the loop for milliseconds.
        p99_s, longest_s = np.partition(stretches_s, [place, stretches_s.size - 1])[[place, -1]].tolist()
        return round(p99_s * 1e6), round(longest_s * 1e6)


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
