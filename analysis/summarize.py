"""From what was added up to the figures of a run: pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.changes import Change, cost_of_changes, is_error, kinds_of_change
from analysis.fold import Folded, Usage
from analysis.latency import Histogram, Ranked
from analysis.manifest import Manifest
from analysis.rundir import CENSORED, FAILURES, REPLIES
from analysis.summary import Accounting, RoleUsage, RunSummary, Verdict, WrkCounts

_WRK_TIMEOUT_US = 2_000_000
_CONNECT = ("refused", "unreachable", "connect_timeout", "tls")
_READ = ("reset", "truncated", "bad_reply")


def summarize(manifest: Manifest, folded: Folded, changes: Sequence[Change], notes: Sequence[str]) -> RunSummary:
    """Return the figures of a run."""
    accounting = _accounting(manifest, folded)
    verdict, reasons = _verdict(manifest, accounting)
    measured_s = folded.window[1] - folded.window[0]
    by_outcome = _in_order(folded.outcomes)
    costs, background_per_s = cost_of_changes(
        changes, _errors_over_time(folded), folded.series.first_second, folded.window
    )
    response, service = folded.measured["response"], folded.measured["service"]
    nothing = Histogram.empty()
    return RunSummary(
        run_id=manifest.run_id,
        name=manifest.name,
        campaign=manifest.campaign,
        scenario=manifest.scenario,
        gateway=manifest.gateway,
        gateway_version=manifest.gateway_version,
        variant=manifest.variant,
        model=manifest.model,
        started_utc=manifest.started_utc,
        verdict=verdict,
        reasons=reasons,
        warnings=_warnings(manifest, folded),
        notes=tuple(notes),
        measured_s=measured_s,
        connections=manifest.connections,
        rate_configured_per_s=manifest.rate_per_s,
        rate_asked_per_s=_per(folded.due_in_window, measured_s),
        rate_reached_per_s=_per(folded.replies_in_window, measured_s),
        received_mb_per_s=_per(folded.bytes_in_window / 1e6, measured_s),
        late_own_share=_per(folded.late_own_in_window, folded.due_in_window),
        response=Ranked(response, folded.measured["failed"] + folded.measured["censored"]).latency(),
        replies=Ranked(response, nothing).latency(),
        service=Ranked(service, nothing).latency(),
        slots=sum(by_outcome.values()),
        by_outcome=by_outcome,
        by_code=folded.outcomes,
        repeated=folded.repeated,
        wrk=_wrk(folded, by_outcome),
        gateway_usage=_role_usage(folded.usage.get("gateway")),
        worker_usage=_role_usage(folded.usage.get("worker")),
        changes=tuple(costs),
        kinds_of_change=kinds_of_change(costs),
        background_errors_per_s=background_per_s,
        accounting=accounting,
        published=manifest.published,
    )


def _accounting(manifest: Manifest, folded: Folded) -> Accounting:
    response, failed, censored = (folded.ended[metric] for metric in ("response", "failed", "censored"))
    by_outcome = folded.outcomes_all
    groups = [sum(by_outcome.get(name, 0) for name in group) for group in (REPLIES, FAILURES, CENSORED)]
    holds = folded.due == response + failed + censored and groups == [response, failed, censored]
    if manifest.accounting is not None:
        own = (folded.due, response, failed, censored)
        holds = holds and own == tuple(manifest.accounting[key] for key in ("due", "response", "failed", "censored"))
    return Accounting(
        due=folded.due,
        response=response,
        failed=failed,
        censored=censored,
        outcomes=sum(groups),
        holds=holds if manifest.finished else None,
    )


def _verdict(manifest: Manifest, accounting: Accounting) -> tuple[Verdict, tuple[str, ...]]:
    reasons = list(manifest.invalid_reasons)
    if not manifest.finished:
        reasons.append(f"the run has no end on record (state: {manifest.state}): it was killed, or is still running")
        return "incomplete", tuple(reasons)
    if accounting.holds is False:
        reasons.append(
            f"slots do not add up: {accounting.due:,} were due, files hold {accounting.response:,} replies, "
            f"{accounting.failed:,} failed and {accounting.censored:,} without an end, "
            f"and {accounting.outcomes:,} outcomes"
        )
        if manifest.accounting is not None:
            counted = ", ".join(f"{key} {count:,}" for key, count in manifest.accounting.items())
            reasons.append(f"the run itself counted {counted}")
    if manifest.valid is None:
        reasons.append("the run did not record whether it is valid")
    return ("invalid" if reasons or not manifest.valid else "valid"), tuple(reasons)


def _warnings(manifest: Manifest, folded: Folded) -> tuple[str, ...]:
    warnings = list(manifest.warnings)
    if manifest.shared_core:
        warnings.append("load generator and gateway shared a core: latencies are not comparable")
    if folded.clipped:
        warnings.append(f"{folded.clipped:,} samples were longer than an hour and are counted as one hour")
    return tuple(warnings)


def _errors_over_time(folded: Folded) -> dict[str, NDArray[np.int64]]:
    """Errors per second and class; unsent ones where they were due, not at the end where they were given up."""
    series = folded.series
    errors = {name: counts for name, counts in series.by_class.items() if is_error(name) and name not in CENSORED}
    return {**errors, "unsent": series.unsent}


def _in_order(outcomes: Mapping[tuple[str, str], int]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for outcome in (*REPLIES, *FAILURES, *CENSORED):
        count = sum(count for (name, _), count in outcomes.items() if name == outcome)
        if count:
            totals[outcome] = count
    return totals


def _wrk(folded: Folded, by_outcome: Mapping[str, int]) -> WrkCounts:
    def attempts(*names: str) -> int:
        return sum(by_outcome.get(name, 0) + folded.repeated.get(name, 0) for name in names)

    # Failed and censored histograms hold ages since the intended start: the count over 2 s there is an upper limit.
    late_failures = min(by_outcome.get("read_timeout", 0), folded.measured["failed"].above(_WRK_TIMEOUT_US))
    late_unfinished = min(by_outcome.get("unfinished", 0), folded.measured["censored"].above(_WRK_TIMEOUT_US))
    return WrkCounts(
        connect=attempts(*_CONNECT),
        read=attempts(*_READ),
        write=attempts("write"),
        timeout_estimate=folded.measured["service"].above(_WRK_TIMEOUT_US) + late_failures + late_unfinished,
    )


def _role_usage(usage: Usage | None) -> RoleUsage | None:
    if usage is None:
        return None
    return RoleUsage(usage.cpu_user_s / usage.seconds, usage.cpu_system_s / usage.seconds, usage.peak_rss_bytes)


def _per(amount: float, of: int) -> float | None:
    return amount / of if of > 0 else None
