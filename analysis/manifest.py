"""The manifest of a run with types: what the engine wrote, checked where it enters analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from analysis.rundir import RunDirError

_MAX_TEXT = 500
_MAX_ITEMS = 200

T = TypeVar("T")


@dataclass(frozen=True)
class Manifest:
    """What was run, on what, and how it ended. None where the run did not say. `facts` is the whole manifest."""

    run_id: str
    name: str
    campaign: str | None
    scenario: str | None
    gateway: str
    gateway_version: str | None
    variant: Literal["static", "dynamic"]
    model: str
    state: str
    started_utc: str | None
    measured_from_s: int
    measured_to_s: float | None
    rate_per_s: float | None
    connections: int | None
    wrk2: bool
    shared_core: bool
    valid: bool | None
    invalid_reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    accounting: Mapping[str, int] | None
    published: Mapping[str, object] | None
    facts: Mapping[str, object]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end and said so."""
        return self.state == "finished"


def parse_manifest(facts: Mapping[str, object], folder: Path) -> Manifest:
    """Check the manifest of a run directory. Raises RunDirError naming file and key."""
    at = _Keys(facts, f"{folder / 'manifest.json'}")
    scenario = at.mapping("scenario")
    gateway = at.mapping("gateway")
    host = at.mapping("host")
    measured_from_s = at.number("measured_from_s") or 0.0
    connections = at.number("connections")
    run_id = at.text("run_id") or folder.name
    name = at.text("name") or (scenario.text("name") if scenario else None) or at.text("profile") or run_id
    return Manifest(
        run_id=run_id,
        name=name,
        campaign=at.text("campaign"),
        scenario=scenario.text("name") if scenario else None,
        gateway=(gateway.text("name") if gateway else None) or "target",
        gateway_version=gateway.text("version") if gateway else None,
        variant="dynamic" if _has_churn(at, scenario) else "static",
        model=at.text("model") or "open",
        state=at.text("state") or "unknown",
        started_utc=at.text("t0_utc"),
        measured_from_s=math.ceil(measured_from_s),
        measured_to_s=at.number("measured_to_s"),
        rate_per_s=at.number("rate_per_s"),
        connections=None if connections is None else int(connections),
        wrk2=at.get("wrk2", bool) or False,
        shared_core=(host.get("shared_core", bool) if host else None) or False,
        valid=at.get("valid", bool),
        invalid_reasons=at.texts("invalid_reasons"),
        warnings=at.texts("warnings"),
        accounting=at.counts("accounting"),
        published=at.get("published", dict),
        facts=facts,
    )


def _has_churn(at: _Keys, scenario: _Keys | None) -> bool:
    options = at.mapping("options")
    return bool((scenario and scenario.get("churn", list)) or (options and options.raw("churn")))


class _Keys:
    """A JSON object whose values are asked for by type; null and absent are both None."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    def raw(self, key: str) -> object:
        return self._values.get(key)

    def get(self, key: str, kind: type[T]) -> T | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise RunDirError(f"{self._where}: {key} is {_shown(value)}, not {kind.__name__} or null")
        return value

    def mapping(self, key: str) -> _Keys | None:
        value = self.get(key, dict)
        return None if value is None else _Keys(value, f"{self._where}: {key}")

    def text(self, key: str) -> str | None:
        value = self.get(key, str)
        return None if value is None else value[:_MAX_TEXT]

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.get(key, list) or []
        return tuple(str(value)[:_MAX_TEXT] for value in values[:_MAX_ITEMS])

    def number(self, key: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e12:
            raise RunDirError(f"{self._where}: {key} is {_shown(value)}, not a number from 0 to 1e12 or null")
        return float(value)

    def counts(self, key: str) -> dict[str, int] | None:
        values = self.mapping(key)
        if values is None:
            return None
        return {name: int(values.number(name) or 0) for name in ("due", "response", "failed", "censored")}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
