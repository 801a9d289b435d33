"""The real command as a child process, and a look at what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

# The published waits of 12 s and 10 s become 0.6 s and 0.5 s.
SMALL = ["--rate", "300", "--connections", "20", "--warmup", "1s", "--wait-scale", "0.05", "--drain", "1s"]


class Started:
    """`ingress-swarm` with all its temporary files in `folder`, which is its working folder too."""

    def __init__(self, folder: Path, *words: str, under: Sequence[str] = ()) -> None:
        self.folder = folder
        self.out = folder / f"{words[0]}.out"
        environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "120"}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*under, sys.executable, "-m", "infra.command", *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.out.read_text()

    def wait(self, timeout_s: float = 60) -> int:
        return self.process.wait(timeout_s)

    def interrupt(self) -> None:
        """Do what a terminal does on Ctrl-C: signal the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def until(self, holds: Callable[[], bool], timeout_s: float = 30) -> None:
        until(lambda: holds() or self.process.poll() is not None, timeout_s)
        assert holds(), self.said


def until(holds: Callable[[], bool], timeout_s: float = 30) -> None:
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come to that"
        time.sleep(0.05)


def left_behind(folder: Path) -> list[psutil.Process]:
    """Return the processes that have anything to do with a folder: by command line, environment, or open files.

    nginx overwrites its environment with its title, but holds its logs open.
    """
    found = []
    for process in psutil.process_iter():
        try:
            traces = [*process.cmdline(), *process.environ().values(), process.cwd()]
            traces += [str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        except (psutil.Error, OSError):
            continue  # it ended while we looked
        if process.pid != os.getpid() and any(str(folder) in trace for trace in traces):
            found.append(process)
    return found


def run_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / "runs").glob("*/manifest.json"))
