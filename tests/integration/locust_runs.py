"""Real Locust processes for tests: started, looked at, ended in every way, and never left behind."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil
import pytest

pytest.register_assert_rewrite("run_accounts")

PROFILE = Path(__file__).parents[2] / "locustfiles" / "constant_rate.py"
LIMIT_S = 40.0  # whatever a test waits for comes within seconds; this is for a machine that is busy otherwise
_MARK = "SWARM_TEST_MARK"


class Locust:
    """One `locust` command, in a session and process group of its own; what it says is read as it comes."""

    def __init__(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], limit: Sequence[str] = ()
    ) -> None:
        self._process = subprocess.Popen(
            [*limit, sys.executable, "-m", "locust", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._lines: list[str] = []
        # A pipe and not a file, so that a limit on file sizes meets nothing but the run directory.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.folder = folder
        self.run_dir = Path(words[words.index("--run-dir") + 1]) if "--run-dir" in words else None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return "".join(self._lines)

    @property
    def errors(self) -> list[str]:
        """What it said on its own behalf about bad input."""
        return [line.rstrip() for line in self._lines if line.startswith("ingress-swarm: error: ")]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, within_s: float = LIMIT_S) -> int:
        """Return the exit code."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end within {within_s:g} s:\n{self.said}")
        self._reader.join(timeout=5)
        return code

    def until(self, holds: Callable[[], bool], within_s: float = LIMIT_S) -> None:
        """Wait for something that comes true while it runs."""
        until_s = time.monotonic() + within_s
        while not holds():
            assert self.running, f"it ended too early:\n{self.said}"
            assert time.monotonic() < until_s, f"it did not come to that:\n{self.said}"
            time.sleep(0.05)

    def until_loaded(self, slots: int = 1) -> Path:
        """Wait until its run directory tells of so many slots; return the run directory."""
        self.until(lambda: self._slots_told() >= slots)
        found = self._find_run_dir()
        assert found is not None
        return found

    def signal(self, number: int) -> None:
        """To this process alone."""
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """As a terminal does on Ctrl-C: to the whole foreground group."""
        os.killpg(self.pid, signal.SIGINT)

    def children(self) -> list[psutil.Process]:
        """Its direct children, oldest first: the workers of --processes, and the target's helper."""
        return sorted(psutil.Process(self.pid).children(), key=lambda child: (child.create_time(), child.pid))

    def close(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _find_run_dir(self) -> Path | None:
        found = sorted((self.folder / "runs").glob("*")) if self.run_dir is None else [self.run_dir]
        return found[-1] if found else None

    def _slots_told(self) -> int:
        run_dir = self._find_run_dir()
        path = None if run_dir is None else run_dir / "slots.csv"
        if path is None or not path.exists():
            return 0
        whole = path.read_text().rpartition("\n")[0]
        return sum(int(line.split(",")[2]) for line in whole.split("\n")[1:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.decode(errors="replace"))


class Swarm:
    """Starts Locust processes; when it is left, none of them, of their workers or helpers is alive any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._started: list[Locust] = []
        self._numbers = itertools.count(1)

    @property
    def environment(self) -> dict[str, str]:
        """For a process that shall count as started here."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("INGRESS_SWARM_", "LOCUST_"))}
        return {**kept, _MARK: self._mark, "COLUMNS": "120"}

    def start(self, *words: object, profile: object = PROFILE, open_files: str | None = None) -> Locust:
        """Start `locust -f PROFILE WORDS...`, without options from the caller's environment.

        `open_files`: words for `ulimit`, which sets the soft limit (-S), the hard one (-H), or both.
        """
        started = Locust(
            ["-f", str(profile), *map(str, words)],
            self.folder,
            self.environment,
            () if open_files is None else ("sh", "-c", f'ulimit {open_files} && exec "$@"', "sh"),
        )
        self._started.append(started)
        return started

    def load(self, host: str, *words: object, profile: object = PROFILE) -> Locust:
        """Start a headless load with a run directory of its own."""
        run_dir = self.folder / f"run-{next(self._numbers)}"
        return self.start("--headless", "--only-summary", "--host", host, "--run-dir", run_dir, *words, profile=profile)

    def alive(self) -> list[str]:
        return [f"{process.pid} {' '.join(process.cmdline())}" for process in self.processes()]

    def nothing_left(self, within_s: float = 10.0) -> bool:
        """Whether all that was started has ended; helpers may take a moment to see that they are not needed."""
        until_s = time.monotonic() + within_s
        while self.alive() and time.monotonic() < until_s:
            time.sleep(0.1)
        return not self.alive()

    def processes(self) -> Iterator[psutil.Process]:
        """What any of ours has started, and lives."""
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue  # it ended while we looked, or is not ours to look at
            if ours:
                yield process

    def __enter__(self) -> Swarm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for started in self._started:
            started.close()


@pytest.fixture(name="swarm")
def swarm_fixture(tmp_path: Path) -> Iterator[Swarm]:
    with Swarm(tmp_path) as swarm:
        yield swarm


def in_processes(count: int) -> tuple[object, ...]:
    """`--processes`, with a port of its own between master and workers: Locust's usual one may be taken here."""
    port = free_port()
    return ("--processes", count, "--master-bind-port", port, "--master-port", port)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def listening(processes: Sequence[psutil.Process]) -> set[tuple[str, int]]:
    """The addresses and ports on which any of these processes takes connections."""
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
