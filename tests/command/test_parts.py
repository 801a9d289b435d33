"""The parts of a campaign that need no process."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra.command.campaign import campaign_name, rotated
from infra.command.checks import cgroup_cpus, new_connections_per_s, other_work
from infra.command.cores import Cores, kept_off, split_cores
from infra.command.display import Display
from infra.command.engine import Call, Load, arguments
from infra.command.errors import worst
from infra.command.interrupts import Interrupts
from infra.command.limits import files_needed
from infra.command.saturation import friendly_rate
from infra.command.size import Size, sized
from infra.command.tail import Snapshot, Tail
from infra.scenarios import load_scenario
from infra.targets.plan import Loop, Scale, Wait

STATIC, DYNAMIC = load_scenario("nginx-2020-static"), load_scenario("nginx-2020-dynamic")


@pytest.mark.parametrize(
    ("available", "processes", "cores"),
    [
        ([0], 1, Cores(worker=(0,), lab=(0,), shared=True)),
        ([0, 1], 1, Cores(worker=(0,), lab=(1,), shared=False)),
        ([0, 1], 4, Cores(worker=(0,), lab=(1,), shared=False)),
        ([5, 2, 3, 7], 2, Cores(worker=(2, 3), lab=(5, 7), shared=False)),
    ],
)
def test_the_load_has_cores_of_its_own_where_there_are_two(available: list[int], processes: int, cores: Cores) -> None:
    assert split_cores(available, processes) == cores


def test_the_command_keeps_off_the_load_and_comes_back() -> None:
    before = os.sched_getaffinity(0)
    one = max(before)
    with kept_off(Cores(worker=(min(before),), lab=(one,), shared=False)):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 1], 1), ([1, 3, 0], 3), ([3, 4, 1], 4), ([2], 2), ([0, 130], 130), ([1, 130], 1)],
)
def test_of_several_runs_the_worst_counts(codes: list[int], code: int) -> None:
    assert worst(codes) == code


@pytest.mark.parametrize(("by", "order"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc")])
def test_repeats_begin_with_the_next_gateway(by: int, order: str) -> None:
    assert rotated("abc", by) == list(order)


def test_no_two_campaigns_have_the_same_name() -> None:
    assert campaign_name("demo") != campaign_name("demo")


def test_a_gateway_holds_two_sockets_for_each_connection() -> None:
    assert files_needed(1000, lab=True) - files_needed(1000, lab=False) == 1000


@pytest.mark.parametrize(
    ("saturation", "rate"),
    [
        (13_800.0, 6900.0),
        (3790.0, 1800.0),
        (2000.0, 1000.0),
        (1990.0, 990.0),
        (415.0, 200.0),
        (25.0, 10.0),
        (3.0, 10.0),
    ],
)
def test_half_of_a_saturation_is_rounded_down(saturation: float, rate: float) -> None:
    assert friendly_rate(saturation) == rate


@given(st.floats(min_value=20, max_value=1e6))
def test_a_friendly_rate_is_held_by_the_slowest(saturation: float) -> None:
    assert 10 <= friendly_rate(saturation) <= saturation / 2


def test_a_lab_run_is_scaled_down_aloud_except_for_what_was_said() -> None:
    scenario, said = sized(DYNAMIC, Size(rate_per_s=3000.0), shrink=True)
    assert (scenario.rate_per_s, scenario.connections, scenario.duration_s, scenario.warmup_s) == (
        3000.0,
        100,
        20.0,
        2.0,
    )
    assert scenario.churn is not None
    assert scenario.churn.steps == (Loop((Scale(5), Wait(2.0), Scale(7), Wait(2.0))),)
    assert said == (
        "scaled down for the lab: connections 100 instead of 1,000, 20s instead of 180s, "
        "warm-up 2s instead of 15s, waits 2s instead of 12s and 10s"
    )


def test_what_was_said_is_kept_and_waits_are_scaled_by_the_factor_alone() -> None:
    size = Size(rate_per_s=5.0, connections=2, duration_s=9.0, warmup_s=0.0, wait_scale=0.5)
    scenario, said = sized(DYNAMIC, size, shrink=True)
    assert scenario.churn is not None
    assert scenario.churn.steps == (Loop((Scale(5), Wait(6.0), Scale(7), Wait(5.0))),)
    assert (scenario.rate_per_s, scenario.connections, scenario.duration_s, scenario.warmup_s) == (5.0, 2, 9.0, 0.0)
    assert said == ""


def test_without_a_lab_nothing_is_scaled() -> None:
    assert sized(STATIC, Size(), shrink=False) == (STATIC, "")


def test_the_engine_is_told_everything_on_its_command_line(tmp_path: Path) -> None:
    load = Load(
        insecure=True,
        ca=Path("ca.pem"),
        resolve=("a:1:127.0.0.1",),
        drain_s=1.0,
        processes=2,
        i_may_load=("a",),
        max_rate_per_s=9e4,
        abort_on="errors > 50% for 10s",
    )
    cores = Cores(worker=(0, 2), lab=(3,), shared=False)
    call = Call(DYNAMIC, "https://a:1", tmp_path / "run", load, Path("/t.yaml"), cores)
    line = " ".join(arguments(call, tmp_path))
    assert line.startswith(f"{sys.executable} -m locust -f ")
    for words in (
        "/locustfiles/constant_rate.py --headless --only-summary -u 1000 --host https://a:1 --rate 30000/s",
        "--path / --method GET --warmup 15s --duration 180s",
        f"--run-dir {tmp_path}/run --run-meta {tmp_path}/meta.json --churn {tmp_path}/plan.yaml",
        "--target /t.yaml --wrk2",
        f"--insecure --ca {Path.cwd()}/ca.pem --drain 1s --processes 2 --master-bind-port ",
        " --max-rate 90000/s",
        "--abort-on errors > 50% for 10s --idle spin --worker-cpus 0,2 --resolve a:1:127.0.0.1 --i-may-load a",
    ):
        assert words in line
    assert "--churn" not in arguments(Call(STATIC, "https://a:1", tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("given", "cores", "idle"),
    [
        (None, Cores(worker=(0,), lab=(1,), shared=False), "spin"),
        (None, Cores(worker=(0,), lab=(0,), shared=True), "sleep"),
        (None, None, "sleep"),
        ("sleep", Cores(worker=(0,), lab=(1,), shared=False), "sleep"),
        ("spin", None, "spin"),
    ],
)
def test_workers_spin_where_a_core_is_theirs_alone(given: str | None, cores: Cores | None, idle: str) -> None:
    assert Load(idle=given).idle_on(cores) == idle


def test_a_run_directory_is_followed_while_it_grows(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.look() == Snapshot()
    with (
        (tmp_path / "slots.csv").open("w") as slots,
        (tmp_path / "outcomes.csv").open("w") as outcomes,
        (tmp_path / "events.jsonl").open("w") as events,
    ):
        slots.write(
            "second,name,due,sent,late_own,late_peer,unsent\n0,x,10,9,0,0,1\n0,x,10,9,0,0,1\n1,x,5,5,0,0,0\n2,x,5,"
        )
        outcomes.write("second,name,outcome,code,count,bytes_in,bytes_out\n0,x,ok,200,15,1,1\n0,x,http_5xx,502,3,1,1\n")
        outcomes.write("0,x,reset,,2,0,1\n0,x,refused,repeat:ECONNREFUSED,40,0,1\n")
        events.write(json.dumps({"id": 1, "kind": "epoch"}) + "\n")
        events.write(json.dumps({"id": 2, "kind": "scale", "params": {"replicas": 7}}) + "\n")
        for file in (slots, outcomes, events):
            file.flush()
        assert tail.look() == Snapshot(second=2, rate_per_s=18, failed=2, http_5xx=3, change="scale to 7")
        slots.write("4,0,0,1\n")
        events.write(json.dumps({"id": 3, "kind": "cors", "params": {"on": True}, "error": "gone"}) + "\n")
        slots.flush()
        events.flush()
        assert tail.look() == Snapshot(second=3, rate_per_s=5, failed=2, http_5xx=3, change="cors on failed")


def test_progress_without_a_terminal_is_a_plain_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    display = Display(Console(highlight=False, width=120))
    display.begin(STATIC.scaled(duration_s=10.0, warmup_s=2.0), "nginx")
    for second in range(1, 13):
        now_s += 1
        display.update(Snapshot(second, 300, 1, 0, "scale to 7"))
    display.end("3,600 slots")
    assert capsys.readouterr().out.splitlines() == [
        "nginx-2020-static  nginx  measuring 5/12 s  300/s  1 failed  scale to 7",
        "nginx-2020-static  nginx  measuring 10/12 s  300/s  1 failed  scale to 7",
        "nginx-2020-static  nginx  3,600 slots",
    ]


def test_a_signal_is_passed_on_while_an_engine_runs_and_raised_while_none_does() -> None:
    passed = []
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        with interrupts.passed_to(lambda: passed.append(1)):
            signal.raise_signal(signal.SIGINT)
            assert (passed, interrupts.stopping, interrupts.at_once) == ([1], True, False)
            signal.raise_signal(signal.SIGTERM)
            assert (passed, interrupts.at_once) == ([1, 1], True)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_least_quota_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    assert cgroup_cpus(tmp_path, "/outer/inner") is None
    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    assert cgroup_cpus(tmp_path, "/outer/inner") == 1.5
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_cpus(tmp_path, "/outer/inner") == 0.5


@pytest.mark.parametrize(("percent", "level"), [(3.0, "ok"), (20.0, "ok"), (55.0, "warn")])
def test_other_work_on_the_machine_is_a_warning(percent: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda _: percent)
    assert [(check.level, check.found) for check in other_work()] == [(level, f"{percent:.0f}% of the CPU in use")]


def test_ports_rest_for_a_minute_after_use() -> None:
    assert new_connections_per_s(32768, 60999) == pytest.approx(470.5, abs=0.1)
