"""Opens a run directory for reading: the manifest and the events whole, everything else as streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from analysis.rundir._errors import RunDirError
from analysis.rundir._hlog import Interval, read_histograms
from analysis.rundir._layout import EVENTS, MANIFEST, SCHEMA
from analysis.rundir._rows import R, lines, read_rows

_MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_EVENT_BYTES = 256 * 1024
_MAX_EVENTS = 100_000


class RunReader:
    """A run directory, finished or not. Every method raises RunDirError naming file and line for what is malformed.

    `notes` gains a sentence for each file whose last line was cut off, once that file has been read to its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.manifest = _read_manifest(path)

    def rows(self, row: type[R]) -> Iterator[R]:
        """Rows of one table in file order; rows of one key add up. No file, no rows."""
        return read_rows(self.path, row, self.notes)

    def histograms(self) -> Iterator[Interval]:
        """Histogram lines by ascending second; lines of one (second, name, metric) add up."""
        return read_histograms(self.path, self.notes)

    def events(self) -> list[dict[str, object]]:
        """Events in order of their first line; of several lines with one id the last one counts."""
        path = self.path / EVENTS
        by_key: dict[object, dict[str, object]] = {}
        for number, _, raw in lines(path, _MAX_EVENT_BYTES, self.notes):
            event = _json_object(raw, f"{path}:{number}")
            if not isinstance(event.get("kind"), str):
                raise RunDirError(f"{path}:{number}: an event without kind")
            event_id = event.get("id")
            if event_id is not None and not isinstance(event_id, (int, str)):
                raise RunDirError(f"{path}:{number}: id is neither number nor text")
            by_key[("line", number) if event_id is None else ("id", event_id)] = event
            if len(by_key) > _MAX_EVENTS:
                raise RunDirError(f"{path}:{number}: more than {_MAX_EVENTS} events")
        return list(by_key.values())


def _read_manifest(folder: Path) -> dict[str, object]:
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "no such folder" if not folder.exists() else f"no {MANIFEST} in it"
        raise RunDirError(f"{folder}: not a run directory ({what})") from error
    except OSError as error:
        raise RunDirError(f"{path}: {error.strerror}") from error
    if len(raw) > _MAX_MANIFEST_BYTES:
        raise RunDirError(f"{path}: larger than {_MAX_MANIFEST_BYTES} bytes")
    manifest = _json_object(raw, str(path))
    schema = manifest.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RunDirError(f"{path}: schema is {json.dumps(schema)[:40]}, not a number from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise RunDirError(
            f"{path}: schema {schema} is newer than this ingress-swarm, which reads up to {SCHEMA}: upgrade it"
        )
    return manifest


def _json_object(raw: bytes, where: str) -> dict[str, object]:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RunDirError(f"{where}: not JSON: {' '.join(str(error).split())[:120]}") from error
    if not isinstance(value, dict):
        raise RunDirError(f"{where}: not a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
