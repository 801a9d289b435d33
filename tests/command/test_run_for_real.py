"""The command against real gateways, and every way in which it can end."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_started import SMALL, Started, left_behind, run_dirs, until

from infra.command.main import run

pytestmark = pytest.mark.integration

DYNAMIC, STATIC = "nginx-2020-dynamic", "nginx-2020-static"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, as the lab's control socket lies below it; nothing may be left running in it."""
    path = Path(tempfile.mkdtemp(prefix="swarm-test-"))
    try:
        yield path
        until(lambda: not left_behind(path), timeout_s=15)
    finally:
        for process in left_behind(path):
            process.kill()
        shutil.rmtree(path, ignore_errors=True)


def manifest_of(run_dir: Path) -> Any:
    return json.loads((run_dir / "manifest.json").read_text())


def events_of(run_dir: Path) -> list[dict[str, Any]]:
    last = {}
    for line in (run_dir / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        last[event["id"]] = event
    return list(last.values())


def scaled_to(folder: Path, replicas: int) -> bool:
    """Return whether the newest run has applied that scale."""
    dirs = run_dirs(folder)
    return bool(dirs) and any(
        event.get("params") == {"replicas": replicas} and event.get("applied_s") is not None
        for event in (events_of(dirs[-1]) if (dirs[-1] / "events.jsonl").exists() else [])
    )


def test_a_dynamic_run_and_its_baseline_end_with_a_table_and_one_report(folder: Path) -> None:
    words = ["--gateway", "nginx,direct", *SMALL, "--duration", "2s"]
    command = Started(folder, "run", DYNAMIC, *words)
    assert command.wait() in (0, 4), command.said  # 4: this machine was too busy for valid figures
    gateway, baseline = run_dirs(folder)
    for run_dir in (gateway, baseline):
        manifest = manifest_of(run_dir)
        assert manifest["state"] == "finished"
        assert manifest["accounting"] == {"due": 900, "response": 900, "failed": 0, "censored": 0}
        assert manifest["scenario"]["rate"] == "300/s"
        assert manifest["host"]["kind"] == "lab"
        assert manifest["published"]["source"] == "NGINX blog, 22 Sep 2020"
    assert manifest_of(gateway)["gateway"]["name"] == "nginx"
    assert manifest_of(gateway)["labels"] == {"gateway": "nginx", "repeat": "1"}
    assert manifest_of(gateway)["campaign"] == manifest_of(baseline)["campaign"]
    scales = [event["params"] for event in events_of(gateway) if event["kind"] == "scale"]
    assert scales[:2] == [{"replicas": 5}, {"replicas": 7}]
    assert [event for event in events_of(baseline) if event["kind"] == "scale"] == []

    assert "connections" not in command.said.splitlines()[0]
    assert "direct has no gateway to change: it is loaded without churn" in command.said
    (report,) = (folder / "runs" / "reports").glob("*.html")
    assert f"report: {report.relative_to(folder)}" in command.said
    assert "<html" in report.read_text()
    summary = json.loads(report.with_suffix(".json").read_text())
    assert [run["slots"] for run in summary["runs"]] == [600, 600]


def test_ctrl_c_ends_a_run_in_order_and_reports_it(folder: Path) -> None:
    command = Started(folder, "run", DYNAMIC, "--gateway", "nginx,haproxy", *SMALL, "--duration", "60s")
    command.until(lambda: scaled_to(folder, 7))
    command.interrupt()
    assert command.wait(20) in (130, 4), command.said
    (run_dir,) = run_dirs(folder)  # the second gateway is not started any more
    manifest = manifest_of(run_dir)
    assert manifest["state"] == "finished"
    assert manifest["target"]["restored"] is True
    accounting = manifest["accounting"]
    assert accounting["due"] == accounting["response"] + accounting["failed"] + accounting["censored"]
    assert (run_dir / "report.html").exists()
    assert "Traceback" not in command.said


def test_a_second_ctrl_c_ends_it_at_once(folder: Path) -> None:
    command = Started(folder, "run", DYNAMIC, "--gateway", "nginx", *SMALL, "--duration", "60s")
    command.until(lambda: scaled_to(folder, 7))
    (engine,) = [child for child in psutil.Process(command.process.pid).children() if "locust" in child.cmdline()]
    engine.suspend()  # an engine that cannot end in order
    command.interrupt()
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(1)
    command.interrupt()
    assert command.wait(10) == 130, command.said
    assert "Traceback" not in command.said


def test_ctrl_c_while_a_gateway_starts(folder: Path) -> None:
    command = Started(folder, "run", STATIC, "--gateway", "traefik", *SMALL)
    command.until(lambda: any(folder.glob("swarm-lab-*")))
    command.interrupt()
    assert command.wait(20) == 130, command.said
    assert "Traceback" not in command.said


def test_nothing_outlives_a_command_that_was_killed(folder: Path) -> None:
    command = Started(folder, "run", DYNAMIC, "--gateway", "nginx", *SMALL, "--duration", "60s")
    command.until(lambda: scaled_to(folder, 7))
    command.process.kill()
    command.wait()
    until(lambda: not left_behind(folder), timeout_s=20)
    (run_dir,) = run_dirs(folder)
    assert run(["report", str(run_dir)]) == 0
    assert (run_dir / "report.html").exists()


def test_restore_after_a_crash_puts_back_what_the_run_could_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Started(folder, "lab", "up", "nginx")
    lab.until(lambda: "load it while it changes" in lab.said)
    (target,) = folder.glob("swarm-lab-*/target.yaml")
    command = Started(folder, "run", DYNAMIC, "--target", str(target), *SMALL, "--duration", "60s")
    command.until(lambda: scaled_to(folder, 7))
    # The machine's own crash takes all of a run at once: its command, engine, and the helper that would put back.
    for process in [process for process in psutil.process_iter() if is_part_of_a_run(process, folder)]:
        process.send_signal(signal.SIGKILL)
    command.wait()
    (run_dir,) = run_dirs(folder)
    assert manifest_of(run_dir)["target"]["original"]["replicas"] == 5

    assert run(["report", str(run_dir)]) == 0
    capsys.readouterr()
    assert run(["restore", str(run_dir)]) == 2  # nobody to ask
    said = capsys.readouterr()
    assert "replicas: 7 to 5" in said.out
    assert "give --yes to put it back" in said.err
    assert run(["restore", "--target", str(target), "--out", str(folder / "runs"), "--yes"]) == 0
    assert "put back: replicas: 7 to 5" in capsys.readouterr().out
    assert events_of(run_dir)[-1]["kind"] == "restore"
    assert events_of(run_dir)[-1]["params"] == {"changed": ["replicas: 7 to 5"]}
    assert run(["restore", str(run_dir)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["report", str(run_dir)]) == 0

    lab.interrupt()
    assert lab.wait(15) == 0, lab.said
    capsys.readouterr()
    assert run(["restore", str(run_dir), "--yes"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def is_part_of_a_run(process: psutil.Process, folder: Path) -> bool:
    try:
        words, inside = process.cmdline(), process.environ().get("TMPDIR") == str(folder)
    except psutil.Error:
        return False
    return inside and any(word in ("run", "locust", "infra.targets.agent") for word in words)


def test_a_lab_in_the_foreground_ends_with_its_parent(folder: Path) -> None:
    waits = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    lab = Started(folder, "lab", "up", "direct", "--http", under=[sys.executable, "-c", waits])
    lab.until(lambda: "Ctrl-C ends it" in lab.said)
    assert "http://127.0.0.1:" in lab.said
    lab.process.kill()  # the parent of the command, which cannot tell it
    lab.wait()
    until(lambda: not left_behind(folder), timeout_s=15)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--host", "https://127.0.0.1:1"], "127.0.0.1"),
        (["--host", "https://192.88.99.1:1"], "say --i-may-load 192.88.99.1"),  # a range that nobody uses any more
    ],
)
def test_a_host_that_cannot_be_loaded_is_one_line(folder: Path, words: list[str], problem: str) -> None:
    command = Started(folder, "run", STATIC, *words, *SMALL, "--duration", "2s")
    assert command.wait(20) == 2, command.said
    assert problem in command.said
    assert len([line for line in command.said.splitlines() if line.startswith("ingress-swarm: ")]) == 1
    assert run_dirs(folder) == []


def test_doctor_finds_this_machine_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("Python", "nginx", "haproxy", "envoy", "traefik", "open files", "loopback"))
