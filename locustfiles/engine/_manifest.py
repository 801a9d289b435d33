"""What manifest.json says of a run: what was asked for, where it ran, and whether it can be believed."""

import platform
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from analysis.rundir import SCHEMA
from locustfiles.engine._options import Settings, is_secret

_SYSCTL: Final = (
    "net/core/default_qdisc",
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_tw_reuse",
)


@dataclass(slots=True)
class Facts:
    """The part of a manifest that grows while the run goes on."""

    state: str = "starting"
    t0_utc: str | None = None
    measured_to_s: float | None = None
    drained_s: float | None = None
    rate_per_s: float | None = None
    connections: int | None = None
    workers: list[dict[str, Any]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    tls: dict[str, str] = field(default_factory=dict)
    gateway: dict[str, Any] | None = None
    target: dict[str, Any] | None = None
    accounting: dict[str, int] | None = None
    valid: bool | None = None
    invalid_reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_name(settings: Settings, profile: str) -> str:
    """How the run is called: by its scenario, else by its profile."""
    return str(settings.meta.get("name") or profile)


def default_run_dir(name: str, now: datetime) -> Path:
    """runs/<start>-<name>-<4 random>."""
    return Path("runs") / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(2)}"


def manifest(settings: Settings, profile: str, run_id: str, facts: Facts) -> dict[str, Any]:
    """The whole manifest, as the run stands now."""
    meta = settings.meta
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "name": run_name(settings, profile),
        "campaign": meta.get("campaign"),
        "labels": meta.get("labels", {}),
        "scenario": _without_secrets(meta.get("scenario")),
        "published": meta.get("published"),
        "options": settings.shown(),
        "profile": profile,
        "model": "open",
        "dispatch": "connection",
        "wrk2": settings.wrk2,
        "gateway": facts.gateway or meta.get("gateway"),
        "state": facts.state,
        "t0_utc": facts.t0_utc,
        "measured_from_s": float(settings.warmup_s),
        "measured_to_s": facts.measured_to_s,
        "drained_s": facts.drained_s,
        "rate_per_s": facts.rate_per_s if facts.rate_per_s is not None else settings.rate_per_s,
        "connections": facts.connections,
        "versions": versions(),
        "host": {**host_facts(), **_mapping(meta.get("host"))},
        "addresses": facts.addresses,
        "tls": facts.tls,
        "workers": facts.workers,
        "seed": 0,
        "valid": facts.valid,
        "invalid_reasons": facts.invalid_reasons,
        "warnings": facts.warnings,
        "accounting": facts.accounting,
        "target": facts.target,
    }


def versions() -> dict[str, str]:
    """What took part, with versions."""
    return {
        "ingress_swarm": version("ingress-swarm"),
        "locust": version("locust"),
        "gevent": version("gevent"),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
    }


def host_facts() -> dict[str, Any]:
    """The machine that made the load."""
    models = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    sysctl = {name.replace("/", "."): " ".join(_lines(f"/proc/sys/{name}")).strip() or None for name in _SYSCTL}
    return {
        "kind": "host",
        "name": platform.node(),
        "cpus": len(models) or None,
        "cpu_model": models[0] if models else None,
        "kernel": platform.release(),
        "sysctl": sysctl,
        "shared_core": False,
    }


def _without_secrets(scenario: Any) -> Any:
    """A scenario as given, its headers redacted as ours are."""
    if not isinstance(scenario, dict) or not isinstance(scenario.get("options"), dict):
        return scenario
    given = scenario["options"].get("header")
    headers = given if isinstance(given, list) else []
    kept = [f"{text.split(':')[0]}: (redacted)" if is_secret(str(text).split(":")[0]) else text for text in headers]
    return {**scenario, "options": {**scenario["options"], **({"header": kept} if headers else {})}}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # this kernel does not tell


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
