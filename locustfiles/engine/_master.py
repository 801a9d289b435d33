"""The side of the engine that conducts: one in the master process, or beside the worker's side in a LocalRunner."""

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

import gevent
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, LocalRunner, MasterRunner

from analysis.rundir import RunDirError
from infra.targets import TargetError, load_target
from infra.targets.plan import PlanError, load_plan
from locustfiles.engine import _messages as messages
from locustfiles.engine._agent import AgentError
from locustfiles.engine._manifest import default_run_dir
from locustfiles.engine._options import Settings, parse_cpus
from locustfiles.engine._preflight import check_descriptors, check_run_dir, find_addresses, tls_context, try_connection
from locustfiles.engine._run import Run

logger = logging.getLogger(__name__)

FAILED, USAGE, INVALID = 1, 2, 4
_ONE_LINE = (ValueError, PlanError, TargetError, RunDirError, AgentError)


class MasterSide:
    """Listens to Locust's events and to the workers' messages; holds the present run."""

    def __init__(self, environment: Environment, runner: LocalRunner | MasterRunner) -> None:
        self._environment, self._runner = environment, runner
        self._run: Run | None = None
        self._tests = 0
        for name, handler in (
            (messages.PONG, self._on_pong),
            (messages.COUNTED, self._on_counted),
            (messages.BATCH, self._on_batch),
            (messages.DRAINED, self._on_drained),
        ):
            runner.register_message(name, messages.guarded(handler, with_sender=True))
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.worker_connect.add_listener(self._on_worker_connect)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.quitting.add_listener(self._on_quitting)

    # -- before anything starts

    def check_start(self) -> None:
        """What can be known to be wrong before a run that starts by itself is said in one line, with exit code 2.

        Ends the process then.
        """
        options = self._environment.parsed_options
        assert options is not None
        if not options.headless and options.web_host not in ("127.0.0.1", "::1", "localhost") and not options.web_login:
            _refuse(
                f"--web-host: given {options.web_host!r}: anybody who reaches the web UI can aim this load: "
                "use 127.0.0.1 with a port-forward, or --web-login"
            )
        users = options.num_users
        if users is not None and users < 1:
            _refuse(f"-u: given {users}, allowed at least 1 connection")
        if options.spawn_rate is None:
            options.spawn_rate = max(users or 0, 1000)  # users only ask for a connection; the engine paces the opening
        if options.headless or options.autostart:
            try:
                self._check()
            except _ONE_LINE as error:
                _refuse(str(error))

    def _check(self) -> None:
        options = self._environment.parsed_options
        assert options is not None
        settings = Settings.read(options, self._environment.host)
        if isinstance(self._runner, LocalRunner) or options.processes:
            check_descriptors(-(-(options.num_users or 1) // (options.processes or 1)))
        if settings.churn is not None:
            load_plan(settings.churn)
        if settings.target is not None:
            load_target(settings.target)
        if not settings.no_run_dir:
            check_run_dir(settings.run_dir or default_run_dir("new", datetime.now(UTC)))
        self._reach(settings)

    def _reach(self, settings: Settings) -> tuple[Any, dict[str, str]]:
        addresses = find_addresses(settings)
        context = tls_context(settings.ca_pem, insecure=settings.insecure) if settings.host.tls else None
        return addresses, try_connection(settings.host, addresses, context)

    # -- Locust's events

    def _on_test_start(self, environment: Environment, **_more: object) -> None:
        options = environment.parsed_options
        assert options is not None
        try:
            settings = Settings.read(options, environment.host)
            addresses, tls = self._reach(settings)
            self._tests += 1
            self._run = Run(
                environment,
                self._runner,
                self._tests,
                settings,
                addresses,
                tls,
                self._profile(),
                self._helper_cpus(),
                self._stop,
            )
        except _ONE_LINE as error:
            self._run = None
            self._call_off(str(error))
            return
        for worker in self._run.fleet.present():
            self._run.fleet.send(worker, messages.SETUP, self._run.setup_message())

    def _call_off(self, reason: str) -> None:
        """The test cannot start.

        Locust has no way to refuse one, so it is stopped, and the reason shown where people look.
        """
        logger.error("The test was not started: %s", reason)
        self._runner.log_exception("master", f"The test was not started: {reason}", "")
        self._environment.process_exit_code = USAGE
        gevent.spawn(self._stop)

    def _on_spawning_complete(self, user_count: int, **_more: object) -> None:
        run, options = self._run, self._environment.parsed_options
        if run is None or options is None:
            return
        try:
            rate_per_s = Settings.read(options, self._environment.host).rate_per_s
        except ValueError as error:
            run.incident(f"the change was not made: {error}")
            return
        run.plan_epoch(rate_per_s, user_count)

    def _on_worker_connect(self, client_id: str, **_more: object) -> None:
        if self._run is not None:
            self._run.fleet.send(client_id, messages.SETUP, self._run.setup_message())

    def _on_test_stopping(self, **_more: object) -> None:
        run = self._run
        if run is None:
            return
        run.finish()
        self._run = None
        code = self._environment.process_exit_code or (FAILED if run.target_failed else 0)
        self._environment.process_exit_code = INVALID if run.invalid else code
        for reason in run.invalid:
            logger.error("INVALID RUN: %s", reason)
        for warning in run.warnings:
            logger.warning("%s", warning)
        if run.run_dir is not None:
            logger.info("Results: %s", run.run_dir)

    def _on_quitting(self, **_more: object) -> None:
        """SIGTERM ends Locust before its users: stop the test first, so that nothing is lost."""
        if self._run is not None and self._runner.state in (STATE_RUNNING, STATE_SPAWNING):
            self._runner.stop()

    def _stop(self) -> None:
        options = self._environment.parsed_options
        if options is not None and options.headless:
            self._runner.quit()
        else:
            self._runner.stop()

    # -- the workers' messages

    def _on_pong(self, worker: str, data: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.fleet.ponged(worker, data)

    def _on_counted(self, worker: str, data: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.fleet.counted(worker, data)

    def _on_batch(self, worker: str, data: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.batch(worker, data)

    def _on_drained(self, worker: str, data: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.drained(worker, data)

    def _profile(self) -> str:
        names = {getattr(user_class, "profile", user_class.__name__) for user_class in self._environment.user_classes}
        return "+".join(sorted(names))

    def _helper_cpus(self) -> frozenset[int]:
        """Cores for the target's helper: those that make no load, if there are any."""
        available = frozenset(range(os.cpu_count() or 1))  # our own affinity is the load's, and says nothing
        options = self._environment.parsed_options
        text = getattr(options, "worker_cpus", "") or ""
        return available - parse_cpus(text, available) if text else frozenset()


def _refuse(reason: str) -> NoReturn:
    sys.stderr.write(f"ingress-swarm: error: {reason}\n")
    raise SystemExit(USAGE)
