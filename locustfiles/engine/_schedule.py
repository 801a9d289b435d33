"""When each request is due: pure arithmetic on an epoch, with no clock, socket or Locust in sight.

Slot k of an epoch is due at t0 + k / R. Connection i of N takes the slots i, i + N, i + 2N, ... Every start is
computed from t0, so an error never adds up and being late is visible, not forgiven.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """A stretch of a run in which rate, connections and workers stay as they are.

    `t0_s` is on this process's monotonic clock; `numbers` are the connections of this process, ascending, out of
    `connections` in all.
    """

    number: int
    t0_s: float
    rate_per_s: float
    connections: int
    numbers: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s > 0):
            raise ValueError(f"rate: given {self.rate_per_s}, allowed above 0 per second")
        if any(not 0 <= number < self.connections for number in self.numbers):
            raise ValueError(f"connection numbers must lie in 0..{self.connections - 1}")

    def due_s(self, number: int, turn: int) -> float:
        """When connection `number` is due for its `turn`-th time (from 0)."""
        return self.t0_s + (number + turn * self.connections) / self.rate_per_s

    @property
    def period_s(self) -> float:
        """Time between two slots of one connection."""
        return self.connections / self.rate_per_s

    def due_before(self, moment_s: float) -> int:
        """How many slots of this process's connections are due before `moment_s`."""
        reach = _slots_before(self.t0_s, self.rate_per_s, moment_s)
        rounds, rest = divmod(reach, self.connections)
        return rounds * len(self.numbers) + sum(1 for number in self.numbers if number < rest)

    def due_between(self, start_s: float, end_s: float) -> int:
        """How many slots of this process's connections are due in start_s <= t < end_s."""
        return self.due_before(end_s) - self.due_before(start_s)


def _slots_before(t0_s: float, rate_per_s: float, moment_s: float) -> int:
    """Slots k >= 0 with t0 + k / R < moment.

    The product decides nearly always; its rounding is put right by the sum that the pump uses.
    """
    if moment_s <= t0_s:
        return 0
    slots = math.ceil((moment_s - t0_s) * rate_per_s)
    while slots > 0 and t0_s + (slots - 1) / rate_per_s >= moment_s:
        slots -= 1
    while t0_s + slots / rate_per_s < moment_s:
        slots += 1
    return slots


def deal(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Deal connection numbers 0..sum(counts)-1 to workers with `counts` connections each, spread as evenly as whole
    numbers allow.

    Even spreading matters: a worker with a solid block of numbers would send its whole share in one burst each round.
    """
    order = sorted(((place + 0.5) / count, worker) for worker, count in enumerate(counts) for place in range(count))
    numbers: list[list[int]] = [[] for _ in counts]
    for number, (_, worker) in enumerate(order):
        numbers[worker].append(number)
    return [tuple(mine) for mine in numbers]
