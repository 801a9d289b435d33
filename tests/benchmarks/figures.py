"""Measures what the engine promises, on this machine: rate and lateness at constant rates, and CPU per request beside
wrk's.

    python -m tests.benchmarks.figures            (about three minutes; needs two idle cores, and wrk for the ratio)

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
from pathlib import Path

from analysis import open_run
from infra.lab import Lab, LabSpec

ROOT = Path(__file__).parents[2]
WORKER_CORE, SERVER_CORE = 0, 1


def run_engine(lab: Lab, rate_per_s: int, connections: int, duration_s: int) -> dict[str, object]:
    """One run of the engine in a worker process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(ROOT / "locustfiles" / "constant_rate.py"),
            "--headless",
            "--only-summary",
        ]
        command += [
            "-u",
            str(connections),
            "--rate",
            f"{rate_per_s}/s",
            "--warmup",
            "3s",
            "--duration",
            f"{duration_s}s",
        ]
        command += [
            "--host",
            lab.url,
            "--ca",
            str(lab.ca_path),
            "--run-dir",
            str(run_dir),
            "--worker-cpus",
            str(WORKER_CORE),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=duration_s + 90)
        if done.returncode not in (0, 4):
            sys.exit(done.stderr[-2000:])
        summary = open_run(run_dir).summary()
        slots = [line.split(",") for line in (run_dir / "slots.csv").read_text().splitlines()[1:]]
        measured = [[int(number) for number in (row[0], *row[2:])] for row in slots if int(row[0]) >= 3]
        due, sent, late = (sum(row[place] for row in measured) for place in (1, 2, 3))
        workers = [line.split(",") for line in (run_dir / "resources.csv").read_text().splitlines()[1:]]
        cpu_s = sum(
            float(row[3]) + float(row[4]) for row in workers if row[1] == "worker" and 3 <= int(row[0]) < 3 + duration_s
        )
        rss = [int(row[5]) for row in workers if row[1] == "worker"]
        manifest = json.loads((run_dir / "manifest.json").read_text())
    return {
        "rate_per_s": rate_per_s,
        "connections": connections,
        "due": due,
        "sent_share": sent / due,
        "within_1_ms_share": 1 - late / due,
        "cpu_us_per_request": cpu_s / sent * 1e6,
        "rss_mb_first_last": [round(rss[0] / 1e6), round(rss[-1] / 1e6)],
        "valid": manifest["valid"],
        "invalid_reasons": manifest["invalid_reasons"],
        "accounting": manifest["accounting"],
        "summary": summary,
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
    with Lab.start(LabSpec(gateway="direct", replicas=1, cpus=(SERVER_CORE,), connections=1100)) as lab:
        for rate_per_s, connections in ((200, 20), (1000, 100), (5000, 100)):
            show(run_engine(lab, rate_per_s, connections, 10), None)
        wrk_before = wrk_cpu_us(lab, 1000, 8)
        full = run_engine(lab, 30_000, 1000, arguments.seconds)
        wrk_after = wrk_cpu_us(lab, 1000, 8)
        show(full, None if wrk_before is None or wrk_after is None else (wrk_before, wrk_after))


def show(figures: dict[str, object], wrk_us: tuple[float, float] | None) -> None:
    """One measurement on the terminal."""
    summary = figures.pop("summary")
    print(json.dumps(figures))  # noqa: T201
    print(f"  {summary}")  # noqa: T201
    if wrk_us is not None:
        mean = sum(wrk_us) / 2
        ratio = float(str(figures["cpu_us_per_request"])) / mean
        print(f"  wrk {wrk_us[0]:.1f} and {wrk_us[1]:.1f} us per request; ratio {ratio:.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
