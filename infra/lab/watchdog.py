"""Ends what a supervisor leaves behind when it is killed: `python -m infra.lab.watchdog SESSION [FOLDER]`.

It lives in a session of its own and reads a pipe whose other end only the supervisor holds. The end of that pipe is
the end of the supervisor, whatever ended it; then everything in the lab's session is killed, and the lab's folder
removed. Killing by parent-death signals would not do: they reach direct children only, and an nginx worker answers on
after kill -9 of its master.
"""

from __future__ import annotations

import shutil
import signal
import sys

from infra.lab.processes import kill_session

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Wait for the end of standard input, then clean up."""
    session, folder = int(argv[0]), argv[1] if len(argv) > 1 else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_session(session)
    if folder is not None:
        # Another process may have removed it already, in part even: nothing is left to be done about either.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
