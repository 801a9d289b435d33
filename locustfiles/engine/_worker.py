"""The side of the engine that makes load: one in each worker process, and one beside the master's side in a
LocalRunner.

It follows the master's messages: setup, epochs, watches, drain. It reports once a second what its recorder has.
"""

import gc
import itertools
import logging
import time
from time import monotonic as clock
from typing import Any, Final

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

from locustfiles.engine import _messages as messages
from locustfiles.engine._connection import Connection
from locustfiles.engine._exchange import Traffic
from locustfiles.engine._health import Meter
from locustfiles.engine._kinds import Kinds
from locustfiles.engine._lag import GcMeter
from locustfiles.engine._preflight import check_descriptors, tls_context
from locustfiles.engine._pump import Pump
from locustfiles.engine._recorder import Recorder
from locustfiles.engine._schedule import Epoch
from locustfiles.engine._stats import LocustStats
from locustfiles.engine._watch import Watch

logger = logging.getLogger(__name__)

REPORT_S: Final = 1.0
HAND_IN_S: Final = 2.0
MASTER_SILENCE_S: Final = 10.0
OPEN_LIMIT_S: Final = 15.0  # a ramp whose connections do not all open goes on without them, and the run says so


class _Load:
    """One test in this process."""

    def __init__(self, environment: Environment, setup: dict[str, Any]) -> None:
        self.number: int = setup["test"]
        self.kinds = Kinds()
        request: bytes = setup["request"]
        self.stats = LocustStats(environment, self.kinds, setup["method"], setup["path"])
        self.recorder = Recorder(self.kinds, len(request), self.stats.take)
        self.traffic = Traffic(
            request=request,
            head_request=setup["method"] == "HEAD",
            addresses=tuple((family, (address, port)) for family, address, port in setup["addresses"]),
            tls=tls_context(setup["ca_pem"], insecure=setup["insecure"]) if setup["tls"] else None,
            server_name=setup["server_name"],
            timeout_s=setup["timeout_s"],
            wrk2=setup["wrk2"],
            expect_bytes=setup["expect_bytes"],
            spins=setup["spins"],
        )
        self.pump = Pump(self.traffic, self.recorder)
        self.meter = Meter()
        self.gc_meter = GcMeter()
        self.begun = False
        self.reported_to = 0
        self.failure: str | None = None
        self.reports_end = Event()
        self.gc_meter.install()
        self.loop = gevent.spawn(self.pump.run)
        self.loop.link_exception(self._failed)

    def _failed(self, loop: gevent.Greenlet) -> None:
        self.failure = f"the loop of a worker failed: {loop.exception!r}"

    def report(self, *, final: bool) -> dict[str, Any]:
        """What is new since the last report; final: everything that is left."""
        self.recorder.fold()
        if final and not self.begun:
            self.recorder.begin(clock())
        t0_s = self.recorder.t0_s
        ends = 0
        if self.begun:
            ends = int(clock() - t0_s) + 1 if final else int(min(self.pump.come_to_s(), clock()) - t0_s)
        due = {}
        for second in range(self.reported_to, ends):
            count = self.pump.due_between(t0_s + second, t0_s + second + 1)
            if count:
                due[second] = count
        self.reported_to = max(self.reported_to, ends)
        report = self.recorder.take(None if final else ends, due)
        lag_p99_us, lag_max_us = self.pump.lag.take_us()
        report["generator"] = {
            **self.meter.take(),
            "spun_s": self.pump.take_spun_s(),
            "loop_lag_p99_us": lag_p99_us,
            "loop_lag_max_us": lag_max_us,
            "gc_pause_max_us": self.gc_meter.take_us(),
            "clipped": report.pop("clipped"),
        }
        report["test"] = self.number
        report["failure"] = self.failure
        report["complete"] = ends
        return report

    def close(self) -> None:
        """Stop the loop and let the collector go back to normal."""
        self.gc_meter.remove()
        self.pump.close()
        self.loop.join(timeout=5)
        gc.unfreeze()


