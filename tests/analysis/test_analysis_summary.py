"""The figures of a tiny run, computed by hand, and what a summary says of runs that do not count."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic

from analysis import RunSummary, open_run, summary_json, write_summary
from analysis.latency import Quantile
from analysis.rundir import RunDirError, RunWriter
from analysis.summary import Accounting, RoleUsage, WrkCounts

MANIFEST: dict[str, object] = {
    "schema": 1,
    "run_id": "tiny",
    "name": "tiny",
    "gateway": {"name": "nginx", "version": "1.31.3"},
    "scenario": {"name": "tiny", "churn": [{"scale": 7}]},
    "state": "finished",
    "t0_utc": "2026-11-30T12:00:00Z",
    "measured_from_s": 1.0,
    "measured_to_s": 3.0,
    "rate_per_s": 20.0,
    "connections": 4,
    "valid": True,
    "accounting": {"due": 41, "response": 38, "failed": 1, "censored": 2},
}


def tiny(folder: Path, **changed: object) -> Path:
    """Second 0 is warm-up, 1 and 2 are measured, 3 is the drain. All times below 2,048 us, where indices are exact."""
    with RunWriter.create(folder, {**MANIFEST, **changed}) as run:
        run.histogram(0, "n", "response", [100], [1])
        run.histogram(1, "n", "response", range(10, 30), [1] * 20)
        run.histogram(2, "n", "response", [50], [10])
        run.histogram(2, "n", "response", [50], [7])  # a second worker
        run.histogram(2, "n", "failed", [400], [1])
        run.histogram(3, "n", "censored", [1000], [2])
        run.histogram(1, "n", "service", [9], [20])
        run.histogram(2, "n", "service", [45, 13_000], [16, 1])  # index 13000 is 2.8 s
        for second, due in ((0, 1), (1, 20), (2, 20)):
            run.slots(second, "n", due, due, 1 if second == 2 else 0, 0, 0)
        run.outcome(0, "n", "ok", "200", 1, 100, 0)
        run.outcome(1, "n", "ok", "200", 20, 2_000_000, 0)
        run.outcome(2, "n", "ok", "200", 15, 1_000_000, 0)
        run.outcome(2, "n", "http_5xx", "502", 2, 0, 0)
        run.outcome(2, "n", "reset", "ECONNRESET", 1, 0, 0)
        run.outcome(2, "n", "refused", "repeat:ECONNREFUSED", 5, 0, 0)
        run.outcome(3, "n", "unfinished", "", 2, 0, 0)
        run.resource(1, "gateway", "nginx", 0.2, 0.1, 100, "proc")
        run.resource(1, "gateway", "nginx-2", 0.1, 0.0, 250, "proc")
        run.resource(2, "gateway", "nginx", 0.4, 0.1, 300, "proc")
        run.resource(0, "gateway", "nginx", 9.0, 9.0, 9_000, "proc")  # warm-up
        run.event({"id": 0, "kind": "epoch", "rate_per_s": 20})
        run.event(
            {"id": 1, "kind": "scale", "params": {"replicas": 7}, "requested_s": 2.2, "accepted_s": 2.25}
            | {"first_new_s": 2.3, "settled_s": 2.3, "observed_ms": 100.0}
        )
    return folder


def summary(folder: Path, **changed: object) -> RunSummary:
    return open_run(tiny(folder / "tiny", **changed)).summary()


def test_figures_by_hand(tmp_path: Path) -> None:
    one = summary(tmp_path)
    assert (one.verdict, one.reasons, one.warnings, one.notes) == ("valid", (), (), ())
    assert (one.gateway, one.gateway_version, one.variant) == ("nginx", "1.31.3", "dynamic")
    assert (one.measured_s, one.rate_asked_per_s, one.rate_reached_per_s) == (2, 20.0, 18.5)
    assert one.received_mb_per_s == 1.5
    assert one.late_own_share == 1 / 40
    # 40 slots: 10..29 us, 17 x 50 us, then failed (400 us) and two unfinished (1,000 us), which rank above.
    assert (one.response.n, one.response.lost) == (40, 3)
    assert one.response.quantiles["p50"] == Quantile(29)
    assert one.response.quantiles["p75"] == Quantile(50)
    assert one.response.quantiles["p90"].absent == "only 4 of 40 samples lie beyond it, 10 are needed"
    assert one.response.max == Quantile(1000, is_bound=True)
    assert (one.replies.n, one.replies.quantiles["p50"], one.replies.max) == (37, Quantile(28), Quantile(50))
    assert one.replies.quantiles["p75"].absent == "only 9 of 37 samples lie beyond it, 10 are needed"
    assert (one.service.n, one.service.quantiles["p50"]) == (37, Quantile(9))
    assert one.by_outcome == {"ok": 35, "http_5xx": 2, "reset": 1, "unfinished": 2}
    assert one.by_code[("http_5xx", "502")] == 2
    assert (one.slots, one.failed, one.error_replies, one.errors, one.mostly_not_2xx) == (40, 3, 2, 5, False)
    assert one.repeated == {"refused": 5}
    assert one.wrk == WrkCounts(connect=5, read=1, write=0, timeout_estimate=1)
    assert one.gateway_usage == RoleUsage((0.2 + 0.1 + 0.4) / 2, (0.1 + 0.0 + 0.1) / 2, 350)
    assert one.worker_usage is None
    assert one.accounting == Accounting(due=41, response=38, failed=1, censored=2, outcomes=41, holds=True)
    (cost,) = one.changes
    assert (cost.window_s, cost.failed, cost.error_replies, cost.above_background) == ((2, 4), 1, 2, 3.0)
    assert one.background_errors_per_s == 0.0


def test_figures_over_time(tmp_path: Path) -> None:
    series = open_run(tiny(tmp_path / "tiny")).folded.series
    assert series.seconds.tolist() == [0, 1, 2, 3]
    assert series.due.tolist() == [1, 20, 20, 0]
    assert series.replies.tolist() == [1, 20, 17, 0]
    assert series.by_class["unfinished"].tolist() == [0, 0, 0, 2]
    assert series.response_us["max"].tolist() == [100.0, 29.0, 400.0, 1000.0]
    assert series.response_us["p50"].tolist()[1] == 19.0
    assert [value != value for value in series.response_us["p99"].tolist()] == [True] * 4


@pytest.mark.parametrize(
    ("changed", "verdict", "reason"),
    [
        ({"valid": False, "invalid_reasons": ["late_own 3 %"]}, "invalid", "late_own 3 %"),
        ({"valid": None}, "invalid", "the run did not record whether it is valid"),
        ({"state": "running", "valid": None}, "incomplete", "the run has no end on record (state: running)"),
        (
            {"accounting": {"due": 42, "response": 38, "failed": 1, "censored": 2}},
            "invalid",
            "the run itself counted due 42, response 38, failed 1, censored 2",
        ),
    ],
)
def test_runs_that_do_not_count(tmp_path: Path, changed: dict[str, object], verdict: str, reason: str) -> None:
    one = summary(tmp_path, **changed)
    assert one.verdict == verdict
    assert any(found.startswith(reason) for found in one.reasons), one.reasons


def test_slots_that_do_not_add_up_make_a_run_invalid(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny", accounting=None)
    with (run / "slots.csv").open("a") as file:
        file.write("2,n,3,3,0,0,0\n")
    one = open_run(run).summary()
    assert one.verdict == "invalid"
    assert one.accounting.holds is False
    assert one.reasons == (
        "slots do not add up: 44 were due, files hold 38 replies, 1 failed and 2 without an end, and 41 outcomes",
    )


def test_outcomes_of_the_wrong_kind_do_not_add_up_either(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny")
    text = (run / "outcomes.csv").read_text()
    (run / "outcomes.csv").write_text(text.replace("2,n,reset,ECONNRESET,1", "2,n,ok,200,1"))
    assert open_run(run).summary().accounting.holds is False


def test_a_crashed_run_measures_up_to_its_last_whole_second(tmp_path: Path) -> None:
    one = summary(tmp_path, state="running", valid=None, measured_to_s=None, accounting=None)
    assert one.accounting.holds is None
    assert one.measured_s == 2  # seconds 1 and 2; 3 may be a part of one
    assert one.rate_reached_per_s == 18.5


def test_mostly_not_2xx(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny")
    text = (run / "outcomes.csv").read_text()
    (run / "outcomes.csv").write_text(text.replace("1,n,ok,200", "1,n,http_5xx,503"))
    one = open_run(run).summary()
    assert (one.by_outcome["ok"], one.slots, one.mostly_not_2xx) == (15, 40, True)


def test_wrks_timeouts_are_slots_of_over_two_seconds_with_or_without_a_reply(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny", accounting=None)
    with RunWriter.create(tmp_path / "more", {"schema": 1}) as more:
        more.histogram(2, "n", "failed", [13_000], [3])  # 2.8 s: three of the four read timeouts below
        more.histogram(3, "n", "censored", [13_000], [1])  # one of the three unfinished ones
        more.outcome(2, "n", "read_timeout", "", 4, 0, 0)
        more.outcome(3, "n", "unfinished", "", 1, 0, 0)
    for name in ("histograms.hlog", "outcomes.csv"):
        lines = (tmp_path / "more" / name).read_text().splitlines(keepends=True)
        with (run / name).open("a") as file:
            file.writelines(lines[3:] if name.endswith("hlog") else lines[1:])
    assert open_run(run).summary().wrk.timeout_estimate == 1 + 3 + 1


def test_an_absurd_end_in_the_manifest_does_not_make_an_absurd_loop(tmp_path: Path) -> None:
    one = summary(tmp_path, measured_to_s=1e12)
    assert one.measured_s == 3
    assert summary(tmp_path / "late", measured_from_s=1e12).measured_s == 0


def test_a_warm_up_that_ends_within_a_second_takes_the_whole_second(tmp_path: Path) -> None:
    assert summary(tmp_path, measured_from_s=0.2).response.n == 40


def test_only_known_roles_use_resources(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny")
    with (run / "resources.csv").open("a") as file:
        file.write("1,stranger,x,0.1,0.1,1,proc\n")
    assert set(open_run(run).folded.usage) == {"gateway"}


def test_unsent_slots_count_in_the_window_where_they_were_due(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny")
    with (run / "slots.csv").open("a") as file:
        file.write("2,n,0,0,0,0,6\n1,n,0,0,0,0,1\n")
    one = open_run(run).summary()
    assert one.changes[0].by_class == {"http_5xx": 2, "reset": 1, "unsent": 6}
    assert one.background_errors_per_s == 1.0


def test_shared_core_and_clipped_samples_are_warnings(tmp_path: Path) -> None:
    run = tiny(tmp_path / "tiny", host={"shared_core": True})
    with (run / "generator.csv").open("a") as file:
        file.write("1,w,,,,,,,,,,2\n2,w,,,,,,,,,,1\n")
    assert open_run(run).summary().warnings == (
        "load generator and gateway shared a core: latencies are not comparable",
        "3 samples were longer than an hour and are counted as one hour",
    )


def test_a_run_killed_before_its_first_second(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1, "state": "starting"}):
        pass
    one = open_run(tmp_path / "run").summary()
    assert (one.verdict, one.slots, one.measured_s, one.rate_asked_per_s) == ("incomplete", 0, 0, None)
    assert one.gateway == "target"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gateway": "nginx"}, r"manifest\.json: gateway is 'nginx', not dict or null"),
        ({"gateway": {"name": 3}}, r"manifest\.json: gateway: name is 3, not str or null"),
        ({"measured_from_s": -1}, "measured_from_s is -1, not a number from 0"),
        ({"rate_per_s": "fast"}, "rate_per_s is 'fast', not a number"),
        ({"valid": "yes"}, "valid is 'yes', not bool or null"),
        ({"accounting": {"due": 1e300}}, r"accounting: due is 1e\+300"),
    ],
)
def test_a_manifest_of_wrong_types_is_an_error(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    run = tiny(tmp_path / "tiny")
    (run / "manifest.json").write_text(json.dumps({**MANIFEST, **changed}))
    with pytest.raises(RunDirError, match=message):
        open_run(run)


def test_summary_json_by_hand(tmp_path: Path) -> None:
    written = json.loads(write_summary([summary(tmp_path)], tmp_path / "summary.json").read_text(), parse_constant=_no)
    (run,) = written["runs"]
    assert written["schema"] == 1
    assert run["response"] == {
        "n": 40,
        "lost": 3,
        "p50_us": 29,
        "p75_us": 50,
        "p90_us": None,
        "p95_us": None,
        "p99_us": None,
        "p99_9_us": None,
        "p99_99_us": None,
        "max_us": 1000,
        "at_least": ["max_us"],
        "absent": {
            "p90_us": "only 4 of 40 samples lie beyond it, 10 are needed",
            "p95_us": "only 2 of 40 samples lie beyond it, 10 are needed",
            "p99_us": "only 0 of 40 samples lie beyond it, 10 are needed",
            "p99_9_us": "only 0 of 40 samples lie beyond it, 10 are needed",
            "p99_99_us": "only 0 of 40 samples lie beyond it, 10 are needed",
        },
    }
    assert run["changes"][0] == {
        "id": "1",
        "kind": "scale",
        "label": "scale to 7",
        "requested_s": 2.2,
        "accepted_after_ms": pytest.approx(50),
        "applied_after_ms": None,
        "first_new_after_ms": pytest.approx(100),
        "last_old_after_ms": None,
        "settled_after_ms": pytest.approx(100),
        "observed_ms": 100.0,
        "noop": False,
        "error": None,
        "window_s": [2, 4],
        "failed_in_window": 1,
        "error_replies_in_window": 2,
        "errors_in_window": {"http_5xx": 2, "reset": 1},
        "errors_above_background": 3.0,
    }
    assert run["wrk"] == {"connect": 5, "read": 1, "write": 0, "timeout_estimate": 1}
    assert run["outcome_codes"][0] == {"outcome": "ok", "code": "200", "count": 35}


def _no(constant: str) -> None:
    raise AssertionError(f"{constant} in summary.json")


def test_an_empty_run_has_no_nan_in_its_json(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1}):
        pass
    text = json.dumps(summary_json([open_run(tmp_path / "run").summary()]), allow_nan=False)
    assert json.loads(text)["runs"][0]["response"]["p50_us"] is None


def test_a_summary_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"summary\.json: .*; choose a folder that can be written"):
        write_summary([], tmp_path / "file" / "summary.json")


@pytest.mark.parametrize("workers", [1, 3])
def test_made_up_runs_account_for_every_slot(tmp_path: Path, workers: int) -> None:
    plan = synthetic.Plan(gateway="traefik", measured_s=6, changes_at_s=(3.5, 5.5), workers=workers)
    one = open_run(synthetic.write_run(tmp_path / "run", plan)).summary()
    assert (one.verdict, one.accounting.holds, one.slots) == ("valid", True, 18_000)
    assert one.by_outcome["http_5xx"] == sum(cost.error_replies for cost in one.changes) > 0


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    plan = synthetic.Plan(gateway="envoy", measured_s=4, changes_at_s=(3.5,), workers=2)
    run = synthetic.write_run(tmp_path / "run", plan)
    before: Any = summary_json([open_run(run).summary()])
    for name, head in (("histograms.hlog", 5), ("outcomes.csv", 1), ("slots.csv", 1), ("resources.csv", 1)):
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join([*lines[:head], *reversed(lines[head:])]))
    after: Any = summary_json([open_run(run).summary()])
    for one in (before, after):
        one["runs"][0]["outcome_codes"].sort(key=str)
        for usage in ("gateway_usage", "worker_usage"):
            one["runs"][0][usage] = {key: round(value, 9) for key, value in one["runs"][0][usage].items()}
    assert before == after
