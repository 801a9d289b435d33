"""A run directory opened for analysis."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from analysis.changes import Change, parse_changes
from analysis.fold import Folded, fold
from analysis.manifest import Manifest, parse_manifest
from analysis.rundir import RunReader
from analysis.summarize import summarize
from analysis.summary import RunSummary


@dataclass(frozen=True)
class Run:
    """One run. Files are read on first use and once; every use may raise RunDirError naming file and line."""

    path: Path
    manifest: Manifest
    _reader: RunReader = field(repr=False)

    def summary(self) -> RunSummary:
        """Return the figures of this run."""
        return self._summary

    @cached_property
    def folded(self) -> Folded:
        """Everything the run recorded, added up."""
        return fold(self._reader, self.manifest)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Changes of the target by the time of their request."""
        return tuple(parse_changes(self._reader.events(), str(self.path / "events.jsonl")))

    @cached_property
    def _summary(self) -> RunSummary:
        folded, changes = self.folded, self.changes
        # The same cut-off line is met again by whoever reads the file twice.
        return summarize(self.manifest, folded, changes, tuple(dict.fromkeys(self._reader.notes)))


def open_run(path: Path) -> Run:
    """Open a run directory. Raises RunDirError, in one line, when it is none or of a newer schema."""
    reader = RunReader(Path(path))
    return Run(reader.path, parse_manifest(reader.manifest, reader.path), reader)
