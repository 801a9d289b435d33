"""What a change makes of a state, how replies prove it, and which changes lead from one state to another.

Arithmetic on values, the same for every target.
"""

from __future__ import annotations

from dataclasses import replace

from infra.targets.state import Evidence, Marker, Rewrite, State
from infra.targets.steps import Change, Cors, RewritePath, Scale

__all__ = ["changes_between", "evidence_for", "in_words", "state_after"]


def state_after(before: State, change: Change) -> State:
    """Return the state that `change` leads to; equal to `before` if it changes nothing."""
    match change:
        case Scale():
            return replace(before, replicas=change.replicas)
        case Cors():
            return replace(before, cors=change.on)
        case RewritePath():
            return replace(before, rewrite=change.rewrite)


def evidence_for(before: State, change: Change) -> Evidence:
    """Return what replies show once `change` is in force; nothing at all if it changes nothing."""
    after = state_after(before, change)
    if after == before:
        return Evidence(new=(), old=None)
    match change:
        case Scale() if after.replicas > before.replicas:
            return Evidence(
                new=tuple(_backends(n, n) for n in range(before.replicas + 1, after.replicas + 1)), old=None
            )
        case Scale():
            return Evidence(new=(), old=_backends(after.replicas + 1, before.replicas))
        case Cors():
            switch = ("off", "on")
            return Evidence(new=(Marker("cors", (switch[after.cors],)),), old=Marker("cors", (switch[before.cors],)))
        case RewritePath():
            return _rewrite_evidence(before.rewrite, after.rewrite)


def changes_between(present: State, wanted: State) -> list[Change]:
    """Return the changes that make `wanted` of `present`: routes first, since they cost no backend."""
    changes: list[Change] = []
    if present.cors != wanted.cors:
        changes.append(Cors(wanted.cors))
    if present.rewrite != wanted.rewrite:
        changes.append(RewritePath(wanted.rewrite))
    if present.replicas != wanted.replicas:
        changes.append(Scale(wanted.replicas))
    return changes


def in_words(before: State, change: Change) -> str:
    """Return a change as a person would note it: `replicas: 7 to 5`."""
    match change:
        case Scale():
            return f"replicas: {before.replicas} to {change.replicas}"
        case Cors():
            return f"cors: {'on' if before.cors else 'off'} to {'on' if change.on else 'off'}"
        case RewritePath():
            return f"rewrite: {_rewrite_words(before.rewrite)} to {_rewrite_words(change.rewrite)}"


def _backends(first: int, last: int) -> Marker:
    return Marker("backend", tuple(str(number) for number in range(first, last + 1)))


def _rewrite_evidence(before: Rewrite | None, after: Rewrite | None) -> Evidence:
    # Paths that only the old state lets through to a backend, and those that only the new one does. A load that goes
    # to one path meets one of each; the others never appear and prove nothing.
    old = [rule.to_path for rule in (before,) if rule] + [rule.from_path for rule in (after,) if rule]
    new = [rule.to_path for rule in (after,) if rule] or [rule.from_path for rule in (before,) if rule]
    old = [path for path in old if path not in new]
    return Evidence(new=(Marker("path_prefix", tuple(new)),), old=Marker("path_prefix", tuple(old)) if old else None)


def _rewrite_words(rewrite: Rewrite | None) -> str:
    return "off" if rewrite is None else f"{rewrite.from_path} -> {rewrite.to_path}"
