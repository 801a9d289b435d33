"""The one small interface through which churn edits whatever is under load."""

from __future__ import annotations

from typing import Protocol

from infra.targets.state import Applied, Evidence, State, Usage
from infra.targets.steps import Change

__all__ = ["Target"]


class Target(Protocol):
    """Something whose state can be read, changed and put back. Every method raises TargetError with one line."""

    def facts(self) -> dict[str, object]:
        """Return what a manifest holds: `gateway` (name, version, config_digest, workers), `addresses`, `kind`."""

    def state(self) -> State:
        """Return the present state, as the target itself knows it."""

    def evidence(self, before: State, change: Change) -> Evidence:
        """Return how replies prove `change`, made in state `before`."""

    def apply(self, change: Change) -> Applied:
        """Make the change; return once the control plane confirms it."""

    def put_back(self, original: State) -> list[str]:
        """Make the target as it was; return each thing that it changed, in words. Empty if nothing differed."""

    def usage(self) -> list[Usage]:
        """Return what its parts have used since they started; may be called while `apply` runs."""

    def close(self) -> None:
        """Let go of connections; the target itself goes on."""
