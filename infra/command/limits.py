"""The file limit: how many open files a run needs, and whether this process and its children may have them."""

from __future__ import annotations

import resource

from infra.command.errors import UsageError

__all__ = ["files_needed", "raise_file_limit"]

# Standard streams, libraries, epoll sets, logs, the run directory; a gateway's listeners, health checks and reloads.
_SPARE_FILES = 512


def files_needed(connections: int, *, lab: bool) -> int:
    """Return the open files of the hungriest process: a gateway holds two sockets for each of our connections."""
    return connections * (2 if lab else 1) + _SPARE_FILES


def raise_file_limit(connections: int, *, lab: bool) -> None:
    """Let this process and its children open the files that so many connections need.

    The soft limit may be raised by anyone up to the hard one. Raises UsageError where the hard one is too low.
    """
    needed = files_needed(connections, lab=lab)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        fit = max(1, (hard - _SPARE_FILES) // (2 if lab else 1))
        raise UsageError(
            f"--connections: given {connections}, which needs {needed} open files, the limit here is {hard}: "
            f"raise it (as root: ulimit -n {needed}; for a service: LimitNOFILE={needed}) or give at most {fit}"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
