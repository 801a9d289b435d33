"""What every nginx configuration of the lab has in common."""

from __future__ import annotations

import grp
import os
import pwd

__all__ = ["user_directive", "worker_connections"]

# Tuned so in the first study; and with one worker this is the least of what it costs.
_WORKER_CONNECTIONS = 10_000


def user_directive() -> str:
    """Return the line that keeps workers of a root's nginx with root: the lab's folder is open to its owner only.

    Without root nginx cannot change its user, and would warn about the line.
    """
    if os.geteuid() != 0:
        return ""
    return f"user {pwd.getpwuid(0).pw_name} {grp.getgrgid(os.getegid()).gr_name};"


def worker_connections(needed: int, open_files: int) -> int:
    """Return how many connections a worker may hold: the study's figure, more if needed, never above the file limit."""
    return min(max(_WORKER_CONNECTIONS, needed), open_files)
