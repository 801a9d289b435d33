"""`ingress-swarm report`: a look back at runs that are done, or that crashed."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.rundir import RunDirError
from infra.command.display import open_console
from infra.command.ending import show
from infra.command.errors import FINE, UsageError

__all__ = ["command"]


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--out", type=click.Path(path_type=Path), help="File of the page; default report.html in the first RUN.")
def command(runs: tuple[Path, ...], out: Path | None) -> int:
    """Make one self-contained HTML page of one or many run directories, and print their table.

    \b
    Examples:
      ingress-swarm report runs/20261130T120000Z-nginx-2020-dynamic-envoy-3f9c
      ingress-swarm report runs/*dynamic* --out dynamic.html
    """
    # `runs/*` names the folder of finished pages too.
    runs = tuple(run for run in runs if run.name != "reports" or (run / "manifest.json").exists())
    if not runs:
        raise UsageError("RUN: given no run directory, allowed one or more folders with a manifest.json in them")
    try:
        show(runs, out or runs[0] / "report.html", open_console())
    except RunDirError as error:
        raise UsageError(str(error)) from error
    return FINE
