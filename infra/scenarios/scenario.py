"""What a scenario is: a profile with its size, path, churn plan and, for the built-in ones, the published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infra.targets.plan import Plan
from infra.targets.units import format_duration, format_rate

__all__ = ["Options", "Published", "Scenario", "ScenarioError"]


class ScenarioError(Exception):
    """There is no such scenario, or a text is none; the message is one line that says what to do."""


@dataclass(frozen=True)
class Options:
    """What a scenario sets beyond its size: the same words as the flags of a profile.

    `timeout` is a duration, `none`, or None where the profile's default holds.
    """

    method: str = "GET"
    headers: tuple[str, ...] = ()
    timeout: str | None = None
    wrk2: bool = False

    def to_data(self) -> dict[str, object]:
        """Return what differs from the defaults, as scenarios spell it."""
        data: dict[str, object] = {}
        if self.method != "GET":
            data["method"] = self.method
        if self.headers:
            data["header"] = list(self.headers)
        if self.timeout is not None:
            data["timeout"] = self.timeout
        if self.wrk2:
            data["wrk2"] = True
        return data


@dataclass(frozen=True)
class Published:
    """The figures that a study published, shown beside ours and never as ours; durations are text such as `32s`."""

    source: str
    note: str
    rows: tuple[Mapping[str, object], ...]

    def to_data(self) -> dict[str, object]:
        """Return it as scenarios and manifests hold it."""
        note = {"note": self.note} if self.note else {}
        return {"source": self.source, **note, "rows": [dict(row) for row in self.rows]}


@dataclass(frozen=True)
class Scenario:
    """A checked scenario. `built_in` ones carry the size that a study published."""

    name: str
    about: str
    profile: str
    rate_per_s: float
    connections: int
    duration_s: float
    warmup_s: float
    scheme: str
    path: str
    options: Options = field(default_factory=Options)
    churn: Plan | None = None
    gates: tuple[str, ...] = ()
    published: Published | None = None
    built_in: bool = False

    def scaled(
        self,
        *,
        rate_per_s: float | None = None,
        connections: int | None = None,
        duration_s: float | None = None,
        warmup_s: float | None = None,
        wait_scale: float | None = None,
        longest_wait_s: float | None = None,
    ) -> Scenario:
        """Return the same scenario at another size; None keeps what it has.

        `wait_scale` multiplies every wait of its plan, then `longest_wait_s` cuts the longer ones.
        """
        plan = self.churn
        if plan is not None and wait_scale is not None:
            plan = plan.scaled(wait_scale)
        if plan is not None and longest_wait_s is not None:
            plan = plan.with_waits_up_to(longest_wait_s)
        return replace(
            self,
            rate_per_s=self.rate_per_s if rate_per_s is None else rate_per_s,
            connections=self.connections if connections is None else connections,
            duration_s=self.duration_s if duration_s is None else duration_s,
            warmup_s=self.warmup_s if warmup_s is None else warmup_s,
            churn=plan,
        )

    def without_churn(self) -> Scenario:
        """Return the same load on a target that stays as it is."""
        return replace(self, churn=None)

    def to_data(self) -> dict[str, object]:
        """Return it as scenario files spell it; `parse_scenario` reads it back to an equal scenario."""
        data: dict[str, object] = {
            "name": self.name,
            "about": self.about,
            "profile": self.profile,
            "rate": format_rate(self.rate_per_s),
            "connections": self.connections,
            "duration": format_duration(self.duration_s),
            "warmup": format_duration(self.warmup_s),
            "scheme": self.scheme,
            "path": self.path,
        }
        if options := self.options.to_data():
            data["options"] = options
        if self.churn is not None:
            data["churn"] = self.churn.to_data()
        if self.gates:
            data["gates"] = list(self.gates)
        if self.published is not None:
            data["published"] = self.published.to_data()
        return data
