"""From runs to the one HTML page: what stands where, and how data gets into it without becoming markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from plotly.offline import get_plotlyjs

from analysis import words
from analysis.fold import Series
from analysis.latency import ENOUGH_BEYOND, QUANTILES, Latency, Quantile, Ranked
from analysis.report._axes import Figure, range_of_quantiles_ms, range_over_time_ms
from analysis.report._distribution import Curve, decades_of, distribution
from analysis.report._published import published_tables
from analysis.report._theme import Look, looks, tokens
from analysis.report._timeline import errors_top, over_time
from analysis.report._title import left_out, title
from analysis.run import Run
from analysis.summary import RunSummary

_MAX_CHANGES = 200
_MAX_FACT_CHARS = 6_000
_VARIANTS = {"static": "Static backends", "dynamic": "Backends come and go"}


@dataclass(frozen=True)
class Shown:
    """A run with everything the page needs of it. `label` tells runs of one gateway and kind apart."""

    run: Run
    summary: RunSummary
    ranked: Ranked
    series: Series
    label: str
    look: Look
    worse: float | None
    """p99 of a dynamic run over that of the static run of its gateway, where both are known."""

    @property
    def reasons(self) -> list[str]:
        """Return why this run does not count; empty if it does."""
        few = "fewer than half of its requests got a 2xx reply: these are the times of errors, not of the service"
        return [*([few] if self.summary.mostly_not_2xx else []), *self.summary.reasons] or (
            [] if self.summary.verdict == "valid" else ["no reason is on record"]
        )

    @property
    def times(self) -> list[tuple[str, Latency]]:
        """The three kinds of time, in the order of the table."""
        one = self.summary
        return [
            ("response, all slots", one.response),
            ("response, replies only", one.replies),
            ("service", one.service),
        ]


def page(runs: Sequence[Run]) -> str:
    """Return the page. Raises RunDirError for a run that cannot be read."""
    shown = _shown(_in_order(runs))
    summaries = [one.summary for one in shown]
    figures: dict[str, Figure] = {}
    panels = _panels(shown, figures)
    range_ms, top = range_over_time_ms([one.series for one in shown]), errors_top([one.series for one in shown])
    for number, one in enumerate(shown):
        figures[f"time{number}"] = over_time(
            one.series, one.run.changes, one.run.folded.window, one.look, range_ms, top
        )
    data = _for_script({"figures": figures, "tokens": tokens()})
    scripts = {"plotly": get_plotlyjs(), "page": _asset("page.js")}
    return (
        _environment()
        .from_string(_asset("page.html"))
        .render(
            css=_asset("page.css"),
            scripts=scripts,
            policy=_policy(scripts.values()),
            data=data,
            title=title(summaries),
            left_out=left_out(summaries),
            shown=shown,
            bad=[one for one in shown if one.reasons],
            legend=_legend(shown),
            panels=panels,
            variants=_VARIANTS,
            published=published_tables([(one.summary, one.ranked) for one in shown]),
            quantiles=list(QUANTILES),
            enough=ENOUGH_BEYOND,
            max_changes=_MAX_CHANGES,
            facts={one.label + " " + one.summary.variant: _facts(one.run) for one in shown},
            has_changes=any(one.summary.changes for one in shown),
            w=words,
        )
    )


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Gateways as they first appear, static before dynamic; repeats stay in the order given."""
    gateways = list(dict.fromkeys(run.manifest.gateway for run in runs))
    variants = list(_VARIANTS)
    return sorted(runs, key=lambda run: (gateways.index(run.manifest.gateway), variants.index(run.manifest.variant)))


def _shown(runs: Sequence[Run]) -> list[Shown]:
    summaries = [run.summary() for run in runs]
    look = looks([one.gateway for one in summaries])
    alike = Counter((one.gateway, one.variant) for one in summaries)
    nth: Counter[tuple[str, str]] = Counter()
    static_p99 = {one.gateway: one.response.quantiles["p99"] for one in summaries if one.variant == "static"}
    result = []
    for run, one in zip(runs, summaries, strict=True):
        key = (one.gateway, one.variant)
        nth[key] += 1
        name = words.gateway_name(one.gateway)
        measured = run.folded.measured
        result.append(
            Shown(
                run=run,
                summary=one,
                ranked=Ranked(measured["response"], measured["failed"] + measured["censored"]),
                series=run.folded.series,
                label=f"{name} #{nth[key]}" if alike[key] > 1 else name,
                look=look[one.gateway],
                worse=_ratio(one.response.quantiles["p99"], static_p99.get(one.gateway))
                if one.variant == "dynamic"
                else None,
            )
        )
    return result


def _ratio(after: Quantile, before: Quantile | None) -> float | None:
    if before is None or not before.value_us or after.value_us is None:
        return None
    return after.value_us / before.value_us


def _panels(shown: Sequence[Shown], figures: dict[str, Figure]) -> list[dict[str, str]]:
    """Small multiples, static beside dynamic; the baseline has no dynamic form and stands in both."""
    ranked = [one.ranked for one in shown]
    range_ms, decades = range_of_quantiles_ms(ranked), decades_of(ranked)
    panels = []
    for variant, heading in _VARIANTS.items():
        own = [one for one in shown if one.summary.variant == variant]
        if not own:
            continue
        missing = {"direct"} - {one.summary.gateway for one in own}
        baseline = [one for one in shown if one.summary.gateway in missing]
        curves = [Curve(one.label, one.look, one.ranked, counts=not one.reasons) for one in own]
        curves += [Curve(f"{one.label} (static)", one.look, one.ranked, counts=not one.reasons) for one in baseline]
        figures[f"distribution-{variant}"] = distribution(curves, range_ms, decades)
        panels.append({"id": f"distribution-{variant}", "heading": heading})
    return panels


def _legend(shown: Sequence[Shown]) -> list[dict[str, str]]:
    entries: dict[str, dict[str, str]] = {}
    for one in shown:
        entry = {"token": one.look.token, "dash": one.look.dash, "marker": one.look.marker}
        entries.setdefault(words.gateway_name(one.summary.gateway), entry)
    return [{"name": name, **entry} for name, entry in entries.items()]


def _facts(run: Run) -> list[tuple[str, str]]:
    """Return the manifest as rows of text, long values cut."""
    facts = {key: value for key, value in run.manifest.facts.items() if value not in (None, [], {}, "")}
    rows = [("folder", run.path.name)]
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rows.append((key[:80], text[:_MAX_FACT_CHARS]))
    return rows[:80]


def _environment() -> jinja2.Environment:
    return jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)


def _asset(name: str) -> str:
    return resources.files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def _for_script(data: Mapping[str, object]) -> str:
    """Return JSON that cannot end the script element it stands in, nor start a comment there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: Iterable[str]) -> str:
    """Return a content security policy: exactly our scripts run, and nothing is ever fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
