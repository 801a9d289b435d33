"""A campaign: scenarios x gateways x repeats that belong together, one run after the other."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from infra.command.cores import Cores
from infra.command.display import Display
from infra.command.engine import Call, Engine, Load
from infra.command.errors import FAILED, FINE, GATE_FAILED, INTERRUPTED, INVALID_RUN, USAGE, UsageError, worst
from infra.command.interrupts import Interrupts
from infra.command.tail import Tail
from infra.scenarios import Scenario

__all__ = ["Campaign", "Place", "Run", "campaign_name", "rotated"]

_LOOK_EVERY_S = 0.25
_AT_ONCE_WITHIN_S = 3.0


@dataclass(frozen=True)
class Place:
    """Where the load goes: a gateway of the lab, a target, or a plain host."""

    title: str
    host: str
    kind: str = "host"
    target: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True)
class Run:
    """What became of one run; `path` exists only if the engine came far enough to make it."""

    path: Path
    code: int


@dataclass
class Campaign:
    """Runs scenarios one after the other and keeps what became of each."""

    name: str
    out: Path
    load: Load
    cores: Cores
    display: Display
    interrupts: Interrupts
    runs: list[Run] = field(default_factory=list)
    problems: list[int] = field(default_factory=list)

    def run(self, scenario: Scenario, place: Place, labels: Mapping[str, str]) -> Run:
        """Run one scenario and wait for its end, however it comes."""
        path = self.out / _run_id(scenario.name, place.title)
        meta: dict[str, object] = {
            "name": scenario.name,
            "campaign": self.name,
            "labels": dict(labels),
            "scenario": scenario.to_data(),
            "published": scenario.published.to_data() if scenario.published else None,
            "host": {"kind": place.kind, "shared_core": self.cores.shared and place.kind == "lab"},
        }
        load = self.load if self.load.ca or not place.ca else replace(self.load, ca=place.ca)
        call = Call(scenario, place.host, path.absolute(), load, place.target, self.cores, meta)
        with tempfile.TemporaryDirectory(prefix="ingress-swarm-") as folder:
            code, words = self._wait_for(call, Path(folder), place.title)
        run = Run(path, code)
        self.runs.append(run)
        if manifest_of(path) is not None and code in (FINE, INVALID_RUN, INTERRUPTED):
            self.display.end(words)
        else:
            self.failed(f"{scenario.name} {place.title}: {words}", code)
        return run

    def failed(self, said: str, code: int) -> None:
        """Keep what went wrong outside of a run, as when a lab does not start."""
        self.problems.append(code)
        self.display.end()
        click.echo(f"ingress-swarm: {said}", err=True)

    @property
    def stopping(self) -> bool:
        """Whether nothing new is to be started: somebody asked for the end, or what was given cannot be used."""
        return self.interrupts.stopping or USAGE in self.problems

    @property
    def kept(self) -> list[Path]:
        """The run directories that exist and say what they are."""
        return [run.path for run in self.runs if manifest_of(run.path) is not None]

    def exit_code(self) -> int:
        """Return the exit code of all runs together; 130 if it was ended early and nothing is worse."""
        code = worst([*(run.code for run in self.runs), *self.problems])
        return INTERRUPTED if code == FINE and self.interrupts.stopping else code

    def _wait_for(self, call: Call, folder: Path, title: str) -> tuple[int, str]:
        tail = Tail(call.run_dir)
        self.display.begin(call.scenario, title)
        with Engine(call, folder) as engine, self.interrupts.passed_to(engine.interrupt):
            if self.interrupts.stopping:  # asked for between the last run and this one
                engine.kill()
            end_by_s = None
            while engine.code is None:
                self.display.update(tail.look(), "ending" if self.interrupts.stopping else "")
                if self.interrupts.at_once:
                    end_by_s = end_by_s or time.monotonic() + _AT_ONCE_WITHIN_S
                    if time.monotonic() > end_by_s:
                        engine.kill()
                time.sleep(_LOOK_EVERY_S)
            return self._judge(call, engine)

    def _judge(self, call: Call, engine: Engine) -> tuple[int, str]:
        """Return the exit code of a run, and one line that says what became of it."""
        code = engine.code
        assert code is not None
        manifest = manifest_of(call.run_dir)
        if self.interrupts.stopping and manifest is None:
            return INTERRUPTED, "ended before it began"
        if code in (FINE, INVALID_RUN) and manifest is not None:
            return code, _summary(manifest)
        if code in (FAILED, USAGE, GATE_FAILED):
            return code, engine.last_words()
        if self.interrupts.stopping:
            return INTERRUPTED, "ended before it was finished"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return FAILED, f"the engine {how}: {engine.last_words()}"


def campaign_name(word: str) -> str:
    """Return a name that no other campaign has: `demo-20261130T120000Z-3f9c`."""
    return f"{word}-{_now()}-{secrets.token_hex(2)}"


def rotated(names: Sequence[str], by: int) -> list[str]:
    """Return the names with the first `by` at the end, so that no gateway is always the first or the last."""
    shift = by % len(names)
    return [*names[shift:], *names[:shift]]


def check_out(out: Path) -> None:
    """Make the folder of runs; raise UsageError if it cannot be made or written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"--out: given {out}, which cannot be written to: {error.strerror}: choose another folder"
        ) from error


def _run_id(scenario: str, place: str) -> str:
    return f"{_now()}-{scenario}-{place}-{secrets.token_hex(2)}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def manifest_of(run_dir: Path) -> dict[str, object] | None:
    try:
        manifest = json.loads((run_dir / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    assert isinstance(manifest, dict)
    return manifest


def _summary(manifest: Mapping[str, object]) -> str:
    """Return one line on a finished run, from its manifest."""
    accounting = manifest.get("accounting")
    counts = accounting if isinstance(accounting, dict) else {}
    words = (
        f"{counts.get('due', 0):,} slots, {counts.get('failed', 0):,} failed, {counts.get('censored', 0):,} unanswered"
    )
    reasons = manifest.get("invalid_reasons")
    if isinstance(reasons, list) and reasons:
        return f"{words}; INVALID, see below"
    return words
