"""Run directories made up from a seed, with the shape of real ones: for tests, for looking at a report, for timing.

    python tests/analysis/synthetic.py FOLDER            a campaign: direct and four gateways, static and dynamic
    python tests/analysis/synthetic.py FOLDER --hour     one run of an hour at 30,000/s

Slots, outcomes and histograms agree to the last slot.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.rundir import HDR_SIZE, RunWriter, hdr_value

NAME = "GET /"
DRAIN_S = 1


@dataclass(frozen=True)
class Character:
    """How a made-up gateway behaves. A change makes `disturbed` of the next second's slots slow by `stall_ms`."""

    median_us: float
    spread: float
    cpu_user_s: float
    disturbed: float = 0.0
    stall_ms: float = 1.0
    failures_per_change: float = 0.0
    failure: tuple[str, str] = ("reset", "ECONNRESET")
    observed_ms: float = 5.0
    versions: str = "1.0"


CHARACTERS = {
    "direct": Character(180, 0.25, 0.0),
    "nginx": Character(420, 0.32, 0.31, 0.08, 40, 9, ("http_5xx", "502"), 30, "1.31.3"),
    "haproxy": Character(390, 0.30, 0.27, 0.01, 4, 0, observed_ms=6, versions="2.8.25"),
    "envoy": Character(560, 0.34, 0.38, 0.015, 9, 2, ("http_5xx", "503"), 22, "1.40.0"),
    "traefik": Character(780, 0.45, 0.52, 0.05, 25, 30, ("http_5xx", "502"), 110, "3.7.15"),
}


@dataclass
class Plan:
    """What to make up. `changes_at_s` alternate between 7 and 5 replicas."""

    gateway: str = "nginx"
    rate_per_s: int = 3000
    warmup_s: int = 2
    measured_s: int = 10
    connections: int = 100
    changes_at_s: tuple[float, ...] = ()
    seed: int = 1
    workers: int = 1
    name: str = "nginx-2020"
    campaign: str | None = None
    manifest: dict[str, object] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        return "dynamic" if self.changes_at_s else "static"


def write_run(path: Path, plan: Plan) -> Path:
    """Write the run and return its folder."""
    rng = np.random.default_rng(plan.seed)
    shape = CHARACTERS[plan.gateway]
    manifest = _manifest(plan, path.name)
    writer = RunWriter.create(path, {**manifest, "state": "running", "valid": None, "accounting": None})
    totals = {"due": 0, "response": 0, "failed": 0, "censored": 0}
    calm = _lognormal(shape.median_us, shape.spread, tail=0.002)
    service = _lognormal(shape.median_us * 0.93, shape.spread, tail=0.0015)
    first_byte = _lognormal(shape.median_us * 0.9, shape.spread, tail=0.0015)
    stalled = _lognormal(shape.stall_ms * 1000, 0.5, tail=0.0)
    with writer:
        for second in range(plan.warmup_s + plan.measured_s):
            due = plan.rate_per_s
            shaken = sum(1 for at_s in plan.changes_at_s if second <= at_s < second + 1)
            failed = int(rng.poisson(shape.failures_per_change * shaken))
            is_reply = shape.failure[0].startswith("http_")
            replies = due if is_reply else due - failed
            slow = min(replies, round(due * shape.disturbed * shaken))
            for part in range(plan.workers):
                share = _share(replies - slow, part, plan.workers)
                _samples(writer, second, "response", rng.multinomial(share, calm))
                _samples(writer, second, "service", rng.multinomial(share, service))
                _samples(writer, second, "first_byte", rng.multinomial(share, first_byte))
            if slow:
                _samples(writer, second, "response", rng.multinomial(slow, stalled))
                _samples(writer, second, "service", rng.multinomial(slow, stalled))
            if failed and not is_reply:
                _samples(writer, second, "failed", rng.multinomial(failed, stalled))
            _rows(writer, plan, rng, second, due, failed)
            totals["due"] += due
            totals["response"] += replies
            totals["failed"] += due - replies
        for event in _events(plan, rng):
            writer.event(event)
        writer.manifest({**manifest, "accounting": totals, **plan.manifest})
    return path


