"""One run as the master conducts it: epochs while users and rate change, and an end that loses nothing."""

import dataclasses
import itertools
import logging
import os
from collections.abc import Callable
from time import monotonic as clock
from typing import Any, Final

import gevent
import numpy as np
from gevent.event import Event
from gevent.lock import Semaphore
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner

from analysis.rundir import hdr_index
from locustfiles.engine import _messages as messages
from locustfiles.engine._address import Address
from locustfiles.engine._collector import Collector
from locustfiles.engine._fleet import LOCAL, Fleet, Worker
from locustfiles.engine._health import Meter, invalid_reasons, warnings
from locustfiles.engine._journal import Journal
from locustfiles.engine._manifest import Facts
from locustfiles.engine._options import Settings
from locustfiles.engine._resources import Resources
from locustfiles.engine._target_work import TargetWork
from locustfiles.engine._verdict import GeneratorRecord

logger = logging.getLogger(__name__)

START_DELAY_S: Final = 0.1
START_DELAY_PER_WORKER_S: Final = 0.005
DRAIN_GRACE_S: Final = 10.0
_STOPPED_EARLY_S: Final = 0.5


class Run:
    """Made when a test starts; `plan_epoch` when the users are there; `finish` when it stops, however it stops."""

    def __init__(
        self,
        environment: Environment,
        runner: LocalRunner | MasterRunner,
        number: int,
        settings: Settings,
        addresses: tuple[Address, ...],
        tls: dict[str, str],
        profile: str,
        helper_cpus: frozenset[int],
        stop: Callable[[], None],
    ) -> None:
        self._number, self.settings, self._addresses, self._stop = number, settings, addresses, stop
        self._facts = Facts(addresses=[f"{target[0]}:{target[1]}" for _, target in addresses], tls=tls)
        self.fleet = Fleet(runner, number)
        self._journal = Journal(settings, profile, self._facts, helper_cpus)
        hook = environment.events.churn  # type: ignore[attr-defined]  # added by install()
        try:
            self._target = TargetWork(settings, hook, self.fleet, self._journal, helper_cpus)
        except Exception:
            self._journal.close()
            raise
        self._resources = Resources(None if isinstance(runner, LocalRunner) else Meter(), self._target.agent)
        self._collector = Collector(settings.name)
        self._record = GeneratorRecord()
        self._epochs = itertools.count(1)
        self._lock = Semaphore()
        self._t0_s: float | None = None
        self._end_s: float | None = None
        self._present: tuple[float, int] | None = None  # rate and users of the present epoch
        self._greenlets: list[gevent.Greenlet] = []
        self._failures: list[str] = []
        self._written_off: set[str] = set()
        self._aborted: str | None = None
        self._finishing = False
        self._finished = Event()
        self.invalid: list[str] = []

    @property
    def target_failed(self) -> bool:
        """Whether the target could not be put back, or a change of the plan could not be made."""
        stays = self._facts.target is not None and self._facts.target["restored"] is False
        return stays or bool(self._target.failed_changes)

    @property
    def warnings(self) -> list[str]:
        """What makes the numbers doubtful, known once the run is finished."""
        return self._facts.warnings

    @property
    def run_dir(self) -> str | None:
        """Where the results are."""
        return self._journal.run_dir

    def incident(self, text: str) -> None:
        """Write down something that the reader of the report must know."""
        self._journal.incident(text)

    # -- the workers' answers

    def batch(self, worker: str, report: dict[str, Any]) -> None:
        """A worker's report of the last second."""
        if report["test"] != self._number or worker in self._written_off:
            return
        self._collector.add(worker, report)
        if report["failure"] is not None and report["failure"] not in self._failures:
            self._fail(report["failure"])
        self._target.see(report["seen"])
        known = self.fleet.workers.get(worker)
        name = worker if known is None else str(known.index)
        second = report["complete"] - 1
        rows = self._record.add(name, second, report["generator"], self.settings.warmup_s)
        self._journal.generator(rows.generator)
        self._journal.resources([rows.resource])

    def drained(self, worker: str, report: dict[str, Any]) -> None:
        """A worker's last report."""
        self.batch(worker, report)
        if worker in self.fleet.workers:
            self.fleet.workers[worker].drained = True

    def setup_message(self) -> dict[str, Any]:
        """What a worker needs to make this load."""
        settings = self.settings
        return {
            "test": self._number,
            "request": settings.request(),
            "method": settings.method,
            "path": settings.path.split("?")[0],
            "addresses": [(family, target[0], target[1]) for family, target in self._addresses],
            "tls": settings.host.tls,
            "server_name": settings.host.name,
            "ca_pem": settings.ca_pem,
            "insecure": settings.insecure,
            "timeout_s": settings.timeout_s,
            "wrk2": settings.wrk2,
            "expect_bytes": settings.expect_bytes,
            "spins": settings.spins,
        }

    # -- epochs

    def plan_epoch(self, rate_per_s: float, users: int) -> None:
        """Begin an epoch of this rate as soon as the connections of all users are open."""
        self._spawn(self._begin_epoch, rate_per_s, users)

    def _begin_epoch(self, rate_per_s: float, users: int) -> None:
        with self._lock:
            if self._finishing or self._refused(rate_per_s):
                return
            self._look_for_lost()
            if self._present == (rate_per_s, users) and any(worker.lost for worker in self.fleet.workers.values()):
                return  # Locust dealt out the users of a lost worker: its share stays unsent, as the run says
            ids = self.fleet.present()
            self.fleet.take_in(ids)
            counts = self.fleet.count_connections(ids)
            if self.fleet.errors:
                self._fail(self.fleet.errors[0])
                return
            live = {worker: count for worker, (count, _) in counts.items() if count}
            if self._finishing or not live:
                return
            t0_s = clock() + START_DELAY_S + START_DELAY_PER_WORKER_S * len(ids)
            if self._t0_s is None:
                closed = sum(count - opened for count, opened in counts.values())
                self._record.connections_missing = closed + max(0, users - sum(live.values()))
                self._start_clock(t0_s)
            self._deal(t0_s, rate_per_s, live)
            self._present = (rate_per_s, users)

    def _refused(self, rate_per_s: float) -> bool:
        limit = self.settings.max_rate_per_s
        if limit is None or rate_per_s <= limit:
            return False
        self.incident(f"a rate of {rate_per_s:g}/s was refused: --max-rate is {limit:g}/s")
        return True

    def _start_clock(self, t0_s: float) -> None:
        self._t0_s = t0_s
        self._journal.begin(t0_s)
        if self.settings.duration_s is not None:
            self._end_s = t0_s + self.settings.warmup_s + self.settings.duration_s
            self._spawn(self._stop_at, self._end_s)
        self._spawn(self._each_second, t0_s)
        if self._target.walk is not None:
            self._spawn(self._target.walk, t0_s + self.settings.warmup_s)

    def _deal(self, t0_s: float, rate_per_s: float, live: dict[str, int]) -> None:
        assert self._t0_s is not None
        number = next(self._epochs)
        self._collector.expect(live)
        connections = self.fleet.begin_epoch(number, t0_s, rate_per_s, live, self._t0_s, self._end_s)
        self._facts.rate_per_s, self._facts.connections = rate_per_s, connections
        self._facts.workers = [_worker_facts(worker) for worker in self.fleet.workers.values()]
        self._journal.event(
            "epoch", t0_s, epoch=number, rate_per_s=rate_per_s, connections=connections, workers=len(live)
        )
        self._journal.manifest()
        logger.info("Epoch %d: %g requests/s over %d connections", number, rate_per_s, connections)

    # -- while it goes on

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        greenlet = gevent.spawn(work, *arguments)
        greenlet.link_exception(lambda dead: self._fail(f"the engine failed: {dead.exception!r}"))
        self._greenlets.append(greenlet)

    def _fail(self, reason: str) -> None:
        """The run cannot go on: say so, invalidate it, stop it."""
        self.incident(reason)
        self._failures.append(reason)
        gevent.spawn(self._stop)

    def _stop_at(self, end_s: float) -> None:
        while clock() < end_s:  # gevent counts from its loop's last look at the clock, and may wake up early
            gevent.sleep(max(0.001, end_s - clock()))
        self._stop()

    def _each_second(self, t0_s: float) -> None:
        while True:
            gevent.sleep(1.0 - (clock() - t0_s) % 1.0)
            second = int(clock() - t0_s) - 1
            self._look_for_lost()
            self._journal.resources(self._resources.take(second))
            self._journal.seconds(self._collector, everything=False)
            self._check_abort(second)

    def _look_for_lost(self) -> None:
        for worker in self.fleet.newly_lost():
            self._record.lost.append(worker.id)
            self._collector.release(worker.id)
            self.incident(f"worker {worker.index} ({worker.id}) was lost: its share of the load is not sent any more")

    def _check_abort(self, second: int) -> None:
        rule = self.settings.abort_on
        if rule is None or self._aborted is not None:
            return
        if self._collector.fails_throughout(second, rule.for_s, rule.errors_share):
            self._aborted = f"more than {rule.errors_share:.0%} of slots failed for {rule.for_s} s (--abort-on)"
            self.incident(self._aborted)
            gevent.spawn(self._stop)

    # -- the end

    def finish(self) -> None:
        """Drain, put the target back, settle the accounts, close the files. A second caller waits for the first."""
        if self._finishing:
            self._finished.wait()
            return
        self._finishing = True
        try:
            self._finish()
        finally:
            self._finished.set()

    def _finish(self) -> None:
        # Whoever stops the run may be one of these greenlets; it must not kill itself.
        gevent.killall([greenlet for greenlet in self._greenlets if greenlet is not gevent.getcurrent()])
        end_s = clock() if self._end_s is None else min(clock(), self._end_s)
        self._target.end_watch(end_s)
        self._drain(end_s)
        self._target.put_back()
        now_s = clock()
        if self._t0_s is not None:
            self._facts.measured_to_s = self._journal.since_t0(end_s)
            self._facts.drained_s = self._journal.since_t0(now_s)
            self._journal.resources(self._resources.take(int(now_s - self._t0_s)))
        self._target.close()
        self._journal.seconds(self._collector, everything=True)
        self._journal.wait()
        self._judge(end_s)
        self._facts.state = "finished"
        self._journal.close()
        if self._journal.error is not None and self._facts.valid:
            self.invalid.append(f"the recorder failed: {self._journal.error}")  # in its very last write

    def _drain(self, end_s: float) -> None:
        if self._t0_s is None:
            self.fleet.take_in(self.fleet.present())
        # One that joined late and has no slots may have nothing to hand in.
        workers = [worker for worker in self.fleet.left() if worker.epochs or self._t0_s is None]
        limit_s = self.settings.drain_s if self._t0_s is not None else 0.0
        self.fleet.tell(
            messages.DRAIN, lambda offset_s: {"test": self._number, "end_s": end_s + offset_s, "limit_s": limit_s}
        )
        until_s = clock() + limit_s + DRAIN_GRACE_S
        while clock() < until_s:
            self._look_for_lost()
            if all(worker.drained or worker.lost for worker in workers):
                break
            gevent.sleep(0.01)
        for worker in workers:
            if not worker.drained and not worker.lost:
                worker.lost = True
                self._record.lost.append(worker.id)
                self._collector.release(worker.id)
                self.incident(f"worker {worker.index} ({worker.id}) did not hand in its last figures")
        for worker in self.fleet.workers.values():
            if worker.lost and worker.epochs and self._t0_s is not None:
                self._write_off(worker, self._t0_s, end_s)

    def _write_off(self, worker: Worker, t0_s: float, end_s: float) -> None:
        """A lost worker's slots: what it did not report is due all the same, and unsent as far as anybody knows."""
        self._written_off.add(worker.id)
        told = self._collector.due_told[worker.id]
        # The last second that it told of may be told in part only: it may have ended in the middle of it.
        seconds = range(max(0, self._collector.come_to(worker.id) - 1), int(end_s - t0_s) + 1)
        fallen = {second: worker.due_between(t0_s + second, min(end_s, t0_s + second + 1)) for second in seconds}
        due = {second: count - told[second] for second, count in fallen.items() if count > told[second]}
        now_s = clock()
        # Their intended starts are known to the second, so their ages are told to half a second.
        ages_us = [
            int(max(0.0, now_s - t0_s - second - 0.5) * 1e6) for second, count in due.items() for _ in range(count)
        ]
        self._collector.lose(worker.id, due, int(now_s - t0_s), hdr_index(np.array(ages_us, dtype=np.int64)))

    def _judge(self, end_s: float) -> None:
        accounts = self._collector.accounting()
        ended = accounts["response"] + accounts["failed"] + accounts["censored"]
        measured = {
            second: (due, late)
            for second, (due, late) in self._collector.late_own.items()
            if second >= self.settings.warmup_s
        }
        errors_s = [worker.clock.error_s for worker in self.fleet.workers.values() if worker.epochs]
        evidence = dataclasses.replace(
            self._record.evidence(measured),
            local_outcomes=self._collector.totals["local"],
            recorder_error=self._journal.error,
            clock_error_us=max(errors_s, default=0.0) * 1e6,
            accounts_differ=None if accounts["due"] == ended else f"due {accounts['due']}, ended {ended}",
            aborted=self._aborted,
        )
        self.invalid = self._failures + invalid_reasons(evidence)
        if self._t0_s is None:
            self.invalid.append("it was stopped before its load began")
        self._facts.accounting = accounts
        self._facts.valid = not self.invalid
        self._facts.invalid_reasons = self.invalid
        self._facts.warnings = warnings(evidence)
        failed = self._target.failed_changes
        if failed:
            self._facts.warnings.insert(0, f"{len(failed)} change(s) of the plan could not be made: {failed[0]}")
        if self._resources.error is not None:
            self._facts.warnings.append(f"CPU and memory of the target have gaps: {self._resources.error}")
        if self._end_s is not None and self._end_s - end_s > _STOPPED_EARLY_S:
            self._facts.warnings.append(f"the run was stopped {self._end_s - end_s:.0f} s before its time")


def _worker_facts(worker: Worker) -> dict[str, Any]:
    return {
        "index": worker.index,
        "id": worker.id if worker.id != LOCAL else f"{os.uname().nodename} (this process)",
        "clock_offset_us": round(worker.clock.offset_s * 1e6, 1),
        "clock_error_us": round(worker.clock.error_s * 1e6, 1) if worker.clock.error_s != float("inf") else None,
    }
