"""One run as the master conducts it: epochs, changes, what is collected and written, and an end that loses nothing."""

import dataclasses
import itertools
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic as clock
from typing import Any, Final

import gevent
import numpy as np
from gevent.event import Event
from gevent.lock import Semaphore
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner

from analysis.rundir import RunWriter, hdr_index
from infra.targets import load_target
from infra.targets.plan import Plan, load_plan
from locustfiles.engine import _messages as messages
from locustfiles.engine._address import Address
from locustfiles.engine._agent import Agent, AgentError
from locustfiles.engine._churn import AgentListener, AppliedChange, Churn
from locustfiles.engine._collector import Collector
from locustfiles.engine._filing import Filing, Write
from locustfiles.engine._fleet import LOCAL, Fleet, Worker
from locustfiles.engine._health import Evidence, Meter, invalid_reasons, warnings
from locustfiles.engine._manifest import Facts, default_run_dir, manifest, run_name
from locustfiles.engine._options import Settings
from locustfiles.engine._resources import Resources
from locustfiles.engine._verdict import GeneratorRecord

logger = logging.getLogger(__name__)

START_DELAY_S: Final = 0.1
START_DELAY_PER_WORKER_S: Final = 0.005
DRAIN_GRACE_S: Final = 10.0


class Run:
    """Made when a test starts; `begin_epoch` when the users are there; `finish` when it stops, however it stops."""

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
        self._environment, self._runner, self._number = environment, runner, number
        self.settings, self._addresses, self._profile, self._stop = settings, addresses, profile, stop
        self.facts = Facts(addresses=[f"{target[0]}:{target[1]}" for _, target in addresses], tls=tls)
        self.fleet = Fleet(runner, number)
        self._collector = Collector(settings.name)
        self._record = GeneratorRecord()
        self._ids = itertools.count(1)
        self._epochs = itertools.count(1)
        self._lock = Semaphore()
        self._t0_s: float | None = None
        self._end_s: float | None = None
        self._present: tuple[float, int] | None = None  # rate and users of the present epoch
        self._greenlets: list[gevent.Greenlet] = []
        self._drained: set[str] = set()
        self._finishing = False
        self._finished = Event()
        self.invalid: list[str] = []
        self._failures: list[str] = []
        self._aborted: str | None = None
        plan = load_plan(settings.churn) if settings.churn is not None else None
        path = settings.run_dir or default_run_dir(run_name(settings, profile), datetime.now(UTC))
        self._run_id = path.name
        self._filing = None if settings.no_run_dir else Filing(RunWriter.create(path, self._manifest()))
        self._agent: Agent | None = None
        self._churn: Churn | None = None
        try:
            self._open_target(helper_cpus, plan)
        except Exception:
            self.close_files()
            raise
        self._resources = Resources(None if runner.__class__ is LocalRunner else Meter(), self._agent)

    def _open_target(self, cpus: frozenset[int], plan: Plan | None) -> None:
        if self.settings.target is None:
            return
        spec = load_target(self.settings.target)
        self._agent = Agent(spec, cpus)
        try:
            facts = self._agent.ask("facts")["facts"]
            original = self._agent.ask("state")["state"]
        except AgentError:
            self._agent.close()
            raise
        self.facts.gateway = facts.get("gateway")
        self.facts.target = {"spec": dict(spec), "original": original, "restored": None}
        self._write_manifest()
        if self._filing is not None:
            self._filing.wait()  # the original state is on disk before the first edit
        hook = self._environment.events.churn  # type: ignore[attr-defined]  # added by install()
        self._listener = AgentListener(self._agent)
        hook.add_listener(self._listener)
        if plan is not None:
            self._churn = Churn(plan, hook, self._agent, self._ids, self._watch, self._unwatch, self._keep_change)

    # -- the workers' answers

    def batch(self, worker: str, report: dict[str, Any]) -> None:
        """A worker's report of the last second."""
        if report["test"] != self._number:
            return
        self._collector.add(worker, report)
        if report["failure"] is not None and report["failure"] not in self._failures:
            self._fail(report["failure"])
        if self._churn is not None:
            self._churn.see(report["seen"])
        rows = self._record.add(
            self._index(worker), report["complete"] - 1, report["generator"], self.settings.warmup_s
        )
        if self._filing is not None and self._t0_s is not None:
            writer = self._filing.writer
            writes: list[Write] = [(lambda row=row: writer.generator(**row), ()) for row in rows.generator]
            writes += [(writer.resource, row) for row in rows.resources]
            self._filing.submit(writes)

    def drained(self, worker: str, report: dict[str, Any]) -> None:
        """A worker's last report."""
        self.batch(worker, report)
        self._drained.add(worker)
        if worker in self.fleet.workers:
            self.fleet.workers[worker].drained = True

    def _index(self, worker: str) -> str:
        known = self.fleet.workers.get(worker)
        return str(known.index) if known is not None else worker

    # -- epochs

    def setup_message(self) -> dict[str, Any]:
        """What a worker needs to make this load."""
        settings = self.settings
        return {
            "test": self._number,
            "request": settings.request(),
            "method": settings.method,
            "name": settings.name,
            "addresses": [(family, target[0], target[1]) for family, target in self._addresses],
            "tls": settings.host.tls,
            "server_name": settings.host.name,
            "ca_pem": settings.ca_pem,
            "insecure": settings.insecure,
            "timeout_s": settings.timeout_s,
            "wrk2": settings.wrk2,
            "expect_bytes": settings.expect_bytes,
        }

    def plan_epoch(self, rate_per_s: float, users: int) -> None:
        """Begin an epoch of this rate as soon as the connections of all users are open."""
        self._spawn(self._begin_epoch, rate_per_s, users)

    def _begin_epoch(self, rate_per_s: float, users: int) -> None:
        """All users are there: deal the schedule anew, and begin it on all workers at the same moment."""
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
            live = {worker: count for worker, (count, _) in counts.items()}
            missing = sum(count - opened for count, opened in counts.values()) + max(0, users - sum(live.values()))
            if self._finishing or not sum(live.values()):
                return
            t0_s = clock() + START_DELAY_S + START_DELAY_PER_WORKER_S * len(ids)
            first = self._t0_s is None
            if first:
                self._start_clock(t0_s, missing)
            assert self._t0_s is not None
            number = next(self._epochs)
            self._collector.expect(live)
            connections = self.fleet.begin_epoch(number, t0_s, rate_per_s, live, self._t0_s, self._end_s)
            self._present = (rate_per_s, users)
            self.facts.rate_per_s, self.facts.connections = rate_per_s, connections
            self.facts.workers = [_worker_facts(worker) for worker in self.fleet.workers.values()]
            self._keep_event(
                "epoch",
                t0_s,
                epoch=number,
                rate_per_s=rate_per_s,
                connections=connections,
                workers=len([n for n in live.values() if n]),
            )
            self._write_manifest()
            logger.info("Epoch %d: %g requests/s over %d connections", number, rate_per_s, connections)
            if first:
                self._start_greenlets()

    def _refused(self, rate_per_s: float) -> bool:
        limit = self.settings.max_rate_per_s
        if limit is None or rate_per_s <= limit:
            return False
        self.incident(f"a rate of {rate_per_s:g}/s was refused: --max-rate is {limit:g}/s")
        return True

    def _start_clock(self, t0_s: float, missing: int) -> None:
        self._t0_s = t0_s
        now = datetime.now(UTC) + timedelta(seconds=t0_s - clock())
        self.facts.t0_utc = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
        self.facts.state = "running"
        self._record.connections_missing = missing
        if self.settings.duration_s is not None:
            self._end_s = t0_s + self.settings.warmup_s + self.settings.duration_s

    def _start_greenlets(self) -> None:
        assert self._t0_s is not None
        self._spawn(self._each_second)
        if self._churn is not None:
            self._spawn(self._churn.run, self._t0_s + self.settings.warmup_s)
        if self._end_s is not None:
            self._spawn(self._stop_at, self._end_s)

    def _stop_at(self, end_s: float) -> None:
        while clock() < end_s:  # gevent counts from its loop's last look at the clock, and may wake up early
            gevent.sleep(max(0.001, end_s - clock()))
        self._stop()

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        greenlet = gevent.spawn(work, *arguments)
        greenlet.link_exception(lambda dead: self._fail(f"the engine failed: {dead.exception!r}"))
        self._greenlets.append(greenlet)

    def _fail(self, reason: str) -> None:
        """The run cannot go on: say so, invalidate it, stop it."""
        self.incident(reason)
        self._failures.append(reason)
        gevent.spawn(self._stop)

    def _look_for_lost(self) -> None:
        for worker in self.fleet.newly_lost():
            self._record.lost.append(worker.id)
            self.incident(f"worker {worker.index} ({worker.id}) was lost: its share of the load is not sent any more")

    def _each_second(self) -> None:
        assert self._t0_s is not None
        while True:
            now_s = clock()
            gevent.sleep(1.0 - (now_s - self._t0_s) % 1.0)
            second = int(clock() - self._t0_s) - 1
            self._look_for_lost()
            self._collect_resources(second)
            self._write_seconds(everything=False)
            self._check_abort(second)

    def _check_abort(self, second: int) -> None:
        rule = self.settings.abort_on
        if (
            rule is None
            or self._aborted is not None
            or not self._collector.fails_throughout(second, rule.for_s, rule.errors_share)
        ):
            return
        self._aborted = f"more than {rule.errors_share:.0%} of slots failed for {rule.for_s} s (--abort-on)"
        self.incident(self._aborted)
        gevent.spawn(self._stop)

    # -- what is written

    def _write_seconds(self, *, everything: bool) -> None:
        writes: list[Write] = []
        if self._filing is not None:
            self._collector.write(self._filing.writer, writes, everything=everything)
            self._filing.submit(writes)

    def _collect_resources(self, second: int) -> None:
        rows = self._resources.take(second)
        if self._filing is not None:
            self._filing.submit([(self._filing.writer.resource, row) for row in rows])

    def _manifest(self) -> dict[str, Any]:
        return manifest(self.settings, self._profile, self._run_id, self.facts)

    def _write_manifest(self) -> None:
        if self._filing is not None:
            self._filing.submit([(self._filing.writer.manifest, (self._manifest(),))])

    def _submit_event(self, event: dict[str, Any]) -> None:
        if self._filing is not None:
            self._filing.submit([(self._filing.writer.event, (event,))])

    def _keep_event(self, kind: str, at_s: float, **more: Any) -> None:
        since = None if self._t0_s is None else round(at_s - self._t0_s, 6)
        self._submit_event({"id": next(self._ids), "kind": kind, "requested_s": since, **more})

    def incident(self, text: str) -> None:
        """Something that the reader of the report must know."""
        logger.warning("%s", text)
        self._keep_event("incident", clock(), text=text)

    # -- changes

    def _watch(self, change: AppliedChange, evidence: dict[str, Any]) -> None:
        self.fleet.tell(
            messages.WATCH,
            lambda offset_s: {
                "change": change.id,
                "since_s": change.requested_s + offset_s,
                "new": evidence["new"],
                "old": evidence["old"],
            },
        )

    def _unwatch(self, change: AppliedChange) -> None:
        until_s = change.until_s if change.until_s is not None else clock()
        self.fleet.tell(messages.UNWATCH, lambda offset_s: {"change": change.id, "until_s": until_s + offset_s})

    def _keep_change(self, change: AppliedChange) -> None:
        if self._t0_s is not None:
            self._submit_event(change.event(self._t0_s))

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
        if self._churn is not None:
            self._churn.end_watch(end_s)
        self._drain(end_s)
        self._put_back()
        now_s = clock()
        if self._t0_s is not None:
            self.facts.measured_to_s = round(end_s - self._t0_s, 6)
            self.facts.drained_s = round(now_s - self._t0_s, 6)
            self._collect_resources(int(now_s - self._t0_s))
        if self._churn is not None:
            for change in self._churn.changes.values():
                self._keep_change(change)
        self._write_seconds(everything=True)
        self._judge()
        self.facts.state = "finished"
        self._write_manifest()
        self.close_files()
        if self._agent is not None:
            self._environment.events.churn.remove_listener(self._listener)  # type: ignore[attr-defined]
            self._agent.close()

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
                self.incident(f"worker {worker.index} ({worker.id}) did not hand in its last figures")
        for worker in self.fleet.workers.values():
            if worker.lost and worker.epochs and self._t0_s is not None:
                self._write_off(worker, end_s)

    def _write_off(self, worker: Worker, end_s: float) -> None:
        """A lost worker's slots: what it did not report is due all the same, and unsent as far as anybody knows."""
        assert self._t0_s is not None
        seconds = range(self._collector.come_to(worker.id), int(end_s - self._t0_s) + 1)
        t0_s = self._t0_s
        due = {second: worker.due_between(t0_s + second, min(end_s, t0_s + second + 1)) for second in seconds}
        due = {second: count for second, count in due.items() if count}
        now_s = clock()
        # Their intended starts are known to the second, so their ages are told to half a second.
        ages_us = [
            int(max(0.0, now_s - t0_s - second - 0.5) * 1e6) for second, count in due.items() for _ in range(count)
        ]
        self._collector.lose(worker.id, due, int(now_s - t0_s), hdr_index(np.array(ages_us, dtype=np.int64)).tolist())

    def _put_back(self) -> None:
        if self._agent is None or self.facts.target is None:
            return
        started_s = clock()
        try:
            changed = self._agent.ask("put_back")["changed"]
        except AgentError as error:
            self.facts.target["restored"] = False
            self.incident(f"the target could not be put back: {error}: run 'ingress-swarm restore {self._run_id}'")
            return
        self.facts.target["restored"] = True
        if changed:
            self._keep_event(
                "restore",
                started_s,
                params={"changed": changed},
                by="end of run",
                applied_s=round(clock() - (self._t0_s or started_s), 6),
            )

    def _judge(self) -> None:
        self.facts.accounting = self._collector.accounting()
        accounts = self.facts.accounting
        ended = accounts["response"] + accounts["failed"] + accounts["censored"]
        differ = None if accounts["due"] == ended else f"due {accounts['due']}, ended {ended}"
        measured = {
            second: (due, late)
            for second, (due, late) in self._collector.late_own.items()
            if second >= self.settings.warmup_s
        }
        errors = [worker.clock.error_s for worker in self.fleet.workers.values() if worker.epochs]
        if self._filing is not None:
            self._filing.wait()
        evidence: Evidence = dataclasses.replace(
            self._record.evidence(measured),
            local_outcomes=self._collector.totals["local"],
            recorder_error=self._filing.error if self._filing is not None else None,
            clock_error_us=max(errors, default=0.0) * 1e6,
            accounts_differ=differ,
            aborted=self._aborted,
        )
        self.invalid = self._failures + invalid_reasons(evidence)
        if self._t0_s is None:
            self.invalid.append("it was stopped before its load began")
        self.facts.valid = not self.invalid
        self.facts.invalid_reasons = self.invalid
        self.facts.warnings = warnings(evidence)
        if self._resources.error is not None:
            self.facts.warnings.append(f"CPU and memory of the target have gaps: {self._resources.error}")
        if self._t0_s is not None and self._end_s is not None and self.facts.measured_to_s is not None:
            short_s = self._end_s - self._t0_s - self.facts.measured_to_s
            if short_s > 0.5:
                self.facts.warnings.append(f"the run was stopped {short_s:.0f} s before its time")

    def close_files(self) -> None:
        """Close the run directory; a failure of the last write still counts."""
        if self._filing is None:
            return
        self._filing.close()
        if self._filing.error is not None and not any("recorder" in reason for reason in self.invalid):
            self.invalid.append(f"the recorder failed: {self._filing.error}")

    @property
    def run_dir(self) -> str | None:
        """Where the results are."""
        return None if self._filing is None else os.fspath(self._filing.writer.path)


def _worker_facts(worker: Worker) -> dict[str, Any]:
    return {
        "index": worker.index,
        "id": worker.id if worker.id != LOCAL else f"{os.uname().nodename} (this process)",
        "clock_offset_us": round(worker.clock.offset_s * 1e6, 1),
        "clock_error_us": round(worker.clock.error_s * 1e6, 1) if worker.clock.error_s != float("inf") else None,
    }
