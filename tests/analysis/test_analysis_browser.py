"""The page in a real browser: it draws, in both themes, without an error; and nothing that came from outside runs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic

from analysis import write_report

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
    "--virtual-time-budget=10000", "--dump-dom",
]  # fmt: skip

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine"),
]


def opened(page: Path, profile: Path, *more: str) -> tuple[str, list[str]]:
    """Open a page; return its document after scripts ran, and what it wrote to the console."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", *more, page.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout, [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("scheme", ["0", "1"])
def test_every_plot_is_drawn_without_a_word_on_the_console(tmp_path: Path, scheme: str) -> None:
    runs = synthetic.write_campaign(tmp_path / "runs", measured_s=6)
    page = write_report(runs, tmp_path / "report.html")
    document, console = opened(page, tmp_path / "profile", f"--blink-settings=preferredColorScheme={scheme}")
    assert console == []
    plots = re.findall(r'<div class="plot[^"]*" id="([^"]+)"', document)
    assert len(plots) == 11
    assert document.count('class="main-svg"') == 3 * len(plots)
    nginx = {"0": "rgb(52, 199, 158)", "1": "rgb(0, 158, 115)"}[scheme]
    assert f"stroke: {nginx}" in document


def test_no_script_from_outside_runs(tmp_path: Path) -> None:
    page = write_report([synthetic.write_hostile_run(tmp_path / "run")], tmp_path / "report.html")
    document, console = opened(page, tmp_path / "profile")
    assert console == []
    assert "data-owned" not in document[: document.index(">", document.index("<html"))]
    assert 'class="main-svg"' in document
    assert "<img" not in document[document.index("<body") : document.index('<script type="application/json"')]


def test_the_policy_would_stop_a_script_that_got_in(tmp_path: Path) -> None:
    page = write_report([synthetic.write_hostile_run(tmp_path / "run")], tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("<main>", f"<main>{synthetic.HOSTILE.removeprefix('</script>')}"), encoding="utf-8")
    document, console = opened(page, tmp_path / "profile")
    assert "data-owned" not in document[: document.index(">", document.index("<html"))]
    assert any("Content Security Policy" in line for line in console)
