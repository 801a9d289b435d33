"""Joins the engine to Locust: one visible call, made by each profile, that does its work once."""

import functools
import logging
import os
import signal
import sys
from argparse import ArgumentParser
from typing import Any, Final

import gevent
from locust import events
from locust.env import Environment
from locust.event import EventHook
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from locustfiles.engine._master import MasterSide
from locustfiles.engine._options import add_options, parse_cpus
from locustfiles.engine._worker import WorkerSide

logger = logging.getLogger(__name__)

_SIDE: Final = "ingress_swarm_worker"


def install() -> None:
    """Add the common options and the engine to Locust. Several profiles in one process call it; only the first call
    counts.

    Locust loads a module that -f names under its bare name, possibly beside the package's own copy of it, so the mark
    is kept where all of them look: on Locust's events, as the churn hook that they need anyway.
    """
    if hasattr(events, "churn"):
        return
    events.churn = EventHook()  # type: ignore[attr-defined]
    # Before anything else in a worker that --processes forks: one whose master is refused never comes to `_join`,
    # because Locust has it try to connect for minutes.
    os.register_at_fork(after_in_child=functools.partial(gevent.spawn, _end_with_parent, os.getpid()))
    events.init_command_line_parser.add_listener(_add_options)
    events.init.add_listener(_join)


def worker_side(environment: Environment) -> WorkerSide | None:
    """The side that holds connections in this process; None in a master."""
    return getattr(environment, _SIDE, None)


def _add_options(parser: ArgumentParser, **_more: object) -> None:
    add_options(parser)


def _join(
    environment: Environment, runner: LocalRunner | MasterRunner | WorkerRunner, web_ui: Any = None, **_more: object
) -> None:
    logging.getLogger("locust.runners").addFilter(_quiet_about_spawning)
    worker = master = None
    if not isinstance(runner, MasterRunner):
        worker = WorkerSide(environment, runner)
        setattr(environment, _SIDE, worker)
        _pin(environment, runner)
    if not isinstance(runner, WorkerRunner):
        master = MasterSide(environment, runner)
    _Signals(environment, runner, web_ui, worker).install()
    if master is not None:
        master.check_start()


def _end_with_parent(parent: int) -> None:
    """A worker that --processes forked is nobody's once its master is gone, however that came."""
    while os.getppid() == parent:
        gevent.sleep(1)
    os._exit(1)


def _quiet_about_spawning(record: logging.LogRecord) -> bool:
    """Locust warns of high spawn rates; here a user is cheap, and the engine paces the opening of connections."""
    return "spawn rate is very high" not in str(record.msg)


def _pin(environment: Environment, runner: LocalRunner | WorkerRunner) -> None:
    options = environment.parsed_options
    text = getattr(options, "worker_cpus", "") or ""
    if not text:
        return
    try:
        cpus = sorted(parse_cpus(text, frozenset(range(os.cpu_count() or 1))))
    except ValueError as error:
        sys.stderr.write(f"ingress-swarm: error: {error}\n")
        raise SystemExit(2) from None
    own = {cpus[max(0, runner.worker_index) % len(cpus)]} if isinstance(runner, WorkerRunner) else set(cpus)
    os.sched_setaffinity(0, own)


class _Signals:
    """Ctrl-C through gevent's loop: a KeyboardInterrupt would come up inside whichever greenlet runs, the pump's most
    of the time.
    """

    def __init__(
        self,
        environment: Environment,
        runner: LocalRunner | MasterRunner | WorkerRunner,
        web_ui: Any,
        worker: WorkerSide | None,
    ) -> None:
        self._environment, self._runner, self._web_ui, self._worker = environment, runner, web_ui, worker
        self._interrupts = 0

    def install(self) -> None:
        gevent.signal_handler(signal.SIGINT, self._interrupted)
        if isinstance(self._runner, WorkerRunner):
            self._environment.events.quitting.add_listener(self._worker_quits)

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            os._exit(130)  # the helper process reads the end of its input and puts the target back by itself
        if isinstance(self._runner, WorkerRunner) and self._worker is not None and self._worker.running:
            return  # a terminal's Ctrl-C reaches all processes: the master ends the run, and then us
        logger.info("Interrupted: ending the run (once more to leave at once)")
        self._runner.quit()
        if self._web_ui is not None:
            self._web_ui.stop()

    def _worker_quits(self, **_more: object) -> None:
        if self._worker is not None:
            self._worker.hand_in()
