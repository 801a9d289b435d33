"""What came out of a run: read its directory, sum it up, show it.

`open_run(path).summary()` gives the figures as frozen values; `render` a table for the terminal, `summary_json` and
`write_summary` the machine's form, `write_report` the page for people.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.report import write_report
    from analysis.run import Run, open_run
    from analysis.rundir import RunDirError
    from analysis.summary import RunSummary
    from analysis.summaryjson import summary_json, write_summary
    from analysis.terminal import render

__all__ = [
    "Run",
    "RunDirError",
    "RunSummary",
    "open_run",
    "render",
    "summary_json",
    "write_report",
    "write_summary",
]

_HOME = {
    "Run": "run",
    "RunDirError": "rundir",
    "RunSummary": "summary",
    "open_run": "run",
    "render": "terminal",
    "summary_json": "summaryjson",
    "write_report": "report",
    "write_summary": "summaryjson",
}


def __getattr__(name: str) -> object:
    # A load worker imports analysis.rundir, and with it this file: pages and plots are loaded when asked for.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
