"""Puts a short load through the pump, in this process, and says what became of each slot."""

import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic as clock
from typing import Any

import gevent
import numpy as np
from numpy.typing import NDArray

from analysis.rundir import hdr_value
from locustfiles.engine._collector import Collector
from locustfiles.engine._connection import Connection
from locustfiles.engine._exchange import Traffic
from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._pump import Pump
from locustfiles.engine._recorder import Recorder
from locustfiles.engine._schedule import Epoch

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Result:
    """`outcomes`: how often each (outcome, code) was counted; `connections`: opened, resumed, closed by the peer
    while idle, while busy, closed by us; `slots`: due, sent, late_own, late_peer, unsent.
    """

    outcomes: dict[tuple[str, str], int]
    accounting: dict[str, int]
    connections: list[int]
    slots: list[int]
    rows: NDArray[np.float64]
    kinds: Kinds
    bytes_in: int
    epoch: Epoch
    censored_us: list[int] = field(default_factory=list)
    spun_s: float = 0.0

    def kind(self, row: int) -> Kind:
        return self.kinds.list[int(self.rows[row, 4])]


class Load:
    """A pump with its connections, until `finish`."""

    def __init__(
        self,
        *ports: int,
        connections: int = 1,
        request: bytes = GET,
        tls: ssl.SSLContext | None = None,
        server_name: str = "127.0.0.1",
        timeout_s: float | None = 5.0,
        wrk2: bool = False,
        expect_bytes: int | None = None,
        spins: bool = False,
    ) -> None:
        self.kinds = Kinds()
        self._tables: list[NDArray[np.float64]] = []
        self.recorder = Recorder(self.kinds, len(request), self._tables.append)
        addresses = tuple((int(socket.AF_INET), ("127.0.0.1", port)) for port in ports)
        self.pump = Pump(
            Traffic(
                request, request.startswith(b"HEAD"), addresses, tls, server_name, timeout_s, wrk2, expect_bytes, spins
            ),
            self.recorder,
        )
        self._loop = gevent.spawn(self.pump.run)
        self.connections = [self.pump.add() for _ in range(connections)]

    def open(self, limit_s: float = 1.0) -> int:
        """Wait until all connections stand; returns how many do."""
        self.wait(lambda: self.pump.open_count() == len(self.connections), limit_s)
        return self.pump.open_count()

    def begin(self, slots: int, rate_per_s: float, number: int = 1, delay_s: float = 0.03) -> Epoch:
        """Let so many slots fall due over all connections that are live."""
        live: list[Connection] = self.pump.live()
        t0_s = clock() + delay_s
        if number == 1:
            self.recorder.fold()
            self.recorder.begin(t0_s)
        epoch = Epoch(number, t0_s, rate_per_s, len(live), tuple(range(len(live))))
        self.pump.begin(epoch, live, t0_s + (slots - 0.5) / rate_per_s)
        return epoch

    def drain(self, end_s: float, limit_s: float = 5.0) -> None:
        """Wait until every slot before `end_s` has its end."""
        self.wait(lambda: self.pump.come_to_s() >= end_s and not self.pump.unfinished(), limit_s)

    def wait(self, until: Callable[[], bool], limit_s: float = 5.0) -> None:
        give_up_s = clock() + limit_s
        while not until() and clock() < give_up_s:
            gevent.sleep(0.002)

    def finish(self, epoch: Epoch) -> Result:
        """End what is left, close everything, and add up. Fails if a slot has no end, or two."""
        self.pump.censor()
        self.recorder.fold()
        due = {
            second: self.pump.due_between(self.recorder.t0_s + second, self.recorder.t0_s + second + 1)
            for second in range(60)
        }
        report: dict[str, Any] = {**self.recorder.take(None, due), "complete": 60}
        spun_s = self.pump.take_spun_s()
        self.pump.close()
        self._loop.get(timeout=5)
        collector = Collector("GET /")
        collector.add("a", report)
        accounting = collector.accounting()
        assert accounting["due"] == accounting["response"] + accounting["failed"] + accounting["censored"]
        outcomes: Counter[tuple[str, str]] = Counter()
        connections, censored_us, bytes_in = [0] * 5, [], 0
        for entry in report["seconds"]:
            for outcome, code, count, received, _ in entry["outcomes"]:
                outcomes[outcome, code] += count
                bytes_in += received
            connections = [sum(pair) for pair in zip(connections, entry["connections"], strict=True)]
            if "censored" in entry["metrics"]:
                indices, counts = (
                    np.frombuffer(part, kind)
                    for part, kind in zip(entry["metrics"]["censored"], ("<i4", "<i8"), strict=True)
                )
                censored_us += np.repeat(hdr_value(indices), counts).tolist()
        rows = np.concatenate([np.zeros((0, 6)), *self._tables])
        final = rows[~self.kinds.are_repeats()[rows[:, 4].astype(np.int64)]] if len(rows) else rows
        # Each slot's end is one row, and its intended start is on the grid.
        assert len(np.unique(final[:, 0])) == len(final) == accounting["response"] + accounting["failed"]
        slots = [sum(counts[place] for _, *counts in report["slots"]) for place in range(5)]
        return Result(
            dict(outcomes), accounting, connections, slots, rows, self.kinds, bytes_in, epoch, censored_us, spun_s
        )


def run(
    *ports: int, slots: int = 5, rate_per_s: float = 200.0, drain_s: float = 5.0, open_s: float = 1.0, **more: Any
) -> Result:
    """Open, send `slots`, drain, finish."""
    load = Load(*ports, **more)
    load.open(open_s)
    epoch = load.begin(slots, rate_per_s)
    load.drain(epoch.t0_s + (slots - 0.5) / rate_per_s, drain_s)
    result = load.finish(epoch)
    assert result.accounting["due"] == slots
    on_grid = {epoch.t0_s + k / rate_per_s for k in range(slots)}
    assert set(result.rows[:, 0]) <= on_grid
    sent_s, intended_s = result.rows[:, 2], result.rows[:, 0]
    assert not (sent_s < intended_s).any()
    assert not (result.rows[:, 3] < np.where(np.isnan(sent_s), -math.inf, sent_s)).any()
    return result
