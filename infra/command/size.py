"""How large a scenario is run: as published, as the flags say, or scaled down to what a lab on one machine holds."""

from __future__ import annotations

from dataclasses import dataclass

from infra.scenarios import Scenario
from infra.targets.plan import Plan, Wait
from infra.targets.units import format_count, format_duration

__all__ = ["LAB_CONNECTIONS", "LAB_WAIT_S", "Size", "difference", "sized"]

# A size that every gateway holds on one core, the same every day, so that runs can be compared.
LAB_RATE_PER_S, LAB_CONNECTIONS, LAB_DURATION_S, LAB_WARMUP_S, LAB_WAIT_S = 1000.0, 100, 20.0, 2.0, 2.0


@dataclass(frozen=True)
class Size:
    """What flags say about the size of a scenario; None was not given."""

    rate_per_s: float | None = None
    connections: int | None = None
    duration_s: float | None = None
    warmup_s: float | None = None
    wait_scale: float | None = None


def sized(scenario: Scenario, given: Size, *, shrink: bool) -> tuple[Scenario, str]:
    """Return the scenario at the size to run, and one line that says aloud what was scaled down (empty if nothing was).

    With `shrink`, whatever was not given is the lab's size, and every wait of the plan is shortened to LAB_WAIT_S.
    """
    asked = _with(scenario, given)
    if not shrink:
        return asked, ""
    small = scenario.scaled(
        rate_per_s=min(LAB_RATE_PER_S, scenario.rate_per_s),
        connections=min(LAB_CONNECTIONS, scenario.connections),
        duration_s=min(LAB_DURATION_S, scenario.duration_s),
        warmup_s=min(LAB_WARMUP_S, scenario.warmup_s),
        longest_wait_s=LAB_WAIT_S if given.wait_scale is None else None,
    )
    result = _with(small, given)
    return result, difference(asked, result)


def _with(scenario: Scenario, given: Size) -> Scenario:
    return scenario.scaled(
        rate_per_s=given.rate_per_s,
        connections=given.connections,
        duration_s=given.duration_s,
        warmup_s=given.warmup_s,
        wait_scale=given.wait_scale,
    )


def difference(full: Scenario, small: Scenario) -> str:
    """Return one line on what was scaled down, each figure with the full one behind it; empty if nothing was."""
    figures = [
        ("", f"{format_count(small.rate_per_s)}/s", f"{format_count(full.rate_per_s)}/s"),
        ("connections ", format_count(small.connections), format_count(full.connections)),
        ("", format_duration(small.duration_s), format_duration(full.duration_s)),
        ("warm-up ", format_duration(small.warmup_s), format_duration(full.warmup_s)),
        ("waits ", _waits(small.churn), _waits(full.churn)),
    ]
    changed = [f"{word}{now} instead of {before}" for word, now, before in figures if now != before]
    return f"scaled down for the lab: {', '.join(changed)}" if changed else ""


def _waits(plan: Plan | None) -> str:
    if plan is None:
        return ""
    seen = dict.fromkeys(step.seconds for step in plan.written() if isinstance(step, Wait))
    return " and ".join(format_duration(seconds) for seconds in seen)
