"""`ingress-swarm doctor`: is this machine fit to load from?"""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from infra.command.checks import CHECKS, Check
from infra.command.display import open_console
from infra.command.errors import FAILED, FINE

__all__ = ["command"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command("doctor")
def command() -> int:
    """Check what the lab and the load need of this machine, and say what to do where it is missing.

    Ends with 1 if something fails; a warning is something that makes figures worse, and not a failure.
    """
    checks = [check for look in CHECKS for check in look()]
    open_console().print(_table(checks))
    return FAILED if any(check.level == "fail" for check in checks) else FINE


def _table(checks: list[Check]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("", "what", "found", "to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        table.add_row(Text(check.level, style=_STYLES[check.level]), check.about, Text(check.found), Text(check.advice))
    return table
