"""Keeps Locust's own statistics, web UI and listeners alive from the recorded rows, outside of the measured loop.

Firing the `request` event costs several microseconds a time, so that is done per request only while somebody other
than Locust listens. Failures always fire.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import gevent
import numpy as np
from locust.env import Environment
from locust.stats import StatsEntry, bucket_response_time
from numpy.typing import NDArray

from locustfiles.engine._kinds import Kind, Kinds

logger = logging.getLogger(__name__)

YIELD_S: Final = 0.0005


class SlotFailedError(Exception):
    """What Locust's failure table shows for a slot that did not end well."""


class LocustStats:
    """Takes folded rows from the recorder and feeds them to Locust when `pump_out` is called from a greenlet of
    Locust's.
    """

    def __init__(self, environment: Environment, kinds: Kinds, method: str, path: str) -> None:
        self._environment = environment
        self._kinds = kinds
        self._method, self._name = method, path
        self._tables: deque[NDArray[np.float64]] = deque()
        self.take: Callable[[NDArray[np.float64]], None] = self._tables.append
        self._told = False

    def pump_out(self) -> None:
        """Hand everything taken so far to Locust."""
        while self._tables:
            self._hand_over(self._tables.popleft())

    def _hand_over(self, table: NDArray[np.float64]) -> None:
        kinds = table[:, 4].astype(np.int64)
        table = table[~self._kinds.are_repeats()[kinds]]
        kinds = table[:, 4].astype(np.int64)
        others = any(map(_is_foreign, self._environment.events.request._handlers))
        if others and not self._told:
            self._told = True
            logger.info(
                "A listener for the request event is registered: firing it costs about 6 us of CPU for each request"
            )
        good = np.array([_is_good(kind) for kind in self._kinds.list], dtype=np.bool_)[kinds]
        rest = table if others else table[~good]
        if not others and good.any():
            self._log_in_bulk(table[good])
        yielded_s = time.monotonic()
        for intended_s, _, _, end_s, kind, size in rest.tolist():
            if time.monotonic() - yielded_s > YIELD_S:  # the pump lives in the same thread, and failures come in crowds
                gevent.sleep(0)
                yielded_s = time.monotonic()
            self._fire((end_s - intended_s) * 1e3, int(size), self._kinds.list[int(kind)])

    def _fire(self, response_ms: float, size: int, kind: Kind) -> None:
        exception = None if _is_good(kind) else SlotFailedError(f"{kind.outcome} {kind.code}".strip())
        self._environment.events.request.fire(
            request_type=self._method,
            name=self._name,
            response_time=response_ms,
            response_length=size,
            exception=exception,
            context={},
        )

    def _log_in_bulk(self, table: NDArray[np.float64]) -> None:
        stats = self._environment.stats
        milliseconds = (table[:, 3] - table[:, 0]) * 1e3
        size = int(table[:, 5].sum())
        for entry in (stats.total, stats.entries[(self._name, self._method)]):
            _log(entry, milliseconds, size)


def _is_foreign(listener: Callable[..., object]) -> bool:
    """Whether somebody but Locust's runner, which only feeds the statistics, listens to requests."""
    return not (getattr(listener, "__module__", None) or "").startswith("locust.")


def _is_good(kind: Kind) -> bool:
    return kind.outcome in ("ok", "http_3xx")


def _log(entry: StatsEntry, milliseconds: NDArray[np.float64], size: int) -> None:
    """What StatsEntry.log does for each request, done for many: the first goes through it, so that its caches turn
    over as usual.
    """
    entry.log(float(milliseconds[0]), 0)  # type: ignore[arg-type]  # annotated int, yet Locust itself passes floats
    count = len(milliseconds) - 1
    entry.total_content_length += size
    if not count:
        return
    rest = milliseconds[1:]
    entry.num_requests += count
    entry.num_reqs_per_sec[int(time.time())] += count
    entry.total_response_time += float(rest.sum())  # type: ignore[assignment]
    low, high = float(rest.min()), float(rest.max())
    entry.min_response_time = low if entry.min_response_time is None else min(entry.min_response_time, low)  # type: ignore[assignment]
    entry.max_response_time = max(entry.max_response_time, high)  # type: ignore[assignment]
    values, counts = np.unique(np.rint(rest * 10) / 10, return_counts=True)
    for value, number in zip(values.tolist(), counts.tolist(), strict=True):
        entry.response_times[bucket_response_time(value)] += number
