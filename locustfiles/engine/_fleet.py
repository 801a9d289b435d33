"""The workers as the master sees them: who is there, how far each one's clock is off, which slots fall to whom, and
who was lost.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic as clock
from typing import Any, Final

import gevent
from gevent.event import Event
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from locustfiles.engine import _messages as messages
from locustfiles.engine._clock import SAME, ClockOffset
from locustfiles.engine._schedule import Epoch, deal

ROUND_TRIPS: Final = 20
ANSWER_LIMIT_S: Final = 25.0
LOCAL: Final = "local"


@dataclass(slots=True)
class Worker:
    """One worker of the run.

    `epochs` are on the master's clock, each with the moment from which its slots fall due no more.
    """

    id: str
    index: int
    clock: ClockOffset
    epochs: list[tuple[Epoch, float]] = field(default_factory=list)
    drained: bool = False
    lost: bool = False

    def due_between(self, start_s: float, end_s: float) -> int:
        """How many of its slots fall due in start_s <= t < end_s on the master's clock."""
        return sum(
            epoch.due_between(start_s, min(end_s, until_s)) for epoch, until_s in self.epochs if until_s > start_s
        )


class Fleet:
    """Speaks with all workers; the answers come in through `ponged` and `counted`."""

    def __init__(self, runner: LocalRunner | MasterRunner, test: int) -> None:
        self._runner = runner
        self._test = test
        self.workers: dict[str, Worker] = {}
        self._pongs: dict[str, dict[str, Any]] = {}
        self._pong = Event()
        self._counts: dict[str, tuple[int, int]] = {}
        self.errors: list[str] = []
        self._count_number = 0

    def present(self) -> list[str]:
        """Ids of the workers that Locust counts on now."""
        if isinstance(self._runner, LocalRunner):
            return [LOCAL]
        clients = self._runner.clients
        return [client.id for client in clients.ready + clients.spawning + clients.running]

    def send(self, worker: str, message: str, data: dict[str, Any]) -> None:
        """To one worker."""
        if isinstance(self._runner, LocalRunner):
            self._runner.send_message(message, data)
        else:
            self._runner.send_message(message, data, client_id=worker)

    def take_in(self, ids: Iterable[str]) -> None:
        """Take workers into the run, and measure the clocks of those that are new to it."""
        for worker in ids:
            if worker not in self.workers:
                index = 0 if isinstance(self._runner, LocalRunner) else self._runner.get_worker_index(worker)
                self.workers[worker] = Worker(worker, index, SAME if worker == LOCAL else self._measure_clock(worker))

    def _measure_clock(self, worker: str) -> ClockOffset:
        best: ClockOffset | None = None
        for number in range(ROUND_TRIPS):
            self._pong.clear()
            self._pongs.pop(worker, None)
            sent_s = clock()
            self.send(worker, messages.PING, {"number": number})
            self._pong.wait(timeout=1.0)
            received = self._pongs.get(worker)
            if received is not None and received["number"] == number:
                best = ClockOffset.of_round_trip(sent_s, received["worker_s"], received["received_s"]).better(best)
        return best or ClockOffset(0.0, float("inf"))

    def ponged(self, worker: str, data: dict[str, Any]) -> None:
        """A worker told its clock."""
        self._pongs[worker] = {**data, "received_s": clock()}
        self._pong.set()

    def counted(self, worker: str, data: dict[str, Any]) -> None:
        """A worker told its connections."""
        if data["number"] == self._count_number:
            self._counts[worker] = (data["live"], data["open"])
            if data["error"] is not None:
                self.errors.append(data["error"])

    def count_connections(self, ids: list[str]) -> dict[str, tuple[int, int]]:
        """Wait until these workers have opened their connections: (live, open) for each that answered."""
        self._count_number += 1
        self._counts.clear()
        for worker in ids:
            self.send(worker, messages.COUNT, {"test": self._test, "number": self._count_number})
        until_s = clock() + ANSWER_LIMIT_S
        while len(self._counts) < len(ids) and clock() < until_s:
            gevent.sleep(0.02)
        return dict(self._counts)

    def begin_epoch(
        self, number: int, t0_s: float, rate_per_s: float, live: dict[str, int], run_t0_s: float, end_s: float | None
    ) -> int:
        """Deal all connections to the workers and start them together; returns how many connections there are."""
        ids = [worker for worker, count in live.items() if count]
        dealt = deal([live[worker] for worker in ids])
        connections = sum(map(len, dealt))
        for worker in self.workers.values():
            if worker.epochs:
                epoch, until_s = worker.epochs[-1]
                worker.epochs[-1] = (epoch, min(until_s, t0_s))
                if worker.id not in live and not worker.lost:
                    # It has no user any more, so it would not hear of the new epoch, and go on with the old one.
                    self.send(worker.id, messages.END, {"test": self._test, "end_s": t0_s + worker.clock.offset_s})
        for name, numbers in zip(ids, dealt, strict=True):
            worker = self.workers[name]
            offset_s = worker.clock.offset_s
            worker.epochs.append(
                (Epoch(number, t0_s, rate_per_s, connections, numbers), float("inf") if end_s is None else end_s)
            )
            self.send(
                name,
                messages.EPOCH,
                {
                    "test": self._test,
                    "epoch": number,
                    "t0_s": t0_s + offset_s,
                    "run_t0_s": run_t0_s + offset_s,
                    "end_s": None if end_s is None else end_s + offset_s,
                    "rate_per_s": rate_per_s,
                    "connections": connections,
                    "numbers": numbers,
                },
            )
        return connections

    def tell(self, message: str, at: Callable[[float], dict[str, Any]]) -> None:
        """Send to all workers that are left; `at(offset_s)` makes the message, for times on each one's clock."""
        for worker in self.left():
            self.send(worker.id, message, at(worker.clock.offset_s))

    def left(self) -> list[Worker]:
        """Workers of the run that are not lost."""
        return [worker for worker in self.workers.values() if not worker.lost]

    def newly_lost(self) -> list[Worker]:
        """Workers that have gone missing, or left, since the last call."""
        if isinstance(self._runner, LocalRunner):
            return []
        clients = self._runner.clients
        lost = [
            worker
            for worker in self.left()
            if worker.epochs
            and not worker.drained
            and (worker.id not in clients or clients[worker.id].state == STATE_MISSING)
        ]
        for worker in lost:
            worker.lost = True
            if worker.id in clients:
                del clients[worker.id]  # else Locust deals its users out anew after a minute, in the middle of the run
        return lost
