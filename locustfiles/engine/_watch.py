"""When a change took effect, seen from the replies: the first that shows the new state, the last that shows the old."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from locustfiles.engine._kinds import Kind, Kinds

_KEPT_S: Final = 3.0  # replies that came between a change and the news of it: far more than a message takes
_FAR_FUTURE: Final = math.inf


def matches(marker: Mapping[str, Any], kind: Kind) -> bool:
    """Whether a reply of this kind shows the marker ({field, values}, as infra.targets spells it)."""
    if not kind.is_reply or kind.outcome != "ok":
        return False
    values = marker["values"]
    if marker["field"] == "backend":
        return kind.backend in values
    if marker["field"] == "cors":
        return ("on" if kind.cors else "off") in values
    return any(kind.path.startswith(value) for value in values)


@dataclass(slots=True)
class Watch:
    """One change under watch, times on this process's monotonic clock. `old` None: nothing tells the old state."""

    change: int
    since_s: float
    new: list[Mapping[str, Any]]
    old: Mapping[str, Any] | None
    until_s: float = math.inf
    first_new_s: list[float] = field(init=False)
    last_old_s: float = -math.inf

    def __post_init__(self) -> None:
        self.first_new_s = [_FAR_FUTURE] * len(self.new)

    def see(self, kinds: Kinds, numbers: NDArray[np.int64], ends_s: NDArray[np.float64]) -> None:
        """Take in replies, in any order."""
        recent = (ends_s >= self.since_s) & (ends_s < self.until_s)
        if not recent.any():
            return
        numbers, ends_s = numbers[recent], ends_s[recent]
        for place, marker in enumerate(self.new):
            times = ends_s[_shown(marker, kinds)[numbers]]
            if times.size:
                self.first_new_s[place] = min(self.first_new_s[place], float(times.min()))
        if self.old is not None:
            times = ends_s[_shown(self.old, kinds)[numbers]]
            if times.size:
                self.last_old_s = max(self.last_old_s, float(times.max()))


class Watcher:
    """The changes under watch in one process, and the last seconds of replies for changes that are told a moment
    late.
    """

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._watches: dict[int, Watch] = {}
        self._recent: deque[tuple[NDArray[np.int64], NDArray[np.float64]]] = deque()

    def add(self, watch: Watch) -> None:
        """Watch a change from its `since_s` on, which may lie up to three seconds back."""
        for numbers, ends_s in self._recent:
            watch.see(self._kinds, numbers, ends_s)
        self._watches[watch.change] = watch

    def end(self, change: int, until_s: float) -> None:
        """Replies from `until_s` on say nothing about the change: another one was asked for."""
        if change not in self._watches:
            return
        watch = self._watches[change]
        watch.until_s = until_s
        # The news comes a moment late: what was taken in meanwhile is taken out again.
        watch.first_new_s = [_FAR_FUTURE if first_s >= until_s else first_s for first_s in watch.first_new_s]
        if watch.last_old_s >= until_s:
            watch.last_old_s = -math.inf
            for numbers, ends_s in self._recent:
                watch.see(self._kinds, numbers, ends_s)

    def see(self, numbers: NDArray[np.int64], ends_s: NDArray[np.float64]) -> None:
        """Take in a batch of ended slots."""
        for watch in self._watches.values():
            watch.see(self._kinds, numbers, ends_s)
        self._recent.append((numbers, ends_s))
        newest_s = float(ends_s.max())
        while self._recent and float(self._recent[0][1].max()) < newest_s - _KEPT_S:
            self._recent.popleft()

    def findings(self, t0_s: float, now_s: float) -> list[list[Any]]:
        """[change, [first new per marker or None], last old or None], in seconds since t0.

        A watch that has ended is told once more, then dropped.
        """
        found = [
            [
                watch.change,
                [None if math.isinf(first_s) else first_s - t0_s for first_s in watch.first_new_s],
                None if math.isinf(watch.last_old_s) else watch.last_old_s - t0_s,
            ]
            for watch in self._watches.values()
        ]
        self._watches = {change: watch for change, watch in self._watches.items() if watch.until_s + _KEPT_S > now_s}
        return found


def _shown(marker: Mapping[str, Any], kinds: Kinds) -> NDArray[np.bool_]:
    shown: Iterable[bool] = (matches(marker, kind) for kind in kinds.list)
    return np.fromiter(shown, dtype=np.bool_, count=len(kinds.list))
