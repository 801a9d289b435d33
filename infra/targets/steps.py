"""The steps a churn plan is made of: changes, waits, repeats and loops, and how to go through them.

A step is data: it has no clock and touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from infra.targets.state import Rewrite, TargetError
from infra.targets.units import format_duration, parse_count, parse_switch

__all__ = [
    "MOST_REPLICAS",
    "Change",
    "Cors",
    "Item",
    "Loop",
    "PlanError",
    "Repeat",
    "RewritePath",
    "Scale",
    "Step",
    "Wait",
    "distinct",
    "from_params",
    "length",
    "to_data",
    "walk",
    "with_waits",
]

MOST_REPLICAS = 1000


class PlanError(Exception):
    """A text is no churn plan; the message is one line: file, line, key, what was given, what is allowed."""


@dataclass(frozen=True)
class Scale:
    """Let this many backends serve."""

    replicas: int
    kind: ClassVar[str] = "scale"

    def params(self) -> dict[str, object]:
        """Return what an event keeps of it."""
        return {"replicas": self.replicas}


@dataclass(frozen=True)
class Cors:
    """Let the gateway add CORS headers to replies, or stop it."""

    on: bool
    kind: ClassVar[str] = "cors"

    def params(self) -> dict[str, object]:
        """Return what an event keeps of it."""
        return {"on": self.on}


@dataclass(frozen=True)
class RewritePath:
    """Let the gateway rewrite a path prefix; None ends any rewriting."""

    rewrite: Rewrite | None
    kind: ClassVar[str] = "rewrite"

    def params(self) -> dict[str, object]:
        """Return what an event keeps of it."""
        return {"rewrite": None if self.rewrite is None else self.rewrite.to_json()}


@dataclass(frozen=True)
class Wait:
    """Change nothing for this many seconds."""

    seconds: float


Change = Scale | Cors | RewritePath
Step = Change | Wait


@dataclass(frozen=True)
class Repeat:
    """Walk the same steps a number of times."""

    times: int
    steps: tuple[Item, ...]


@dataclass(frozen=True)
class Loop:
    """Walk the same steps until the run ends; the last item of a plan, with a wait in it."""

    steps: tuple[Item, ...]


Item = Step | Repeat | Loop


def from_params(kind: str, params: Mapping[str, object]) -> Change:
    """Return the change that an event or a request describes; raise PlanError if it is none."""
    try:
        if kind == "scale" and set(params) == {"replicas"}:
            return Scale(parse_count(params["replicas"], maximum=MOST_REPLICAS))
        if kind == "cors" and set(params) == {"on"}:
            return Cors(parse_switch(params["on"]))
        if kind == "rewrite" and set(params) == {"rewrite"}:
            rewrite = params["rewrite"]
            return RewritePath(None if rewrite is None else Rewrite.from_json(rewrite))
    except (ValueError, TargetError) as error:
        raise PlanError(f"{kind}: {error}") from error
    raise PlanError(
        f"change: given {kind} with {dict(params)}, allowed scale, cors or rewrite with their own parameters"
    )


def walk(steps: tuple[Item, ...]) -> Iterator[Step]:
    """Give every change and wait in order, without end where the steps loop."""
    for step in steps:
        if isinstance(step, Loop):
            while True:
                yield from walk(step.steps)
        elif isinstance(step, Repeat):
            for _ in range(step.times):
                yield from walk(step.steps)
        else:
            yield step


def distinct(steps: tuple[Item, ...]) -> Iterator[Step]:
    """Give each written change and wait once, however often it is walked."""
    for step in steps:
        if isinstance(step, Loop | Repeat):
            yield from distinct(step.steps)
        else:
            yield step


def length(steps: tuple[Item, ...]) -> int:
    """Return how many steps one walk has, a loop counted once."""
    total = 0
    for step in steps:
        if isinstance(step, Loop | Repeat):
            total += (step.times if isinstance(step, Repeat) else 1) * length(step.steps)
        else:
            total += 1
    return total


def with_waits(steps: tuple[Item, ...], seconds_of: Callable[[float], float]) -> tuple[Item, ...]:
    """Return the same steps with every wait of s seconds replaced by one of `seconds_of(s)`."""
    changed: list[Item] = []
    for step in steps:
        if isinstance(step, Wait):
            changed.append(Wait(seconds_of(step.seconds)))
        elif isinstance(step, Loop | Repeat):
            changed.append(replace(step, steps=with_waits(step.steps, seconds_of)))
        else:
            changed.append(step)
    return tuple(changed)


def to_data(step: Item) -> dict[str, object]:
    """Return a step as plans spell it."""
    match step:
        case Scale(replicas):
            return {"scale": replicas}
        case Cors(on):
            return {"cors": "on" if on else "off"}
        case RewritePath(rewrite):
            return {"rewrite": rewrite.to_json() if rewrite else "off"}
        case Wait(seconds):
            return {"wait": format_duration(seconds)}
        case Repeat(times, steps):
            return {"repeat": {"times": times, "steps": [to_data(inner) for inner in steps]}}
        case Loop(steps):
            return {"loop": [to_data(inner) for inner in steps]}
