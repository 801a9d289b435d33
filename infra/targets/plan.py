"""The churn plan: which changes a run makes to its target, in which order, with which waits between them.

A plan is data: it has no clock and touches nothing. `walk` gives its steps one by one, without end where it loops, and
whoever runs it applies the changes and sleeps through the waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.targets.located import YamlError, line_of, nearest, read_located
from infra.targets.state import Rewrite, TargetError
from infra.targets.steps import (
    MOST_REPLICAS,
    Change,
    Cors,
    Item,
    Loop,
    PlanError,
    Repeat,
    RewritePath,
    Scale,
    Step,
    Wait,
    distinct,
    from_params,
    length,
    to_data,
    walk,
    with_waits,
)
from infra.targets.units import parse_count, parse_duration_s, parse_switch

__all__ = [
    "Change",
    "Cors",
    "Item",
    "Loop",
    "Plan",
    "PlanError",
    "Repeat",
    "RewritePath",
    "Scale",
    "Step",
    "Wait",
    "from_params",
    "load_plan",
    "parse_plan",
]

MOST_STEPS = 100_000  # written out; a plan that repeats more is a mistake, and would only be found by waiting for it
_DEEPEST = 8


@dataclass(frozen=True)
class Plan:
    """A checked churn plan. `steps` are as written; `walk` gives them flattened."""

    steps: tuple[Item, ...]

    def walk(self) -> Iterator[Step]:
        """Give every change and wait in order; never ends if the plan loops."""
        return walk(self.steps)

    def written(self) -> Iterator[Step]:
        """Give every written change and wait once, however often `walk` gives it."""
        return distinct(self.steps)

    def changes(self) -> frozenset[str]:
        """Return the kinds of change in it: `scale`, `cors`, `rewrite`."""
        return frozenset(step.kind for step in self.written() if not isinstance(step, Wait))

    @property
    def min_replicas(self) -> int | None:
        """The fewest backends it asks for; None if it never scales."""
        return min((step.replicas for step in self.written() if isinstance(step, Scale)), default=None)

    @property
    def max_replicas(self) -> int | None:
        """The most backends it asks for; None if it never scales."""
        return max((step.replicas for step in self.written() if isinstance(step, Scale)), default=None)

    @property
    def rewrites(self) -> frozenset[Rewrite]:
        """Every path rewrite that it switches on."""
        return frozenset(step.rewrite for step in self.written() if isinstance(step, RewritePath) and step.rewrite)

    def scaled(self, factor: float) -> Plan:
        """Return the same plan with every wait multiplied, to the millisecond and never below one. Raises PlanError."""
        if not 0 < factor <= 1000:
            raise PlanError(f"waits: given the factor {factor}, allowed above 0 and up to 1000")
        return Plan(with_waits(self.steps, lambda seconds: max(0.001, round(seconds * factor, 3))))

    def with_waits_up_to(self, longest_s: float) -> Plan:
        """Return the same plan with every longer wait cut to `longest_s` seconds."""
        return Plan(with_waits(self.steps, lambda seconds: min(seconds, longest_s)))

    def to_data(self) -> list[object]:
        """Return it as plans are written, for a file or a manifest; `parse_plan` reads it back to an equal plan."""
        return [to_data(step) for step in self.steps]


def load_plan(path: Path) -> Plan:
    """Read a churn plan from a file: a list of steps, or a mapping with the one key `churn`. Raises PlanError."""
    try:
        data = read_located(path)
    except YamlError as error:
        raise PlanError(str(error)) from error
    if isinstance(data, Mapping):
        for key in data:
            if key != "churn":
                hint = (
                    ": this is a scenario, give it to `ingress-swarm run`"
                    if "churn" in data
                    else nearest(key, ["churn"])
                )
                raise PlanError(f"{_at(str(path), line_of(data, key))}: {key}: unknown key, allowed only churn{hint}")
        data = data.get("churn")
    return parse_plan(data, str(path))


def parse_plan(data: object, where: str) -> Plan:
    """Return the plan in a list of steps, from YAML (`located` data gives errors a line) or JSON.

    `where` names the file or flag in messages. Raises PlanError.
    """
    plan = Plan(_Parser(where).items(data, "churn", depth=0))
    written = length(plan.steps)
    if written > MOST_STEPS:
        raise PlanError(
            f"{where}: churn: given {written} steps when repeats are written out, allowed up to {MOST_STEPS}: use loop"
        )
    return plan


class _Parser:
    """Turns written steps into checked ones; holds the name of the file for messages."""

    def __init__(self, where: str) -> None:
        self._where = where

    def items(self, data: object, key: str, depth: int, line: int | None = None) -> tuple[Item, ...]:
        """Return a checked list of steps; `depth` 0 is the plan itself."""
        if not isinstance(data, list):
            raise self._error(
                line, key, f"given {_kind_of(data)}, allowed a list of steps such as [{{scale: 7}}, {{wait: 30s}}]"
            )
        if not data:
            raise self._error(
                line, key, "given an empty list, allowed at least one step; leave churn out to change nothing"
            )
        if depth > _DEEPEST:
            raise self._error(line, key, f"given steps within steps {depth} deep, allowed up to {_DEEPEST}")
        items: list[Item] = []
        for index, entry in enumerate(data):
            here = line_of(data, index) or line
            item = self._item(entry, depth, here)
            if isinstance(item, Loop) and (depth > 0 or index + 1 < len(data)):
                raise self._error(
                    here, "loop", "it never ends, so it must be the last step of the plan, and not inside another step"
                )
            items.append(item)
        return tuple(items)

    def _item(self, entry: object, depth: int, line: int | None) -> Item:
        if not isinstance(entry, Mapping) or len(entry) != 1:
            given = f"a step with {len(entry)} keys" if isinstance(entry, Mapping) else _kind_of(entry)
            raise self._error(
                line, "step", f"given {given}, allowed one key with its value, such as {{scale: 7}} or {{wait: 30s}}"
            )
        ((key, value),) = entry.items()
        line = line_of(entry, key) or line
        readers: dict[str, Callable[[object], Item]] = {
            "scale": lambda given: Scale(parse_count(given, maximum=MOST_REPLICAS)),
            "cors": lambda given: Cors(parse_switch(given)),
            "rewrite": _rewrite_of,
            "wait": lambda given: Wait(parse_duration_s(given)),
            "repeat": lambda given: self._repeat(given, depth, line),
            "loop": lambda given: self._loop(given, depth, line),
        }
        reader = readers.get(str(key))
        if reader is None:
            raise self._error(line, str(key), f"unknown step, allowed {', '.join(readers)}{nearest(key, readers)}")
        try:
            return reader(value)
        except (ValueError, TargetError) as error:
            raise self._error(line, str(key), str(error).removeprefix(f"{key}: ")) from error

    def _repeat(self, given: object, depth: int, line: int | None) -> Repeat:
        if not isinstance(given, Mapping):
            raise self._error(line, "repeat", f"given {_kind_of(given)}, allowed {{times: 3, steps: [...]}}")
        for key in given:
            if key not in ("times", "steps"):
                hint = nearest(key, ["times", "steps"])
                raise self._error(
                    line_of(given, key) or line, f"repeat: {key}", f"unknown key, allowed times and steps{hint}"
                )
        for key in ("times", "steps"):
            if key not in given:
                raise self._error(line, f"repeat: {key}", "missing, allowed {times: 3, steps: [...]}")
        try:
            times = parse_count(given["times"], maximum=10_000)
        except ValueError as error:
            raise self._error(line_of(given, "times") or line, "repeat: times", str(error)) from error
        return Repeat(times, self.items(given["steps"], "repeat: steps", depth + 1, line_of(given, "steps") or line))

    def _loop(self, given: object, depth: int, line: int | None) -> Loop:
        loop = Loop(self.items(given, "loop", depth + 1, line))
        if not any(isinstance(step, Wait) for step in distinct(loop.steps)):
            raise self._error(
                line, "loop", "given no wait in it, so it would never pause: add a step such as {wait: 10s}"
            )
        return loop

    def _error(self, line: int | None, key: str, problem: str) -> PlanError:
        return PlanError(f"{_at(self._where, line)}: {key}: {problem}")


def _rewrite_of(given: object) -> RewritePath:
    if given is False or given == "off":
        return RewritePath(None)
    if not isinstance(given, Mapping):
        raise TargetError(f"given {_kind_of(given)}, allowed {{from: /api, to: /v2}} or off")
    return RewritePath(Rewrite.from_json(given))


def _at(where: str, line: int | None) -> str:
    return where if line is None else f"{where}:{line}"


def _kind_of(data: object) -> str:
    if data is None:
        return "nothing"
    kinds: dict[type, str] = {dict: "a mapping", list: "a list"}
    return next((name for kind, name in kinds.items() if isinstance(data, kind)), repr(data)[:60])
