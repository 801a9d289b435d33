"""How much a gateway of the lab holds: a short load far above that, by the same engine that measures."""

from __future__ import annotations

import csv
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from infra.command.cores import Cores
from infra.command.engine import Call, Engine, Load
from infra.command.errors import CommandError
from infra.command.interrupts import Interrupts
from infra.lab import Lab
from infra.scenarios import Options, Scenario

__all__ = ["friendly_rate", "measure_saturation"]

# Far above what a gateway on one core answers: every connection sends again as soon as its reply is there.
_OFFERED_PER_S = 20_000.0
_WARMUP_S, _DURATION_S, _DRAIN_S = 1.0, 2.0, 1.0


def measure_saturation(lab: Lab, scenario: Scenario, cores: Cores, interrupts: Interrupts) -> float:
    """Return the replies per second that a lab's gateway gives when it is offered more than it can answer.

    At most 20,000 is offered. Raises CommandError if the engine cannot load it.
    """
    probe = replace(scenario.without_churn(), options=Options()).scaled(
        rate_per_s=_OFFERED_PER_S, warmup_s=_WARMUP_S, duration_s=_DURATION_S
    )
    with tempfile.TemporaryDirectory(prefix="ingress-swarm-") as folder:
        run_dir = Path(folder) / "run"
        load = Load(ca=lab.ca_path, drain_s=_DRAIN_S)
        call = Call(probe, lab.url, run_dir, load, cores=cores)
        with Engine(call, Path(folder)) as engine, interrupts.passed_to(engine.interrupt):
            engine.wait()
            if interrupts.stopping:
                raise KeyboardInterrupt
            replies_per_s = _replies_per_s(run_dir / "outcomes.csv")
            if replies_per_s <= 0:
                raise CommandError(f"cannot measure what {lab.url} holds: {engine.last_words()}")
    return replies_per_s


def friendly_rate(saturation_per_s: float) -> float:
    """Return half of a saturation, rounded down to a round number: to hundreds, below 1,000 to tens, at least 10."""
    half = saturation_per_s / 2
    step = 100 if half >= 1000 else 10
    return float(max(10, half // step * step))


def _replies_per_s(outcomes: Path) -> float:
    """Return the good replies per second of the measured seconds; zero if nothing was written."""
    replies: Counter[int] = Counter()
    if outcomes.is_file():
        with outcomes.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["outcome"] == "ok":
                    replies[int(row["second"])] += int(row["count"])
    measured = range(int(_WARMUP_S), int(_WARMUP_S + _DURATION_S))
    return sum(replies[second] for second in measured) / len(measured)
