"""The plots: what is drawn, where it ends, and that thinning loses no extreme; the table beside a published study."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from hypothesis import example, given
from hypothesis import strategies as st

from analysis import RunSummary, open_run
from analysis.changes import parse_changes
from analysis.latency import Histogram, Ranked
from analysis.report._distribution import Curve, decades_of, distribution
from analysis.report._published import published_tables
from analysis.report._theme import looks, tokens
from analysis.report._thin import stretch_of, sums, thin
from analysis.report._timeline import errors_top, over_time
from analysis.rundir import HDR_SIZE
from analysis.words import ABSENT


def ranked(replies: dict[int, int], lost: dict[int, int]) -> Ranked:
    def histogram(counts: dict[int, int]) -> Histogram:
        dense = np.zeros(HDR_SIZE, dtype=np.int64)
        dense[list(counts)] = list(counts.values())
        return Histogram(dense)

    return Ranked(histogram(replies), histogram(lost))


def test_the_distribution_ends_where_samples_do_and_leaves_where_replies_end() -> None:
    one = ranked({100: 9_000, 200: 900}, {50: 100})
    figure: Any = distribution([Curve("n", looks([])["nginx"], one, counts=True)], (0.1, 10.0), decades_of([one]))
    line, marks, leaving = figure["data"]
    assert (line["x"][0], line["y"][0]) == (1.0, 0.1)
    assert max(line["x"]) <= 100  # 1 % got no reply
    assert line["y"][-1] == 0.2
    assert marks["text"] == ["p50: 0.10 ms", "p90: 0.10 ms", "p99: 0.20 ms"]
    assert leaving["x"] == [100.0, 100.0]
    assert leaving["y"] == [0.2, 10.0]
    assert leaving["text"][0] == "1 % of slots got no reply"
    full = ranked({100: 10_000}, {})
    whole: Any = distribution([Curve("n", looks([])["nginx"], full, counts=True)], (0.1, 10.0), decades_of([full]))
    assert max(whole["data"][0]["x"]) == pytest.approx(1000)  # 10 of 10,000 samples lie beyond


def test_axis_labels_count_the_nines_and_runs_that_do_not_count_are_faint() -> None:
    one = ranked({100: 1_000_000}, {})
    figure: Any = distribution([Curve("n", looks([])["nginx"], one, counts=False)], (0.1, 10.0), decades_of([one]))
    layout = figure["layout"]
    assert {(trace["name"], trace["opacity"]) for trace in figure["data"]} == {("n (does not count)", 0.35)}
    assert layout["xaxis"]["tickvals"] == [1, 2, 10, 100, 1000, 10_000, 100_000]
    assert layout["xaxis"]["ticktext"] == ["0", "50", "90", "99", "99.9", "99.99", "99.999"]


def test_a_run_over_time_has_its_gaps_and_errors(tmp_path: Path) -> None:
    run = open_run(synthetic.write_run(tmp_path / "run", synthetic.Plan(gateway="traefik", changes_at_s=(4.5,))))
    series = run.folded.series
    figure: Any = over_time(series, run.changes, (2, 12), looks([])["traefik"], (0.1, 100.0), errors_top([series]))
    by_name = {trace.get("name"): trace for trace in figure["data"]}
    assert by_name["5xx"]["x"] == [4.5]
    assert by_name["5xx"]["y"] == [run.summary().by_outcome["http_5xx"]]
    assert by_name["asked"]["y"] == [3000.0] * 12
    assert [shape["x1"] for shape in figure["layout"]["shapes"] if shape["type"] == "rect"] == [2]
    assert figure["layout"]["annotations"][0]["text"] == "7"


def test_no_ops_are_not_drawn(tmp_path: Path) -> None:
    run = open_run(synthetic.write_run(tmp_path / "run", synthetic.Plan(measured_s=3)))
    changes = parse_changes([{"kind": "scale", "requested_s": 3.0, "noop": True}], "events")
    figure: Any = over_time(run.folded.series, changes, (2, 5), looks([])["nginx"], (0.1, 100.0), 1.0)
    assert [shape["type"] for shape in figure["layout"]["shapes"]] == ["rect"]


@example([1.0] * 10, 5)
@given(st.lists(st.floats(0, 1e6) | st.just(float("nan")), max_size=400), st.integers(4, 60))
def test_thinning_keeps_the_extremes_and_the_order(values: list[float], most: int) -> None:
    x, y = np.arange(len(values), dtype=np.float64), np.array(values, dtype=np.float64)
    kept_x, kept_y = thin(x, y, most)
    assert kept_x.size <= most
    assert (np.diff(kept_x) > 0).all()
    known = y[~np.isnan(y)]
    if known.size:
        assert np.nanmax(kept_y) == known.max()
        assert np.nanmin(kept_y) == known.min()


@given(st.lists(st.integers(0, 1000), max_size=300), st.integers(1, 50))
def test_bars_lose_nothing(values: list[int], most: int) -> None:
    counts = np.array(values, dtype=np.int64)
    bars = sums(counts, stretch_of(counts.size, most))
    assert bars.sum() == counts.sum()
    assert bars.size <= most


def test_looks_are_distinct_in_colour_and_in_dash_or_marker() -> None:
    known = looks(["nginx", "mine", "yours"])
    assert len({look.token for look in known.values()}) == 7
    assert len({(look.dash, look.marker) for look in known.values()}) == 7
    assert known["nginx"] == looks(["other", "nginx"])["nginx"]
    assert all(look.token[1:] in tokens() for look in known.values())


def test_a_study_without_figures_makes_no_table(tmp_path: Path) -> None:
    run = open_run(synthetic.write_run(tmp_path / "run", synthetic.Plan(measured_s=2)))
    one = run.summary()
    rows: dict[str, object] = {"source": "s", "rows": [{"gateway": "a"}, {"gateway": "b"}]}
    assert published_tables([(_with_published(one, rows), ranked({1: 20}, {}))]) == []


def test_our_figures_take_the_columns_of_the_study(tmp_path: Path) -> None:
    one = open_run(synthetic.write_run(tmp_path / "run", synthetic.Plan(measured_s=2))).summary()
    rows = [{"gateway": "a", "read_errors": 3, "p99.99": "60s", "p50": "1ms", "odd key": True}]
    (table,) = published_tables([(_with_published(one, {"source": "s", "rows": rows}), ranked({1500: 100}, {}))])
    assert table.headings == ("p50", "p99.99", "read errors", "odd key")
    assert table.rows[0][1:] == (True, ("1.50 ms", ABSENT, "0", ABSENT))
    assert table.rows[1] == ("a", False, ("1ms", "60s", "3", "True"))


def _with_published(one: RunSummary, published: dict[str, object]) -> RunSummary:
    return replace(one, published=published)