def write_campaign(folder: Path, *, rate_per_s: int = 3000, measured_s: int = 12) -> list[Path]:
    """Write direct (static only) and four gateways, static and dynamic."""
    runs = []
    changes = tuple(4.2 + 1.9 * k for k in range(int((measured_s - 3) / 1.9)))
    for number, gateway in enumerate(CHARACTERS):
        for variant in ("static", "dynamic"):
            if gateway == "direct" and variant == "dynamic":
                continue
            plan = Plan(
                gateway=gateway,
                rate_per_s=rate_per_s,
                measured_s=measured_s,
                changes_at_s=changes if variant == "dynamic" else (),
                seed=10 * number + len(variant),
                name=f"nginx-2020-{variant}",
                campaign="demo-20261130T120000Z",
            )
            runs.append(
                write_run(folder / f"20261130T1200{number:02d}Z-nginx-2020-{variant}-{gateway}-0a{number}f", plan)
            )
    return runs


HOSTILE = "</script><img src=x onerror=\"document.documentElement.dataset.owned='1'\">{{7*7}}'\"&<b>"


def write_hostile_run(folder: Path) -> Path:
    """Write a run in which every text that can come from outside is markup."""
    with RunWriter.create(folder, {"schema": 1, "state": "running"}) as run:
        for second in range(3):
            run.histogram(second, HOSTILE, "response", [100, 200], [30, 30])
            run.histogram(second, HOSTILE, "failed", [100], [1])
            run.slots(second, HOSTILE, 61, 61, 0, 0, 0)
            run.outcome(second, HOSTILE, "ok", HOSTILE, 60, 0, 0)
            run.outcome(second, HOSTILE, "tls", HOSTILE, 1, 0, 0)
            run.replica(second, HOSTILE, HOSTILE, 60)
            run.resource(second, "gateway", HOSTILE, 0.1, 0.1, 1, HOSTILE)
        run.event({"id": HOSTILE, "kind": HOSTILE, "params": {HOSTILE: HOSTILE}, "requested_s": 1.5, "error": HOSTILE})
        run.event({"id": 2, "kind": "scale", "params": {"replicas": HOSTILE}, "requested_s": 2.0})
        gateway = {"name": HOSTILE, "version": HOSTILE}
        published = {
            "source": HOSTILE,
            "note": HOSTILE,
            "rows": [{"gateway": HOSTILE, "p99": HOSTILE, HOSTILE: HOSTILE}],
        }
        run.manifest(
            {"schema": 1, "run_id": HOSTILE, "name": HOSTILE, "campaign": HOSTILE, "gateway": gateway}
            | {"state": HOSTILE, "invalid_reasons": [HOSTILE], "warnings": [HOSTILE], "published": published}
            | {"options": {HOSTILE: HOSTILE}, "measured_from_s": 0, "measured_to_s": 3, "model": HOSTILE}
        )
    return folder


def _share(total: int, part: int, parts: int) -> int:
    return total * (part + 1) // parts - total * part // parts


def _lognormal(median_us: float, spread: float, tail: float) -> NDArray[np.float64]:
    """Probability of each histogram index: a log-normal body and, for a share of `tail`, a slower log-normal tail."""
    edges = np.log(hdr_value(np.arange(HDR_SIZE)).astype(np.float64) + 1)

    def cumulated(median: float, sigma: float) -> NDArray[np.float64]:
        # The logistic curve stands in for the normal one: near enough, and needs nothing but numpy.
        return np.asarray(1 / (1 + np.exp(np.clip(-1.702 * (edges - np.log(median)) / sigma, -700, 700))))

    whole = (1 - tail) * cumulated(median_us, spread) + tail * cumulated(median_us * 6, spread * 1.5)
    probability = np.diff(whole, prepend=0.0)
    probability[probability < 1e-9] = 0.0
    return np.asarray(probability / probability.sum())


def _samples(writer: RunWriter, second: int, metric: str, counts: NDArray[np.int64]) -> None:
    indices = np.flatnonzero(counts)
    writer.histogram(second, NAME, metric, indices, counts[indices])


