"""Runs `locust` commands in processes forked from this one, which has loaded it all: a start costs no second of CPU.

A line on standard input, {"words", "folder", "out"}, is one command; its exit code is the answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import locust.main
from gevent.monkey import get_original

import locustfiles.engine  # noqa: F401  # what the profile is going to load

# gevent's own fork and waitpid would make its hub in this process, and every child would inherit it.
_fork, _waitpid = get_original("os", ["fork", "waitpid"])


def serve() -> bool:
    """Return False in this process at the end of its input, True in a child that is to be `locust`."""
    for line in sys.stdin:
        order = json.loads(line)
        if not _fork():
            _become(order)
            return True
        _, status = _waitpid(-1, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return False


def _become(order: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT)
    for number, target in enumerate((nothing, out, out)):
        os.dup2(target, number)
    os.chdir(order["folder"])
    sys.argv = ["locust", *order["words"]]


if __name__ == "__main__" and serve():
    locust.main.main()
