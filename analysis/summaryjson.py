"""summary.json: the figures of runs for programs. Keys are stable within a schema, names hold units, null is absent."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from analysis.changes import ChangeCost, KindOfChange
from analysis.latency import Latency, Quantile
from analysis.rundir import RunDirError
from analysis.summary import RoleUsage, RunSummary

SUMMARY_SCHEMA = 1


def summary_json(summaries: Sequence[RunSummary]) -> dict[str, object]:
    """Return what summary.json holds."""
    return {"schema": SUMMARY_SCHEMA, "runs": [_run(summary) for summary in summaries]}


def write_summary(summaries: Sequence[RunSummary], out: Path) -> Path:
    """Write summary.json, replacing an older one, and return its path. Raises RunDirError if it cannot be written."""
    return write_text(out, json.dumps(summary_json(summaries), allow_nan=False, indent=2) + "\n")


def write_text(out: Path, text: str) -> Path:
    """Write a file that appears whole or not at all. Raises RunDirError."""
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8", errors="replace")
        fresh.replace(out)
    except OSError as error:
        raise RunDirError(f"{out}: {error.strerror}; choose a folder that can be written") from error
    return out


def _run(summary: RunSummary) -> dict[str, object]:
    accounting = summary.accounting
    return {
        "run_id": summary.run_id,
        "name": summary.name,
        "campaign": summary.campaign,
        "scenario": summary.scenario,
        "gateway": summary.gateway,
        "gateway_version": summary.gateway_version,
        "variant": summary.variant,
        "model": summary.model,
        "started_utc": summary.started_utc,
        "verdict": summary.verdict,
        "reasons": list(summary.reasons),
        "warnings": list(summary.warnings),
        "notes": list(summary.notes),
        "measured_s": summary.measured_s,
        "connections": summary.connections,
        "rate_configured_per_s": summary.rate_configured_per_s,
        "rate_asked_per_s": summary.rate_asked_per_s,
        "rate_reached_per_s": summary.rate_reached_per_s,
        "received_mb_per_s": summary.received_mb_per_s,
        "late_own_share": summary.late_own_share,
        "slots": summary.slots,
        "failed": summary.failed,
        "error_replies": summary.error_replies,
        "errors": summary.errors,
        "mostly_not_2xx": summary.mostly_not_2xx,
        "response": _latency(summary.response),
        "response_replies_only": _latency(summary.replies),
        "service": _latency(summary.service),
        "outcomes": dict(summary.by_outcome),
        "outcome_codes": [
            {"outcome": outcome, "code": code, "count": count} for (outcome, code), count in summary.by_code.items()
        ],
        "repeated_attempts": dict(summary.repeated),
        "wrk": {
            "connect": summary.wrk.connect,
            "read": summary.wrk.read,
            "write": summary.wrk.write,
            "timeout_estimate": summary.wrk.timeout_estimate,
        },
        "gateway_usage": _usage(summary.gateway_usage),
        "worker_usage": _usage(summary.worker_usage),
        "background_errors_per_s": summary.background_errors_per_s,
        "changes": [_change(cost) for cost in summary.changes],
        "changes_by_kind": [_kind(kind) for kind in summary.kinds_of_change],
        "accounting": {
            "due": accounting.due,
            "response": accounting.response,
            "failed": accounting.failed,
            "censored": accounting.censored,
            "outcomes": accounting.outcomes,
            "holds": accounting.holds,
        },
    }


def _latency(latency: Latency) -> dict[str, object]:
    """Flat, for jq: `p99_us`; those in `at_least` are lower bounds, those in `absent` have a reason."""
    figures: dict[str, Quantile] = {**latency.quantiles, "max": latency.max}
    keys = {name: f"{name.replace('.', '_')}_us" for name in figures}
    return {
        "n": latency.n,
        "lost": latency.lost,
        **{keys[name]: figure.value_us for name, figure in figures.items()},
        "at_least": [keys[name] for name, figure in figures.items() if figure.is_bound],
        "absent": {keys[name]: figure.absent for name, figure in figures.items() if figure.absent is not None},
    }


def _usage(usage: RoleUsage | None) -> dict[str, object] | None:
    if usage is None:
        return None
    return {
        "cpu_user_share_of_core": usage.cpu_user_share,
        "cpu_system_share_of_core": usage.cpu_system_share,
        "peak_rss_bytes": usage.peak_rss_bytes,
    }


def _change(cost: ChangeCost) -> dict[str, object]:
    change = cost.change
    return {
        "id": change.id,
        "kind": change.kind,
        "label": change.label,
        "requested_s": change.requested_s,
        "accepted_after_ms": change.after_request_ms(change.accepted_s),
        "applied_after_ms": change.after_request_ms(change.applied_s),
        "first_new_after_ms": change.after_request_ms(change.first_new_s),
        "last_old_after_ms": change.after_request_ms(change.last_old_s),
        "settled_after_ms": change.after_request_ms(change.settled_s),
        "observed_ms": change.observed_ms,
        "noop": change.noop,
        "error": change.error,
        "window_s": None if cost.window_s is None else list(cost.window_s),
        "failed_in_window": cost.failed,
        "error_replies_in_window": cost.error_replies,
        "errors_in_window": dict(cost.by_class),
        "errors_above_background": cost.above_background,
    }


def _kind(kind: KindOfChange) -> dict[str, object]:
    return {
        "label": kind.label,
        "n": kind.n,
        "observed": kind.observed,
        "observed_median_ms": kind.observed_median_ms,
        "observed_max_ms": kind.observed_max_ms,
        "errors": kind.errors,
        "errors_above_background": kind.errors_above_background,
    }
