"""What a run writes as it goes: manifest, events and rows, on the run's own clock, through the writing thread."""

import itertools
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic as clock
from typing import Any

from analysis.rundir import RunWriter
from locustfiles.engine._churn import AppliedChange
from locustfiles.engine._collector import Collector
from locustfiles.engine._filing import Filing, Write
from locustfiles.engine._manifest import Facts, default_run_dir, manifest, run_name
from locustfiles.engine._options import Settings

logger = logging.getLogger(__name__)


class Journal:
    """`facts` is what the manifest says beyond the settings.

    With --no-run-dir nothing is written, and nothing fails.
    """

    def __init__(self, settings: Settings, profile: str, facts: Facts, cpus: frozenset[int]) -> None:
        self._settings, self._profile = settings, profile
        self.facts = facts
        self.ids = itertools.count(1)
        self.t0_s: float | None = None
        path = settings.run_dir or default_run_dir(run_name(settings, profile), datetime.now(UTC))
        self.run_id = path.name
        self._filing = None if settings.no_run_dir else Filing(RunWriter.create(path, self._manifest()), cpus)

    def begin(self, t0_s: float) -> None:
        """The load begins at `t0_s`: seconds count from there."""
        self.t0_s = t0_s
        utc = datetime.now(UTC) + timedelta(seconds=t0_s - clock())
        self.facts.t0_utc = utc.isoformat(timespec="microseconds").replace("+00:00", "Z")
        self.facts.state = "running"

    def since_t0(self, moment_s: float) -> float | None:
        """Seconds since t0, or None before the load begins."""
        return None if self.t0_s is None else round(moment_s - self.t0_s, 6)

    def manifest(self) -> None:
        """Write the manifest anew."""
        self._submit(lambda writer: [(writer.manifest, (self._manifest(),))])

    def event(self, kind: str, at_s: float, **more: Any) -> None:
        """Write an event that is no change."""
        event = {"id": next(self.ids), "kind": kind, "requested_s": self.since_t0(at_s), **more}
        self._submit(lambda writer: [(writer.event, (event,))])

    def incident(self, text: str) -> None:
        """Write, and say, something that the reader of the report must know."""
        logger.warning("%s", text)
        self.event("incident", clock(), text=text)

    def change(self, change: AppliedChange) -> None:
        """Write what is known of a change by now."""
        if self.t0_s is not None:
            event = change.event(self.t0_s)
            self._submit(lambda writer: [(writer.event, (event,))])

    def seconds(self, collector: Collector, *, everything: bool) -> None:
        """Write the seconds that are complete, or all."""
        self._submit(lambda writer: collector.writes(writer, everything=everything))

    def resources(self, rows: list[tuple[int, str, str, float, float, int, str]]) -> None:
        """Write rows of resources.csv. What was used before the load began is not the run's."""
        self._submit(lambda writer: [(writer.resource, row) for row in rows if self._counts(row[0])])

    def generator(self, row: dict[str, Any]) -> None:
        """Write a row of generator.csv."""
        if self._counts(row["second"]):
            self._submit(lambda writer: [(lambda: writer.generator(**row), ())])

    def wait(self) -> None:
        """Return when everything so far is on its way to the disk."""
        if self._filing is not None:
            self._filing.wait()

    def close(self) -> None:
        """Write the manifest a last time, and close the files."""
        if self._filing is not None:
            self._filing.close(self._manifest())

    @property
    def error(self) -> str | None:
        """Why nothing is written any more."""
        return None if self._filing is None else self._filing.error

    @property
    def run_dir(self) -> str | None:
        """Where the results are."""
        return None if self._filing is None else os.fspath(self._filing.writer.path)

    def _counts(self, second: int) -> bool:
        return self.t0_s is not None and second >= 0

    def _manifest(self) -> dict[str, Any]:
        return manifest(self._settings, self._profile, self.run_id, self.facts)

    def _submit(self, writes: Callable[[RunWriter], list[Write]]) -> None:
        if self._filing is not None:
            self._filing.submit(writes(self._filing.writer))
