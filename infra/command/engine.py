"""The engine as a child process: plain Locust with the constant_rate profile, in a session of its own."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from infra.command.cores import Cores
from infra.command.errors import CommandError
from infra.lab.ports import free_port
from infra.scenarios import Scenario
from infra.targets.units import format_duration, format_rate

__all__ = ["Call", "Engine", "Load", "arguments", "locustfile"]

_PR_SET_PDEATHSIG = 1
_SUMMARY_LINES = 400


@dataclass(frozen=True)
class Load:
    """What is said about the load beyond the scenario; None and () leave the profile's default."""

    insecure: bool = False
    ca: Path | None = None
    resolve: tuple[str, ...] = ()
    drain_s: float | None = None
    processes: int | None = None
    i_may_load: tuple[str, ...] = ()
    max_rate_per_s: float | None = None
    abort_on: str | None = None
    idle: str | None = None

    def idle_on(self, cores: Cores | None) -> str:
        """Return what the workers do between slots: with cores of their own they spin, which is far more punctual."""
        return self.idle or ("sleep" if cores is None or cores.shared else "spin")


@dataclass(frozen=True)
class Call:
    """One run of the engine: which scenario, where to, and where its run directory goes."""

    scenario: Scenario
    host: str
    run_dir: Path
    load: Load = field(default_factory=Load)
    target: Path | None = None
    cores: Cores | None = None
    meta: dict[str, object] = field(default_factory=dict)


def arguments(call: Call, folder: Path) -> list[str]:
    """Return the engine's command line; plan and metadata are the files that `Engine` writes into `folder`."""
    scenario, load = call.scenario, call.load
    words = [sys.executable, "-m", "locust", "-f", str(locustfile(scenario.profile)), "--headless", "--only-summary"]
    words += ["-u", str(scenario.connections), "--host", call.host, "--rate", format_rate(scenario.rate_per_s)]
    words += ["--path", scenario.path, "--method", scenario.options.method]
    words += ["--warmup", format_duration(scenario.warmup_s), "--duration", format_duration(scenario.duration_s)]
    words += ["--run-dir", str(call.run_dir), "--run-meta", str(folder / "meta.json")]
    if scenario.churn is not None:
        words += ["--churn", str(folder / "plan.yaml")]
    if call.target is not None:
        words += ["--target", str(call.target)]
    if scenario.options.timeout is not None:
        words += ["--timeout", scenario.options.timeout]
    if scenario.options.wrk2:
        words.append("--wrk2")
    if load.insecure:
        words.append("--insecure")
    if load.ca is not None:
        words += ["--ca", str(load.ca.absolute())]
    if load.drain_s is not None:
        words += ["--drain", format_duration(load.drain_s)]
    words += _in_processes(load.processes or 1)
    if load.max_rate_per_s is not None:
        words += ["--max-rate", format_rate(load.max_rate_per_s)]
    if load.abort_on is not None:
        words += ["--abort-on", load.abort_on]
    words += ["--idle", load.idle_on(call.cores)]
    if call.cores is not None:
        words += ["--worker-cpus", ",".join(map(str, call.cores.worker))]
    repeated = (("--header", scenario.options.headers), ("--resolve", load.resolve), ("--i-may-load", load.i_may_load))
    return words + [word for flag, values in repeated for value in values for word in (flag, value)]


def _in_processes(count: int) -> list[str]:
    if count == 1:
        return []
    port = str(free_port())  # Locust's usual one would be shared by all runs of this machine
    return ["--processes", str(count), "--master-bind-port", port, "--master-port", port]


class Engine:
    """A running engine (a context manager: leaving it ends the process, whatever happened)."""

    def __init__(self, call: Call, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.json").write_text(json.dumps(call.meta))
        if call.scenario.churn is not None:
            (folder / "plan.yaml").write_text(json.dumps(call.scenario.churn.to_data()))  # JSON is YAML
        self._log = folder / "engine.log"
        words = arguments(call, folder)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,  # no locust.conf or pyproject.toml of the caller's folder changes the run
                env=_environment(),
                start_new_session=True,  # the terminal's Ctrl-C reaches us alone; we pass one on
                preexec_fn=_before(os.getpid(), call.cores),  # noqa: PLW1509 - this process has no threads
            )

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._process.wait()

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        return self._process.wait()

    def interrupt(self) -> None:
        """Ask it to end in order; asked twice it ends at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process and its workers without asking. Its target agent notices, and puts the target back."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it ended by itself between our look and our signal

    def last_words(self) -> str:
        """Return the line in which it said why it ended; all that it said if INGRESS_SWARM_TRACEBACK is 1."""
        if os.environ.get("INGRESS_SWARM_TRACEBACK") == "1":
            return self._log.read_text(errors="replace")
        lines = self._log.read_text(errors="replace").splitlines()[-_SUMMARY_LINES:]
        said = [line.strip() for line in lines if line.strip()]
        named = [line for line in said if line.startswith("ingress-swarm:")]
        return (named or said or ["it said nothing"])[-1].removeprefix("ingress-swarm: ").removeprefix("error: ")


def locustfile(profile: str) -> Path:
    """Return the file of a profile; raise CommandError if it is not installed."""
    found = importlib.util.find_spec("locustfiles")
    if found is None or not found.submodule_search_locations:
        raise CommandError("the folder locustfiles is not installed: install ingress-swarm anew")
    return Path(found.submodule_search_locations[0]) / f"{profile}.py"


def _environment() -> dict[str, str]:
    """Return our environment without the variables that set options: the command line says all of them."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("INGRESS_SWARM_", "LOCUST_"))}
    if (traceback := os.environ.get("INGRESS_SWARM_TRACEBACK")) is not None:
        kept["INGRESS_SWARM_TRACEBACK"] = traceback
    return kept


def _before(parent: int, cores: Cores | None) -> Callable[[], None]:
    """Return what the child runs before it becomes the engine.

    It is to be told when we die, even by kill -9, and may use the cores that we keep off.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        if cores is not None:
            os.sched_setaffinity(0, {*cores.worker, *cores.lab})
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # we died before it could ask

    return ask
