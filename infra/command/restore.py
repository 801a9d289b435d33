"""`ingress-swarm restore`: put a target back as it was before a run that could not do so itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from infra.command.errors import FINE, CommandError, UsageError
from infra.targets import State, Target, TargetError, load_target, open_target
from infra.targets.changing import changes_between, in_words, state_after

__all__ = ["command"]


@dataclass(frozen=True)
class _Record:
    """What a run wrote down about its target before the first edit."""

    run: Path
    spec: Mapping[str, object]
    original: State
    t0_utc: str | None


@click.command("restore")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option(
    "--target", type=click.Path(path_type=Path), help="A target's file, instead of RUN: its newest run is taken."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder of runs, for --target.",
)
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
def command(run: Path | None, target: Path | None, out: Path, yes: bool) -> int:  # noqa: FBT001
    """Put the target of RUN back as RUN found it. Shows what differs, and asks.

    A run does this itself at its end, also on Ctrl-C; this is for one that crashed, or whose machine did.

    \b
    Examples:
      ingress-swarm restore runs/20261130T120000Z-nginx-2020-dynamic-envoy-3f9c
      ingress-swarm restore --target lab-nginx/target.yaml --yes
    """
    if (run is None) == (target is None):
        raise UsageError("give a run directory, or --target FILE, and not both")
    record = _read(run) if run is not None else _newest(out, target)  # type: ignore[arg-type]  # one of them is given
    try:
        opened = open_target(record.spec)
        try:
            return _put_back(opened, record, ask=not yes)
        finally:
            opened.close()
    except TargetError as error:
        raise CommandError(str(error)) from error


def _put_back(target: Target, record: _Record, *, ask: bool) -> int:
    present = target.state()
    differences = _differences(present, record.original)
    if not differences:
        click.echo(f"the target is as {record.run.name} found it: nothing to do")
        return FINE
    click.echo(
        "\n".join(
            [f"{record.run.name} found its target otherwise; to put back:", *(f"  {line}" for line in differences)]
        )
    )
    if ask:
        if not sys.stdin.isatty():
            raise UsageError("nobody to ask, as this is no terminal: give --yes to put it back")
        if not click.confirm("put it back?"):
            raise CommandError("left as it is")
    requested = datetime.now(UTC)
    done = target.put_back(record.original)
    try:
        _append_event(record, requested, done)
    except OSError as error:
        raise CommandError(f"put back ({', '.join(done)}), but not noted in {record.run}: {error.strerror}") from error
    click.echo(f"put back: {', '.join(done)}")
    return FINE


def _differences(present: State, original: State) -> list[str]:
    words = []
    for change in changes_between(present, original):
        words.append(in_words(present, change))
        present = state_after(present, change)
    return words


def _read(run: Path) -> _Record:
    """Return what a run wrote down; raise UsageError if it is no run, or changed nothing."""
    path = run / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        target = manifest["target"]
        if target is None:
            raise UsageError(f"{run}: this run had no target, so there is nothing to put back")
        return _Record(run, target["spec"], State.from_json(target["original"]), manifest.get("t0_utc"))
    except OSError as error:
        raise UsageError(f"{run}: no run directory: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, TargetError) as error:
        raise UsageError(f"{path}: tells no target and its original state: {type(error).__name__}: {error}") from error


def _newest(out: Path, target: Path) -> _Record:
    """Return the record of the newest run in a folder that had this target; raise UsageError if none had."""
    try:
        spec = load_target(target)
    except TargetError as error:
        raise UsageError(str(error)) from error
    for manifest in sorted(out.glob("*/manifest.json"), reverse=True):  # names begin with their start
        try:
            record = _read(manifest.parent)
        except UsageError:
            continue  # a run without a target, or half a manifest: not the one that is looked for
        if record.spec.get("control", record.spec) == spec.get("control", spec):
            return record
    raise UsageError(f"--target: no run in {out} had the target {target}: give the run directory itself, or --out")


def _append_event(record: _Record, requested: datetime, done: list[str]) -> None:
    """Add one line to the run's events. Its times are on the wall clock, as the run's own clock may be gone."""
    path = record.run / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    second = 0.0  # a run that never came to its start has no clock
    if record.t0_utc is not None:
        second = (requested - datetime.fromisoformat(record.t0_utc)).total_seconds()
    event = {
        "id": max((_id_of(line) for line in lines), default=0) + 1,
        "kind": "restore",
        "params": {"changed": done},
        "by": "restore",
        "requested_s": second,
        "noop": False,
        "error": None,
    }
    with path.open("a", encoding="utf-8") as file:
        # A crash may have left half a line: ours begins on a line of its own.
        file.write(
            ("" if not lines or path.read_text(encoding="utf-8").endswith("\n") else "\n") + json.dumps(event) + "\n"
        )


def _id_of(line: str) -> int:
    try:
        number = json.loads(line).get("id")
    except ValueError:
        return 0  # the half line of a crash
    return number if isinstance(number, int) else 0
