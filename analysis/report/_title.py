"""The answer of a report in one sentence, computed from its runs, and silent about what they cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.summary import RunSummary
from analysis.words import count, gateway_name, listed, plural, quantile_ms, rate

_QUANTILE = "p99"
_SAME = 1.1


@dataclass(frozen=True)
class Pair:
    """A static and a dynamic run of one gateway under the same load; several of a kind stand in order of time."""

    gateway: str
    static: tuple[RunSummary, ...]
    dynamic: tuple[RunSummary, ...]


def pairs(summaries: Sequence[RunSummary]) -> list[Pair]:
    """Group runs by gateway, in order of first appearance."""
    gateways = dict.fromkeys(summary.gateway for summary in summaries)
    return [
        Pair(
            gateway,
            tuple(one for one in summaries if one.gateway == gateway and one.variant == "static"),
            tuple(one for one in summaries if one.gateway == gateway and one.variant == "dynamic"),
        )
        for gateway in gateways
    ]


def title(summaries: Sequence[RunSummary]) -> str:
    """Return the headline: what churn cost where static and dynamic runs of one rate can be compared, else what ran."""
    valid = [pair for pair in pairs(summaries) if pair.static and pair.dynamic and _all_valid(pair)]
    rates = {one.rate_configured_per_s for pair in valid for one in (*pair.static, *pair.dynamic)}
    if not valid or len(rates) != 1:
        return _plain(summaries)
    return f"Endpoint churn at {rate(rates.pop())} requests/s: {_errors(valid)}; {_latency(valid)}"


def left_out(summaries: Sequence[RunSummary]) -> str:
    """Say which gateways the headline leaves out because a run of theirs does not count; empty if none."""
    names = [gateway_name(pair.gateway) for pair in pairs(summaries) if not _all_valid(pair)]
    if all(one.verdict != "valid" or one.mostly_not_2xx for one in summaries):
        return "There is no answer: none of these runs counts."
    return f"The headline leaves out {listed(names)}: see the notice below." if names else ""


def _all_valid(pair: Pair) -> bool:
    return all(one.verdict == "valid" and not one.mostly_not_2xx for one in (*pair.static, *pair.dynamic))


def _errors(valid: Sequence[Pair]) -> str:
    """Errors of the dynamic runs; more than one run of a gateway adds up."""
    totals = {gateway_name(pair.gateway): sum(one.errors for one in pair.dynamic) for pair in valid}
    failing = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
    clean = [name for name in totals if not totals[name]]
    if not failing:
        return "no request failed" if len(totals) > 1 else f"no request failed on {clean[0]}"
    first, *rest = failing
    parts = [
        f"{plural(totals[first], 'request')} failed on {first}",
        *(f"{count(totals[name])} on {name}" for name in rest),
    ]
    if clean:
        parts.append(f"none on {listed(clean)}")
    return ", ".join(parts)


def _latency(valid: Sequence[Pair]) -> str:
    """Return how the p99 of the gateway that suffered most moved, or that none moved."""
    moved: list[tuple[float, str]] = []
    for pair in valid:
        before, after = (runs[-1].response.quantiles[_QUANTILE] for runs in (pair.static, pair.dynamic))
        if not before.value_us or after.value_us is None or before.is_bound:
            return (
                f"too few requests for a {_QUANTILE}" if len(valid) == 1 else f"too few requests for every {_QUANTILE}"
            )
        text = f"from {quantile_ms(before)} to {quantile_ms(after)} ms"
        moved.append((after.value_us / before.value_us, f"{_QUANTILE} rose {text} on {gateway_name(pair.gateway)}"))
    ratio, text = max(moved)
    if ratio < _SAME:
        return f"{_QUANTILE} rose by less than 10 %{' on all' if len(moved) > 1 else ''}"
    return text if len(moved) == 1 else f"{text}, the most"


def _plain(summaries: Sequence[RunSummary]) -> str:
    """Return what ran, and what came out of it where every run counts."""
    names = listed(list(dict.fromkeys(gateway_name(one.gateway) for one in summaries)))
    rates = {one.rate_configured_per_s for one in summaries}
    what = f"{listed(list(dict.fromkeys(one.name for one in summaries)))}: {names}"
    if len(rates) == 1 and None not in rates:
        what += f" at {rate(next(iter(rates)))} requests/s"
    if any(one.verdict != "valid" or one.mostly_not_2xx for one in summaries):
        return what
    errors = sum(one.errors for one in summaries)
    failed = f"{plural(errors, 'request')} failed" if errors else "no request failed"
    slowest = max(summaries, key=lambda one: one.response.quantiles[_QUANTILE].value_us or 0)
    if slowest.response.quantiles[_QUANTILE].value_us is None:
        return f"{what}: {failed}"
    figure = f"{quantile_ms(slowest.response.quantiles[_QUANTILE])} ms"
    if len(summaries) == 1:
        return f"{what}: {_QUANTILE} {figure}, {failed}"
    return f"{what}: {_QUANTILE} at most {figure} ({gateway_name(slowest.gateway)}), {failed}"
