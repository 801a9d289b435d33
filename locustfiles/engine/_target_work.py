"""All that a run does to its target: what it finds, the churn plan, and the putting back."""

from collections.abc import Callable
from time import monotonic as clock
from typing import Any

from locust.event import EventHook

from infra.targets import load_target
from infra.targets.plan import load_plan
from locustfiles.engine import _messages as messages
from locustfiles.engine._agent import Agent, AgentError
from locustfiles.engine._churn import AgentListener, AppliedChange, Churn
from locustfiles.engine._fleet import Fleet
from locustfiles.engine._journal import Journal
from locustfiles.engine._options import Settings


class TargetWork:
    """Opens the target of --target and, with --churn, walks the plan.

    Raises one-line errors when it cannot be opened.
    """

    def __init__(
        self, settings: Settings, hook: EventHook, fleet: Fleet, journal: Journal, cpus: frozenset[int]
    ) -> None:
        self._hook, self._fleet, self._journal = hook, fleet, journal
        self.agent: Agent | None = None
        self._churn: Churn | None = None
        if settings.target is None:
            return
        plan = load_plan(settings.churn) if settings.churn is not None else None
        spec = load_target(settings.target)
        self.agent = Agent(spec, cpus)
        try:
            gateway = self.agent.ask("facts")["facts"].get("gateway")
            original = self.agent.ask("state")["state"]
        except AgentError:
            self.agent.close()
            raise
        journal.facts.gateway = gateway
        journal.facts.target = {"spec": dict(spec), "original": original, "restored": None}
        journal.manifest()
        journal.wait()  # the original state is on disk before the first edit
        self._listener = AgentListener(self.agent)
        hook.add_listener(self._listener)
        if plan is not None:
            self._churn = Churn(plan, hook, self.agent, journal.ids, self._watch, self._unwatch, journal.change)

    @property
    def walk(self) -> Callable[[float], None] | None:
        """Walks the plan from a moment on; None without a plan."""
        return None if self._churn is None else self._churn.run

    @property
    def failed_changes(self) -> list[str]:
        """What went wrong with changes of the plan."""
        changes = [] if self._churn is None else self._churn.changes.values()
        return [f"{change.kind}: {change.error}" for change in changes if change.error is not None]

    def see(self, findings: list[list[Any]]) -> None:
        """Take in what a worker saw of the changes under watch."""
        if self._churn is not None:
            self._churn.see(findings)

    def end_watch(self, end_s: float) -> None:
        """The run ends: replies from then on say nothing about changes."""
        if self._churn is not None:
            self._churn.end_watch(end_s)

    def put_back(self) -> None:
        """Make the target as it was."""
        target = self._journal.facts.target
        if self.agent is None or target is None:
            return
        started_s = clock()
        try:
            changed = self.agent.ask("put_back")["changed"]
        except AgentError as error:
            target["restored"] = False
            where = self._journal.run_dir or "--target FILE"
            self._journal.incident(f"the target could not be put back: {error}: run 'ingress-swarm restore {where}'")
            return
        target["restored"] = True
        if changed:
            applied_s = self._journal.since_t0(clock())
            self._journal.event("restore", started_s, params={"changed": changed}, by="end of run", applied_s=applied_s)

    def close(self) -> None:
        """Write down what was seen of the changes, and end the helper process."""
        if self.agent is None:
            return
        if self._churn is not None:
            for change in self._churn.changes.values():
                self._journal.change(change)
        self._hook.remove_listener(self._listener)
        self.agent.close()

    def _watch(self, change: AppliedChange, evidence: dict[str, Any]) -> None:
        self._fleet.tell(
            messages.WATCH,
            lambda offset_s: {
                "change": change.id,
                "since_s": change.requested_s + offset_s,
                "new": evidence["new"],
                "old": evidence["old"],
            },
        )

    def _unwatch(self, change: AppliedChange) -> None:
        until_s = change.until_s if change.until_s is not None else clock()
        self._fleet.tell(messages.UNWATCH, lambda offset_s: {"change": change.id, "until_s": until_s + offset_s})