def _rows(writer: RunWriter, plan: Plan, rng: np.random.Generator, second: int, due: int, failed: int) -> None:
    shape = CHARACTERS[plan.gateway]
    writer.slots(second, NAME, due, due, int(rng.poisson(due * 0.0004)), 0, 0)
    writer.outcome(second, NAME, "ok", "200", due - failed, (due - failed) * 1290, due * 160)
    if failed:
        writer.outcome(second, NAME, *shape.failure, failed, failed * 180, 0)
    writer.connections(second, failed, 0, 0, failed, 0)
    for backend in range(1, 6):
        writer.replica(second, f"{plan.gateway}-0", str(backend), due // 5)
    if plan.gateway != "direct":
        cpu_s = shape.cpu_user_s * rng.uniform(0.95, 1.05)
        writer.resource(second, "gateway", plan.gateway, cpu_s, cpu_s * 0.6, 41_000_000 + 90_000 * second, "proc")
    writer.resource(second, "worker", "0", 0.22, 0.14, 96_000_000, "proc")
    for worker in range(plan.workers):
        writer.generator(
            second,
            str(worker),
            loop_lag_p99_us=210,
            loop_lag_max_us=900,
            cpu_s=0.36,
            cpu_quota=1.0,
            throttled_s=0.0,
            steal_s=None,
            fds=plan.connections + 40,
            gc_pause_max_us=0,
            retransmits=0,
            clipped=0,
        )


def _events(plan: Plan, rng: np.random.Generator) -> Iterator[dict[str, object]]:
    shape = CHARACTERS[plan.gateway]
    yield {"id": 0, "kind": "epoch", "rate_per_s": plan.rate_per_s, "connections": plan.connections, "requested_s": 0.0}
    for number, at_s in enumerate(plan.changes_at_s, start=1):
        up = number % 2 == 1
        seen_s = at_s + shape.observed_ms / 1000 * float(rng.uniform(0.7, 1.5))
        yield {
            "id": number,
            "kind": "scale",
            "params": {"replicas": 7 if up else 5},
            "by": "plan",
            "requested_s": at_s,
            "accepted_s": at_s + 0.002,
            "applied_s": at_s + 0.004,
            "first_new_s": seen_s if up else None,
            "last_old_s": None if up else seen_s,
            "settled_s": seen_s,
            "observed_ms": (seen_s - at_s) * 1000,
            "noop": False,
            "error": None,
        }


def _manifest(plan: Plan, run_id: str) -> dict[str, object]:
    churn: list[object] = [{"loop": [{"scale": 7}, {"wait": "2s"}, {"scale": 5}, {"wait": "2s"}]}]
    return {
        "schema": 1,
        "run_id": run_id,
        "name": plan.name,
        "campaign": plan.campaign,
        "labels": {},
        "scenario": {"name": plan.name, "churn": churn} if plan.changes_at_s else {"name": plan.name},
        "options": {"rate_per_s": float(plan.rate_per_s), "path": "/", "timeout_s": 60.0, "wrk2": True},
        "profile": "constant_rate",
        "model": "open",
        "dispatch": "connection",
        "wrk2": True,
        "gateway": {
            "name": plan.gateway,
            "version": CHARACTERS[plan.gateway].versions,
            "config_digest": "sha256:" + "ab" * 32,
            "workers": 1,
        },
        "state": "finished",
        "t0_utc": "2026-11-30T12:00:00.123456Z",
        "measured_from_s": float(plan.warmup_s),
        "measured_to_s": float(plan.warmup_s + plan.measured_s),
        "drained_s": plan.warmup_s + plan.measured_s + 0.1,
        "rate_per_s": float(plan.rate_per_s),
        "connections": plan.connections,
        "versions": {"ingress_swarm": "0.1.0", "locust": "2.47.0", "python": "3.11.7", "openssl": "3.0.13"},
        "host": {
            "kind": "lab",
            "cpus": 2,
            "cpu_model": "made up",
            "kernel": "6.1.0",
            "sysctl": {},
            "shared_core": False,
        },
        "addresses": ["127.0.0.1:40001"],
        "workers": [{"index": 0, "id": "w0", "clock_offset_us": 0.0, "clock_error_us": 0.0}],
        "seed": plan.seed,
        "valid": True,
        "invalid_reasons": [],
        "warnings": [],
        "accounting": None,
        "target": None,
        "published": PUBLISHED if plan.changes_at_s else None,
    }


PUBLISHED: dict[str, object] = {
    "source": "NGINX blog, 22 Sep 2020",
    "note": "wrk2 from another cloud, 30,000/s over 1,000 connections",
    "rows": [
        {"gateway": "ingress-nginx-0.34.1", "p99": "5s", "connect_errors": 0, "timeouts": 8809, "read_errors": 0},
        {
            "gateway": "nginx-oss-1.8.0",
            "p99": "32s",
            "p99.99": "60s",
            "connect_errors": 33365,
            "timeouts": 309,
            "read_errors": 4650,
        },
        {"gateway": "nginx-plus-1.8.0", "p99.9999": "254ms", "connect_errors": 0, "timeouts": 0, "read_errors": 0},
    ],
}


def main() -> None:
    """Write what was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hour", action="store_true")
    asked = parser.parse_args()
    if asked.hour:
        changes = tuple(30.0 + 22.0 * k for k in range(160))
        write_run(
            asked.folder, Plan(rate_per_s=30_000, warmup_s=15, measured_s=3585, connections=1000, changes_at_s=changes)
        )
    else:
        write_campaign(asked.folder)


if __name__ == "__main__":
    main()
