"""The words in which a target speaks: its state, what a reply must show after a change, what a change cost it.

Plain frozen values without behaviour beyond checking and JSON, so that the engine, the command line and every target
can share them without importing each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Applied", "Evidence", "Marker", "Rewrite", "State", "TargetError", "Usage"]

# What a gateway's configuration file could read as syntax (quotes, braces, blanks, semicolons, dollars, backslashes)
# is left out, so that a path can be written into one as it is.
_SAFE_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,200}")


class TargetError(Exception):
    """A target cannot do or tell what was asked; the message is one line for a person."""


@dataclass(frozen=True)
class Rewrite:
    """A path prefix that the gateway replaces before the backend sees the request: `/api` to `/v2`.

    Both start with `/`, do not end with it, and hold only letters, digits and `. _ ~ - /`. Neither starts with the
    other: the path that a backend received could not show whether the rewrite was on.
    """

    from_path: str
    to_path: str

    def __post_init__(self) -> None:
        """Refuse what is no plain path: it ends up in configuration files."""
        for key, path in (("from", self.from_path), ("to", self.to_path)):
            if not isinstance(path, str) or not _SAFE_PATH.fullmatch(path):
                raise TargetError(
                    f"rewrite: {key}: given {path!r}, allowed a path of letters, digits and . _ ~ - / from /"
                )
            if path.endswith("/"):
                raise TargetError(f"rewrite: {key}: given {path!r}, allowed a path below / that does not end with /")
        if self.to_path.startswith(self.from_path) or self.from_path.startswith(self.to_path):
            raise TargetError(
                f"rewrite: given {self.from_path} to {self.to_path}, allowed two paths of which neither starts with "
                "the other: replies could not show whether it is on"
            )

    def to_json(self) -> dict[str, str]:
        """Return it as plans and scenarios spell it."""
        return {"from": self.from_path, "to": self.to_path}

    @classmethod
    def from_json(cls, data: object) -> Rewrite:
        """Read `{from: /api, to: /v2}`; raise TargetError for anything else."""
        if not isinstance(data, Mapping) or set(data) != {"from", "to"}:
            raise TargetError(f"rewrite: given {data!r}, allowed {{from: /path, to: /path}}")
        return cls(from_path=data["from"], to_path=data["to"])


@dataclass(frozen=True)
class State:
    """What churn changes about a target: how many backends serve, and what the gateway does to their traffic."""

    replicas: int
    cors: bool
    rewrite: Rewrite | None

    def __post_init__(self) -> None:
        """Refuse a state that no target can be in."""
        if isinstance(self.replicas, bool) or not isinstance(self.replicas, int) or self.replicas < 0:
            raise TargetError(f"replicas: given {self.replicas!r}, allowed a whole number from 0")
        if not isinstance(self.cors, bool):
            raise TargetError(f"cors: given {self.cors!r}, allowed true or false")

    def to_json(self) -> dict[str, object]:
        """Return it as the run directory and the control protocol hold it."""
        rewrite = None if self.rewrite is None else self.rewrite.to_json()
        return {"replicas": self.replicas, "cors": self.cors, "rewrite": rewrite}

    @classmethod
    def from_json(cls, data: object) -> State:
        """Read what to_json wrote; raise TargetError for anything else."""
        if not isinstance(data, Mapping) or set(data) != {"replicas", "cors", "rewrite"}:
            raise TargetError(f"state: given {data!r}, allowed an object of replicas, cors and rewrite")
        rewrite = None if data["rewrite"] is None else Rewrite.from_json(data["rewrite"])
        return cls(replicas=data["replicas"], cors=data["cors"], rewrite=rewrite)


@dataclass(frozen=True)
class Marker:
    """A property of a reply. `field` says where to look, and a reply matches if it is one of `values`.

    - `backend`: the replica in X-Swarm-Backend;
    - `cors`: "on" if the reply carries Access-Control-Allow-Origin, else "off";
    - `path_prefix`: X-Swarm-Path starts with one of the values.
    """

    field: Literal["backend", "cors", "path_prefix"]
    values: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return it for the agent's pipe."""
        return {"field": self.field, "values": list(self.values)}


@dataclass(frozen=True)
class Evidence:
    """How replies prove a change: settled once every marker in `new` was seen and `old` is seen no more."""

    new: tuple[Marker, ...]
    old: Marker | None

    def to_json(self) -> dict[str, object]:
        """Return it for the agent's pipe."""
        return {"new": [marker.to_json() for marker in self.new], "old": self.old and self.old.to_json()}


@dataclass(frozen=True)
class Applied:
    """A change that was made. Both times are `time.monotonic()` of this machine, in seconds.

    `accepted_at_s`: the process or API took it; `applied_at_s`: its control plane says that it is in force. `state` is
    the state after it; `noop` says that it was the state before, too.
    """

    accepted_at_s: float
    applied_at_s: float
    state: State
    noop: bool = False


@dataclass(frozen=True)
class Usage:
    """What a part of the target has used since it started, children that have exited included.

    `cpu_user_s` and `cpu_system_s` only ever grow; `rss_bytes` is of this moment, summed over its live processes;
    `source` says where the figures come from (`proc`).
    """

    role: str
    name: str
    cpu_user_s: float
    cpu_system_s: float
    rss_bytes: int
    source: str

    def to_json(self) -> dict[str, object]:
        """Return it for control sockets and pipes."""
        return {
            "role": self.role,
            "name": self.name,
            "cpu_user_s": self.cpu_user_s,
            "cpu_system_s": self.cpu_system_s,
            "rss_bytes": self.rss_bytes,
            "source": self.source,
        }
