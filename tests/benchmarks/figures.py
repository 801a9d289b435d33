"""Measures what the engine promises, on this machine: rate and lateness at constant rates, and CPU per request beside
wrk's.

    python -m tests.benchmarks.figures            (about four minutes; needs two idle cores, and wrk for the ratio)

The server is one nginx that answers from memory on core 1; the load worker has core 0. wrk runs before and after each
full-rate run, because a machine's speed drifts; the ratio is to the mean of both. Nothing here is a test: an absolute
time on a shared machine proves nothing.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from analysis import open_run
from infra.lab import Lab, LabSpec
from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._pump import FOLD_ROWS
from locustfiles.engine._recorder import COLUMNS, Recorder

ROOT = Path(__file__).parents[2]
WORKER_CORE, SERVER_CORE = 0, 1
WARMUP_S = 3


def recording_us(rows: int = 300_000, rate_per_s: int = 30_000) -> float:
    """CPU that the recorder takes per request, its folding into histograms included."""
    recorder = Recorder(Kinds(), 200)
    kind = recorder.kinds.number(Kind("ok", "200", "gateway-0", "1", "/"))
    recorder.begin(100.0)
    started_s = time.process_time()
    for number in range(rows):
        end_s = 100.0 + number / rate_per_s
        recorder.rows.extend((end_s - 0.001, end_s - 0.01, end_s - 0.0009, end_s, kind, 1200))
        if len(recorder.rows) >= FOLD_ROWS * COLUMNS:
            recorder.fold()
    recorder.fold()
    return (time.process_time() - started_s) / rows * 1e6


def run_engine(lab: Lab, rate_per_s: int, connections: int, duration_s: int, idle: str) -> dict[str, Any]:
    """One run of the engine in a worker process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        profile = ROOT / "locustfiles" / "constant_rate.py"
        words = f"-f {profile} --headless --only-summary -u {connections} --rate {rate_per_s}/s --idle {idle}"
        words += f" --warmup {WARMUP_S}s --duration {duration_s}s --worker-cpus {WORKER_CORE} --host {lab.url}"
        command = [sys.executable, "-m", "locust", *words.split(), "--ca", str(lab.ca_path), "--run-dir", str(run_dir)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=duration_s + 90)
        if done.returncode not in (0, 4):
            sys.exit(done.stderr[-2000:])
        summary = open_run(run_dir).summary()
        slots = [line.split(",") for line in (run_dir / "slots.csv").read_text().splitlines()[1:]]
        measured = [[int(number) for number in (row[0], *row[2:])] for row in slots if int(row[0]) >= WARMUP_S]
        due, sent, late = (sum(row[place] for row in measured) for place in (1, 2, 3))
        workers = [line.split(",") for line in (run_dir / "resources.csv").read_text().splitlines()[1:]]
        cpu_s = sum(
            float(row[3]) + float(row[4])
            for row in workers
            if row[1] == "worker" and 0 <= int(row[0]) - WARMUP_S < duration_s
        )
        rss = [int(row[5]) for row in workers if row[1] == "worker"]
        manifest = json.loads((run_dir / "manifest.json").read_text())
    quantiles = {
        name: None if quantile.value_us is None else quantile.value_us / 1000
        for name, quantile in summary.response.quantiles.items()
    }
    return {
        "rate_per_s": rate_per_s,
        "connections": connections,
        "idle": manifest["options"]["idle"],
        "sent_percent": round(100 * sent / due, 3),
        "within_1_ms_percent": round(100 * (1 - late / due), 2),
        "response_ms": {name: quantiles[name] for name in ("p50", "p99", "p99.9")},
        "cpu_us_per_request": round(cpu_s / sent * 1e6, 1),
        "rss_mb_first_last": [round(rss[0] / 1e6), round(rss[-1] / 1e6)],
        "accounting": manifest["accounting"],
        "valid": manifest["valid"],
        "warnings": manifest["warnings"],
    }


def wrk_cpu_us(lab: Lab, connections: int, duration_s: int) -> float | None:
    """CPU of wrk's closed loop per request, on the worker's core; None without wrk."""
    if shutil.which("wrk") is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["taskset", "-c", str(WORKER_CORE), "wrk", "-t1", f"-c{connections}", f"-d{duration_s}s", lab.url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests = next(int(line.split()[0]) for line in out.splitlines() if "requests in" in line)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / requests * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="measured seconds at the full rate (default 30)")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this needs two cores: one for the load, one for the server")
    print(f"recording: {recording_us():.2f} us of CPU per request")  # noqa: T201
    with Lab.start(LabSpec(gateway="direct", replicas=1, cpus=(SERVER_CORE,), connections=1100)) as lab:
        for idle in ("sleep", "spin"):
            for rate_per_s, connections in ((200, 20), (1000, 100), (5000, 100)):
                print(json.dumps(run_engine(lab, rate_per_s, connections, 10, idle)))  # noqa: T201
        wrk_before = wrk_cpu_us(lab, 1000, 8)
        full = run_engine(lab, 30_000, 1000, arguments.seconds, "sleep")
        wrk_after = wrk_cpu_us(lab, 1000, 8)
        print(json.dumps(full))  # noqa: T201
        if wrk_before is None or wrk_after is None:
            print("wrk is not installed: no ratio")  # noqa: T201
        else:
            ratio = full["cpu_us_per_request"] / ((wrk_before + wrk_after) / 2)
            print(f"wrk {wrk_before:.1f} and {wrk_after:.1f} us per request; ratio {ratio:.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
