"""Writes a run directory while the run goes on. Synchronous, no threads, one caller at a time."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO
from urllib.parse import quote

import numpy as np

from analysis.rundir._errors import RunDirError
from analysis.rundir._hdr import Indices, hdr_value
from analysis.rundir._layout import (
    EVENTS,
    HISTOGRAMS,
    MANIFEST,
    MAX_TEXT_CHARS,
    METRICS,
    OUTCOMES,
    TABLES,
    ConnectionsRow,
    GeneratorRow,
    OutcomeRow,
    ReplicaRow,
    ResourceRow,
    Row,
    SlotsRow,
    columns,
)
from analysis.rundir._payload import PayloadError, encode_payload

_CONTROL = dict.fromkeys((*range(32), 127, 0x85, 0x2028, 0x2029), "\N{REPLACEMENT CHARACTER}")
_FILE_OF = {row: name for name, row in TABLES.items()}

_HLOG_HEAD = (
    "#[Histogram log format version 1.3]\n"
    "#[Values in microseconds, Interval_Max in milliseconds, timestamps in seconds since t0 of the run]\n"
    '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
)


class RunWriter:
    """An open run directory. Every method raises RunDirError, in one line, when the disk will not take the data.

    Rows of one key may be written several times (workers report separately): readers add them up. Text is cut at 256
    characters and control characters are replaced, so that one row is always one line.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, object]) -> RunWriter:
        """Make the folder (absent, or empty), write the manifest and the heads of all files.

        Raises RunDirError when the folder holds something already or cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            occupied = any(path.iterdir())
        except OSError as error:
            raise RunDirError(f"run directory {path}: {_reason(error)}; choose another with --run-dir") from error
        if occupied:
            raise RunDirError(f"run directory {path}: is not empty; runs are never overwritten, choose another folder")
        return cls(path, manifest)

    def __init__(self, path: Path, manifest: Mapping[str, object]) -> None:
        self.path = path
        self._files: dict[str, IO[str]] = {}
        self._start_time_known = False
        try:
            for name, row in TABLES.items():
                self._open(name, ",".join(columns(row)) + "\n")
            self._open(HISTOGRAMS, _HLOG_HEAD)
            self._open(EVENTS, "")
            self.manifest(manifest)
            self.flush()
        except RunDirError:
            self._abandon()
            raise

    def histogram(
        self,
        second: int,
        name: str,
        metric: str,
        indices: Sequence[int] | Indices,
        counts: Sequence[int] | Indices,
    ) -> None:
        """Counts of one metric in one second: ascending indices (see hdr_index) and how many samples each holds."""
        if metric not in METRICS:
            raise RunDirError(f"metric {metric!r}: known are {', '.join(METRICS)}")
        if not len(indices):
            return
        try:
            payload = encode_payload(indices, counts)
        except PayloadError as error:
            raise RunDirError(f"histogram of {name}/{metric}, second {second}: {error}") from error
        max_ms = float(hdr_value(np.asarray(indices[-1]))) / 1000
        self._write(HISTOGRAMS, f"Tag={tag(name, metric)},{second:d}.000,1.000,{max_ms:.3f},{payload}\n")

    def slots(self, second: int, name: str, due: int, sent: int, late_own: int, late_peer: int, unsent: int) -> None:
        """Slots by the second of their intended start."""
        self._row(SlotsRow(second, name, due, sent, late_own, late_peer, unsent))

    def outcome(
        self, second: int, name: str, outcome: str, code: str, count: int, bytes_in: int, bytes_out: int
    ) -> None:
        """Ended slots by the second of their end. `code`: status, errno name or TLS alert."""
        if outcome not in OUTCOMES:
            raise RunDirError(f"outcome {outcome!r}: known are {', '.join(OUTCOMES)}")
        self._row(OutcomeRow(second, name, outcome, code, count, bytes_in, bytes_out))

    def connections(
        self, second: int, opened: int, resumed: int, peer_closed_idle: int, peer_closed_busy: int, closed_by_us: int
    ) -> None:
        """Connections opened and closed in one second."""
        self._row(ConnectionsRow(second, opened, resumed, peer_closed_idle, peer_closed_busy, closed_by_us))

    def replica(self, second: int, gateway_replica: str, backend: str, count: int) -> None:
        """Replies of one second by the gateway replica and the backend they name."""
        self._row(ReplicaRow(second, gateway_replica, backend, count))

    def resource(
        self, second: int, role: str, name: str, cpu_user_s: float, cpu_system_s: float, rss_bytes: int, source: str
    ) -> None:
        """CPU time used in this one second (not since the start) and resident memory now, of one role."""
        self._row(ResourceRow(second, role, name, cpu_user_s, cpu_system_s, rss_bytes, source))

    def generator(
        self,
        second: int,
        worker: str,
        *,
        loop_lag_p99_us: int | None,
        loop_lag_max_us: int | None,
        cpu_s: float | None,
        cpu_quota: float | None,
        throttled_s: float | None,
        steal_s: float | None,
        fds: int | None,
        gc_pause_max_us: int | None,
        retransmits: int | None,
        clipped: int | None,
    ) -> None:
        """Health of one worker in one second; None where the host does not tell."""
        self._row(
            GeneratorRow(
                second=second,
                worker=worker,
                loop_lag_p99_us=loop_lag_p99_us,
                loop_lag_max_us=loop_lag_max_us,
                cpu_s=cpu_s,
                cpu_quota=cpu_quota,
                throttled_s=throttled_s,
                steal_s=steal_s,
                fds=fds,
                gc_pause_max_us=gc_pause_max_us,
                retransmits=retransmits,
                clipped=clipped,
            )
        )

    def event(self, event: Mapping[str, object]) -> None:
        """One change, epoch or incident; on the disk's side of a crash when this returns. Last line of an id wins."""
        self._write(EVENTS, _json(event, "event", indent=None) + "\n")
        self._flush(EVENTS)

    def manifest(self, manifest: Mapping[str, object]) -> None:
        """Replace the manifest, atomically: a reader sees the old or the new one, whole."""
        text = _json(manifest, "manifest", indent=2) + "\n"
        final = self.path / MANIFEST
        fresh = final.with_suffix(".json.tmp")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(final)
        except OSError as error:
            raise RunDirError(f"{final}: {_reason(error)}") from error
        self._note_start_time(manifest.get("t0_utc"))

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        for name in self._files:
            self._flush(name)

    def close(self) -> None:
        """Flush and close all files. Harmless when called twice."""
        first: OSError | None = None
        for file in self._files.values():
            try:
                file.close()
            except OSError as error:
                first = first or error
        self._files.clear()
        if first is not None:
            raise RunDirError(f"run directory {self.path}: {_reason(first)}") from first

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str, head: str) -> None:
        try:
            self._files[name] = (self.path / name).open("x", encoding="utf-8", errors="replace", newline="")
        except OSError as error:
            raise RunDirError(f"{self.path / name}: {_reason(error)}") from error
        self._write(name, head)

    def _abandon(self) -> None:
        try:
            self.close()
        except RunDirError:
            # The error that made us give up is on its way already, and says the same.
            return

    def _row(self, row: Row) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(_field(getattr(row, column)) for column in columns(type(row)))
        self._write(_FILE_OF[type(row)], line.getvalue())

    def _write(self, name: str, text: str) -> None:
        file = self._files.get(name)
        if file is None:
            raise RunDirError(f"{self.path / name}: the run directory is closed")
        try:
            file.write(text)
        except OSError as error:
            raise RunDirError(f"{self.path / name}: {_reason(error)}") from error

    def _flush(self, name: str) -> None:
        try:
            self._files[name].flush()
        except OSError as error:
            raise RunDirError(f"{self.path / name}: {_reason(error)}") from error

    def _note_start_time(self, t0_utc: object) -> None:
        """Tell histogram log readers what second 0 is, once it is known."""
        if self._start_time_known or not isinstance(t0_utc, str):
            return
        try:
            epoch_s = datetime.fromisoformat(t0_utc).timestamp()
        except ValueError as error:
            raise RunDirError(f"manifest: t0_utc {t0_utc!r} is not an ISO 8601 time") from error
        self._write(HISTOGRAMS, f"#[StartTime: {epoch_s:.3f} (seconds since epoch), {t0_utc}]\n")
        self._write(HISTOGRAMS, f"#[BaseTime: {epoch_s:.3f} (seconds since epoch)]\n")
        self._start_time_known = True


def tag(name: str, metric: str) -> str:
    """Tag of a histogram line. The name is percent-encoded: a tag may hold neither comma nor space nor line end."""
    return f"{quote(text(name), safe='', errors='replace')}/{metric}"


def text(value: str) -> str:
    """Cut to MAX_TEXT_CHARS, control characters and line ends replaced."""
    return value[:MAX_TEXT_CHARS].translate(_CONTROL)


def _field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise RunDirError(f"a field of a CSV row is {value}: absent values are None")
        return f"{value:.6f}"
    return text(str(value))


def _json(value: Mapping[str, object], what: str, *, indent: int | None) -> str:
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except (TypeError, ValueError) as error:
        raise RunDirError(f"{what}: JSON cannot hold it: {error}") from error


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
