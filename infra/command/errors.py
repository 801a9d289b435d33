"""How a command ends when it cannot do what was asked: one line on stderr and an exit code."""

from __future__ import annotations

__all__ = [
    "FAILED",
    "FINE",
    "GATE_FAILED",
    "INTERRUPTED",
    "INVALID_RUN",
    "USAGE",
    "CommandError",
    "UsageError",
    "worst",
]

FINE, FAILED, USAGE, GATE_FAILED, INVALID_RUN, INTERRUPTED = 0, 1, 2, 3, 4, 130

_RANKING = (INVALID_RUN, GATE_FAILED, FAILED, USAGE, INTERRUPTED)


class CommandError(Exception):
    """The command failed; the message is one line: what happened and what to do."""

    code = FAILED


class UsageError(CommandError):
    """What was given cannot be used; nothing was started."""

    code = USAGE


def worst(codes: list[int]) -> int:
    """Return the exit code of several runs together: 4 beats 3 beats 1; 0 only if all are."""
    return next((code for code in _RANKING if code in codes), max(codes, default=FINE))
