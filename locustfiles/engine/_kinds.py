"""Kinds of endings: each distinct (outcome, code, gateway, backend, path, CORS) gets a small number, so that a slot's
row is numbers only.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from locustfiles.engine._outcome import REPLIES, Verdict, reply_outcome
from locustfiles.engine._reply import Head

REPEAT_PREFIX: Final = "repeat:"
_LIMIT: Final = 4_096


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a slot, or with a `repeat:` code an attempt, has ended.

    The last four come from a reply's head.
    """

    outcome: str
    code: str
    gateway: str = ""
    backend: str = ""
    path: str = ""
    cors: bool = False

    @property
    def is_reply(self) -> bool:
        """Whether a complete reply came."""
        return self.outcome in REPLIES

    @property
    def is_repeat(self) -> bool:
        """Whether this ended only an attempt of a slot that was repeated."""
        return self.code.startswith(REPEAT_PREFIX)


class Kinds:
    """Numbers for kinds. Bounded: a peer that varies its headers without end is folded into kinds without them."""

    def __init__(self) -> None:
        self.list: list[Kind] = []
        self._numbers: dict[Kind, int] = {}
        self._replies: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._repeats: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def number(self, kind: Kind) -> int:
        """The number of a kind, given out at its first sight."""
        found = self._numbers.get(kind)
        if found is None:
            if len(self.list) >= _LIMIT and (kind.gateway or kind.backend or kind.path):
                return self.number(Kind(kind.outcome, kind.code, cors=kind.cors))
            found = self._numbers[kind] = len(self.list)
            self.list.append(kind)
            self._replies = np.append(self._replies, kind.is_reply)
            self._repeats = np.append(self._repeats, kind.is_repeat)
        return found

    def of_reply(self, head: Head, outcome: str | None = None) -> int:
        """The number of a complete reply; `outcome` where a check says otherwise than the status."""
        return self.number(
            Kind(
                outcome or reply_outcome(head.status),
                str(head.status),
                head.gateway,
                head.backend,
                head.path,
                head.cors,
            )
        )

    def of_verdict(self, verdict: Verdict, *, repeat: bool = False) -> int:
        """The number of a failure, or of an attempt that is repeated."""
        return self.number(Kind(verdict.outcome, REPEAT_PREFIX + verdict.code if repeat else verdict.code))

    def are_replies(self) -> NDArray[np.bool_]:
        """For each number whether it is a reply."""
        return self._replies

    def are_repeats(self) -> NDArray[np.bool_]:
        """For each number whether it is only a repeated attempt."""
        return self._repeats
