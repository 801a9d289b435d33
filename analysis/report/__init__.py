"""The report: one self-contained HTML page about one or many runs, which opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.run import Run, open_run
from analysis.summaryjson import write_text

__all__ = ["write_report"]


def write_report(runs: Sequence[Path | Run], out: Path) -> Path:
    """Write the page about these runs to `out` (replacing an older one) and return its path.

    Raises RunDirError, in one line, for a run that cannot be read or a page that cannot be written; ValueError for no
    runs at all.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    # Only a report needs jinja2 and plotly: whoever imports this package for something else does not pay for them.
    from analysis.report._page import page

    return write_text(out, page([run if isinstance(run, Run) else open_run(run) for run in runs]))
