"""How far a worker's monotonic clock is from the master's, from the best of some round trips."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """`worker clock = master clock + offset`, known to `error` (half of the shortest round trip)."""

    offset_s: float
    error_s: float

    @classmethod
    def of_round_trip(cls, sent_s: float, worker_s: float, received_s: float) -> "ClockOffset":
        """One round trip: the worker read its clock somewhere between our sending and our receiving."""
        return cls(worker_s - (sent_s + received_s) / 2, (received_s - sent_s) / 2)

    def better(self, other: "ClockOffset | None") -> "ClockOffset":
        """The one that is known more closely."""
        return self if other is None or self.error_s <= other.error_s else other


SAME = ClockOffset(0.0, 0.0)
"""Of a process with itself."""