class WorkerSide:
    """Registers the messages of the master and holds the connections of the users."""

    def __init__(self, environment: Environment, runner: LocalRunner | WorkerRunner) -> None:
        self._environment = environment
        self._runner = runner
        self._load: _Load | None = None
        self._reporter: gevent.Greenlet | None = None
        for name, handler in (
            (messages.SETUP, self._on_setup),
            (messages.PING, self._on_ping),
            (messages.COUNT, self._on_count),
            (messages.EPOCH, self._on_epoch),
            (messages.END, self._on_end),
            (messages.WATCH, self._on_watch),
            (messages.UNWATCH, self._on_unwatch),
            (messages.DRAIN, self._on_drain),
        ):
            runner.register_message(name, messages.guarded(handler))

    @property
    def running(self) -> bool:
        """Whether a test is on in this process."""
        return self._load is not None

    def add_connection(self) -> Connection | None:
        """A user starts: it gets a connection; None if no test is set up (its start was refused)."""
        return None if self._load is None else self._load.pump.add()

    def remove_connection(self, connection: Connection) -> None:
        """A user stops."""
        if self._load is not None:
            self._load.pump.retire(connection)

    def abandon(self) -> None:
        """Drop everything: the master is gone, or the process ends."""
        if self._reporter is not None:
            self._reporter.kill(block=False)
        if self._load is not None:
            self._load.pump.censor()
            self._load.close()
            self._load = None

    def hand_in(self) -> None:
        """The process is told to end in the middle of a run: wait briefly for what is on its way, and report all
        there is.
        """
        if self._load is not None:
            # Not DRAINED: the run goes on without this worker, and its further share counts as lost.
            self._wind_up(self._load, clock(), HAND_IN_S, messages.BATCH)

    def _on_setup(self, data: dict[str, Any]) -> None:
        self.abandon()
        self._load = _Load(self._environment, data)
        self._reporter = gevent.spawn(self._report_for_ever, self._load)

    def _on_ping(self, data: dict[str, Any]) -> None:
        self._runner.send_message(messages.PONG, {**data, "worker_s": clock()})

    def _on_count(self, data: dict[str, Any]) -> None:
        gevent.spawn(self._count_when_open, data)

    def _count_when_open(self, data: dict[str, Any]) -> None:
        load, until_s = self._load, clock() + OPEN_LIMIT_S
        try:
            check_descriptors(self._runner.user_count)  # at once: connections that cannot open would be waited for
        except ValueError as error:
            self._runner.send_message(messages.COUNTED, {**data, "live": 0, "open": 0, "error": str(error)})
            return
        while load is not None and load is self._load and clock() < until_s:
            live = len(load.pump.live())
            if live == self._runner.user_count and load.pump.open_count() == live:
                break
            gevent.sleep(0.02)
        if load is None or load is not self._load:
            return
        if not load.begun:
            # What the ramp made lives as long as the run: the collector need not look at it again.
            gc.collect()
            gc.freeze()
        counted = {"live": len(load.pump.live()), "open": load.pump.open_count(), "error": None}
        self._runner.send_message(messages.COUNTED, {**data, **counted})

    def _on_epoch(self, data: dict[str, Any]) -> None:
        load = self._load
        if load is None or load.number != data["test"]:
            return
        epoch = Epoch(data["epoch"], data["t0_s"], data["rate_per_s"], data["connections"], tuple(data["numbers"]))
        if not load.begun:
            load.recorder.fold()
            load.recorder.begin(data["run_t0_s"])
            load.begun = True
        end_s = data["end_s"]
        live = list(itertools.islice(load.pump.live(), len(epoch.numbers)))
        load.pump.begin(epoch, live, end_s if end_s is not None else float("inf"))

    def _on_end(self, data: dict[str, Any]) -> None:
        if self._load is not None and self._load.number == data["test"]:
            self._load.pump.end_at(data["end_s"])

    def _on_watch(self, data: dict[str, Any]) -> None:
        if self._load is not None:
            self._load.recorder.fold()
            self._load.recorder.watcher.add(Watch(data["change"], data["since_s"], data["new"], data["old"]))

    def _on_unwatch(self, data: dict[str, Any]) -> None:
        if self._load is not None:
            self._load.recorder.watcher.end(data["change"], data["until_s"])

    def _on_drain(self, data: dict[str, Any]) -> None:
        if self._load is not None and self._load.number == data["test"]:
            gevent.spawn(self._wind_up, self._load, data["end_s"], data["limit_s"], messages.DRAINED)

    def _wind_up(self, load: _Load, end_s: float, limit_s: float, message: str) -> None:
        """Take no slot from `end_s` on, wait up to `limit_s` for what is on its way, and send all there is as
        `message`.
        """
        load.pump.end_at(end_s)
        until_s = clock() + limit_s
        while (load.pump.come_to_s() < end_s or load.pump.unfinished()) and clock() < until_s:
            gevent.sleep(0.01)
        load.pump.censor()
        load.reports_end.set()
        if self._reporter is not None:
            self._reporter.join()  # not killed: it may hold what the recorder has just handed over
        self._runner.send_message(message, load.report(final=True))
        load.stats.pump_out()
        load.close()
        if self._load is load:
            self._load = None

    def _report_for_ever(self, load: _Load) -> None:
        while not self._master_is_gone():
            if load.reports_end.wait(REPORT_S):
                return
            self._runner.send_message(messages.BATCH, load.report(final=False))
            load.stats.pump_out()
        logger.error("The master has been silent for %.0f s: the load is stopped", MASTER_SILENCE_S)
        self._reporter = None
        self.abandon()

    def _master_is_gone(self) -> bool:
        """Locust itself would let a worker load the target for a minute after its master has died."""
        heard_s = getattr(self._runner, "last_heartbeat_timestamp", None)
        return heard_s is not None and time.time() - heard_s > MASTER_SILENCE_S
