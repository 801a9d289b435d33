"""Cost grows with seconds and names, never with requests; what the load worker imports is light."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import synthetic

import analysis
from analysis import open_run, write_report
from analysis.rundir import RunReader

FIVE_MINUTES = synthetic.Plan(
    gateway="traefik",
    rate_per_s=30_000,
    warmup_s=5,
    measured_s=295,
    changes_at_s=tuple(20.0 + 22 * k for k in range(12)),
)


@pytest.fixture(scope="module")
def five_minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_run(tmp_path_factory.mktemp("scale") / "run", FIVE_MINUTES)


def test_five_minutes_at_30000_per_second_take_little_memory(five_minutes: Path) -> None:
    tracemalloc.start()
    try:
        one = open_run(five_minutes).summary()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert one.slots == 30_000 * 295
    assert one.accounting.holds
    assert peak_bytes < 20e6


def test_a_hundredfold_rate_does_not_make_a_hundredfold_directory(tmp_path: Path, five_minutes: Path) -> None:
    slow = synthetic.write_run(
        tmp_path / "slow", synthetic.Plan(gateway="traefik", rate_per_s=300, warmup_s=5, measured_s=295)
    )
    lines = {run: sum(1 for _ in RunReader(run).histograms()) for run in (slow, five_minutes)}
    # 300 seconds, three metrics, and two more lines for each of twelve changes.
    assert lines == {slow: 900, five_minutes: 924}
    size = {run: (run / "histograms.hlog").stat().st_size for run in lines}
    assert size[five_minutes] < 12 * size[slow]


def test_the_page_of_a_long_run_stays_small(five_minutes: Path, tmp_path: Path) -> None:
    assert write_report([five_minutes], tmp_path / "report.html").stat().st_size < 5_200_000


def test_importing_the_writer_loads_neither_plots_nor_tables() -> None:
    code = "import sys, analysis.rundir; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "analysis.rundir" in loaded
    heavy = {"plotly", "pandas", "jinja2", "rich", "hdrh", "locust", "gevent"}
    assert heavy.isdisjoint(loaded)


def test_public_names_are_what_they_say() -> None:
    assert sorted(analysis.__all__) == analysis.__all__
    assert [getattr(analysis, name).__name__ for name in analysis.__all__] == analysis.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = analysis.nothing
