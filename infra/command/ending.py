"""The end of a campaign, or of a look back: the table on the terminal, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis.rundir import RunDirError
from infra.command.campaign import Campaign
from infra.command.errors import FAILED

__all__ = ["finish", "show"]


def finish(campaign: Campaign) -> int:
    """Print the table of a campaign, write its report, and return its exit code; asked to end at once, do neither."""
    console = campaign.display.console
    runs = campaign.kept
    if runs and not campaign.interrupts.at_once:
        # Reports of several runs have a folder of their own: `runs/*dynamic*` is to match runs and nothing else.
        together = campaign.out / "reports" / f"{campaign.name}.html"
        try:
            show(runs, together if len(runs) > 1 else runs[0] / "report.html", console)
        except RunDirError as error:
            campaign.failed(f"no report: {error}", FAILED)
    return campaign.exit_code()


def show(runs: Sequence[Path], report: Path, console: Console) -> None:
    """Print the table of runs, and write their report with the same figures as JSON beside it. Raises RunDirError."""
    # What these need (pandas, plotly) takes a second to import: the load is not to wait for it.
    from analysis import open_run, render, write_report, write_summary

    opened = [open_run(path) for path in runs]
    summaries = [run.summary() for run in opened]
    console.print()
    console.print(render(summaries))
    write_summary(
        summaries, report.with_name("summary.json" if report.name == "report.html" else f"{report.stem}.json")
    )
    write_report(opened, report)
    console.print(f"\nreport: {escape(str(report))}", soft_wrap=True)
