"""The churn hook: walks a plan during the load, fires each change as a Locust event, and keeps what became of it.

`environment.events.churn.fire(change=..., phase="before" | "apply" | "after")`. Whoever listens to "apply" and makes
the change says so in `change.applied_by`; a change that nobody applied is an error. Locust swallows what a listener
raises, so our own catches all into `change.error`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic as clock
from typing import Any

import gevent
from locust.event import EventHook

from infra.targets.plan import Change, Plan, Wait
from locustfiles.engine._agent import Agent, AgentError


@dataclass(slots=True)
class AppliedChange:
    """One step of a plan while it is made.

    Times in seconds on this machine's monotonic clock; None: not known, or not yet.
    """

    id: int
    kind: str
    params: dict[str, Any]
    requested_s: float
    by: str = "plan"
    accepted_s: float | None = None
    applied_s: float | None = None
    applied_by: str | None = None
    noop: bool = False
    error: str | None = None
    new_markers: int = 0
    until_s: float | None = None
    first_new: list[float | None] = field(default_factory=list)  # since t0
    last_old: float | None = None  # since t0

    def see(self, first_new: list[float | None], last_old: float | None) -> None:
        """Take in what one worker saw, in seconds since t0: the earliest first and the latest last of all count."""
        if not self.first_new:
            self.first_new = [None] * len(first_new)
        for place, first in enumerate(first_new):
            known = self.first_new[place]
            if first is not None and (known is None or first < known):
                self.first_new[place] = first
        if last_old is not None and (self.last_old is None or last_old > self.last_old):
            self.last_old = last_old

    def event(self, t0_s: float) -> dict[str, Any]:
        """The line in events.jsonl.

        A scale-down and every "off" is effective with the last old reply, all else with the first new one.
        """

        def since_t0(moment_s: float | None) -> float | None:
            return None if moment_s is None else round(moment_s - t0_s, 6)

        seen = [first for first in self.first_new if first is not None]
        first_new = min(seen) if seen else None
        all_new = max(seen) if seen and len(seen) == self.new_markers else None
        if self.new_markers:
            settled = None if all_new is None else max(all_new, self.last_old if self.last_old is not None else all_new)
        else:
            settled = self.last_old
        requested = self.requested_s - t0_s
        effective = self.last_old if self.ends_something else first_new
        return {
            "id": self.id,
            "kind": self.kind,
            "params": self.params,
            "by": self.by,
            "requested_s": round(requested, 6),
            "accepted_s": since_t0(self.accepted_s),
            "applied_s": since_t0(self.applied_s),
            "first_new_s": _rounded(first_new),
            "last_old_s": _rounded(self.last_old),
            "settled_s": _rounded(settled),
            "observed_ms": None if effective is None else round((effective - requested) * 1000, 3),
            "noop": self.noop,
            "error": self.error,
        }

    @property
    def ends_something(self) -> bool:
        """Whether the change takes something away: its effect is the last reply that still shows it."""
        return (
            self.new_markers == 0
            or (self.kind == "cors" and not self.params["on"])
            or (self.kind == "rewrite" and not self.params["rewrite"])
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


class AgentListener:
    """Applies changes through the target's helper process; the listener that a run with --target has."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __call__(self, change: AppliedChange, phase: str, **_more: object) -> None:
        """Locust's event: apply, and keep whatever goes wrong in the change."""
        if phase != "apply":
            return
        change.applied_by = "target"
        try:
            answer = self._agent.ask("apply", change={"kind": change.kind, "params": change.params})
        except AgentError as error:
            change.error = str(error)
            return
        change.accepted_s, change.applied_s = answer["accepted_at_s"], answer["applied_at_s"]
        change.noop = bool(answer["noop"])


class Churn:
    """Walks a plan.

    `watch(change, evidence)` and `unwatch(change)` go to the workers, `keep(change)` to the run directory.
    """

    def __init__(
        self,
        plan: Plan,
        hook: EventHook,
        agent: Agent,
        ids: Iterator[int],
        watch: Callable[[AppliedChange, dict[str, Any]], None],
        unwatch: Callable[[AppliedChange], None],
        keep: Callable[[AppliedChange], None],
    ) -> None:
        self._plan, self._hook, self._agent, self._ids = plan, hook, agent, ids
        self._watch, self._unwatch, self._keep = watch, unwatch, keep
        self.changes: dict[int, AppliedChange] = {}
        self._present: AppliedChange | None = None

    def run(self, start_s: float) -> None:
        """Walk the plan from `start_s` on; killed at the end of the run."""
        gevent.sleep(max(0.0, start_s - clock()))
        for step in self._plan.walk():
            if isinstance(step, Wait):
                gevent.sleep(step.seconds)
            else:
                self.make(step, "plan")

    def make(self, step: Change, by: str) -> AppliedChange:
        """Make one change now, and watch for its effect until the next."""
        evidence, error = self._evidence(step)
        change = AppliedChange(
            next(self._ids), step.kind, step.params(), clock(), by, error=error, new_markers=len(evidence["new"])
        )
        self.end_watch(change.requested_s)
        self.changes[change.id] = change
        self._present = change
        self._watch(change, evidence)
        self._keep(change)
        self._hook.fire(change=change, phase="before")
        self._hook.fire(change=change, phase="apply")
        if change.applied_by is None and change.error is None:
            change.error = "nobody applied it: no listener of the churn event made this change"
        self._hook.fire(change=change, phase="after")
        self._keep(change)
        return change

    def end_watch(self, now_s: float) -> None:
        """The present change is watched until now and no longer: the next one would be taken for its effect."""
        if self._present is not None:
            self._present.until_s = now_s
            self._unwatch(self._present)
            self._present = None

    def see(self, findings: list[list[Any]]) -> None:
        """Take in what a worker saw of the changes under watch."""
        for number, first_new, last_old in findings:
            change = self.changes.get(number)
            if change is not None:
                change.see(first_new, last_old)

    def _evidence(self, step: Change) -> tuple[dict[str, Any], str | None]:
        try:
            return self._agent.ask("evidence", change={"kind": step.kind, "params": step.params()})["evidence"], None
        except AgentError as error:
            return {"new": [], "old": None}, str(error)
