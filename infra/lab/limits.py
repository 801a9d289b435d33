"""Limits of open files: how many a lab needs, and getting them."""

from __future__ import annotations

import resource

from infra.lab.spec import LabError

__all__ = ["backend_connections", "files_needed", "raise_open_files"]

# Listeners, logs, admin sockets, health checks of all HAProxy slots, and both generations during a reload.
_SPARE_FILES = 600
# A limit of a million costs HAProxy and Go tables of a million entries; nobody needs more than this.
_MOST_FILES = 1 << 18


def files_needed(connections: int) -> int:
    """Return how many open files a gateway needs: each client connection may have one of its own to a backend."""
    return 2 * connections + _SPARE_FILES


def backend_connections(connections: int) -> int:
    """Return how many connections a backend must hold: all of them, when it is the only one, and old idle ones."""
    return connections + _SPARE_FILES


def raise_open_files(connections: int) -> int:
    """Raise this process's limit as far as it may and is useful; return it. Children inherit it.

    Raises LabError with the number needed if the hard limit is too low.
    """
    needed = files_needed(connections)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if highest < needed:
        raise LabError(
            f"connections: {connections} need {needed} open files, the hard limit is {hard}: raise it (as root: "
            f"ulimit -Hn {needed}) or ask for {max(0, highest - _SPARE_FILES) // 2} connections or fewer"
        )
    limit = max(soft, highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
