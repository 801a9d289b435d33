"""Changes of a run: from events to what each cost.

**Change window** = from the request until settled + 5 s, at most until the next change; without a settled time, until
the next change or the end. Errors are kept per second, so a window is made of whole seconds: a second belongs to the
last change requested before that second ends, if that change's window reaches into it. What lies in no window is
background, and a window's errors above the background are attributed to its change. Slots left without an end belong to
no second but that of the end of the run, and stay out; those never sent count where they were due.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from analysis.rundir import FAILURES, RunDirError

SETTLED_MARGIN_S = 5.0

_NO_CHANGE = frozenset({"epoch", "incident"})
_PUT_BACK = "restore"


@dataclass(frozen=True)
class Change:
    """One step of churn as the run recorded it. Times in seconds since t0; None where the moment was never seen."""

    id: str
    kind: str
    label: str
    requested_s: float
    accepted_s: float | None
    applied_s: float | None
    first_new_s: float | None
    last_old_s: float | None
    settled_s: float | None
    observed_ms: float | None
    noop: bool
    error: str | None

    def after_request_ms(self, moment_s: float | None) -> float | None:
        """Return how long after the request a moment was, in ms."""
        return None if moment_s is None else (moment_s - self.requested_s) * 1000


@dataclass(frozen=True)
class ChangeCost:
    """What happened in the window of one change. All counts are of measured seconds."""

    change: Change
    window_s: tuple[int, int] | None
    by_class: Mapping[str, int]
    above_background: float | None

    @property
    def failed(self) -> int:
        """Slots that ended in the window without a complete reply."""
        return sum(count for outcome, count in self.by_class.items() if not outcome.startswith("http_"))

    @property
    def error_replies(self) -> int:
        """Replies with a 4xx or 5xx status in the window."""
        return sum(count for outcome, count in self.by_class.items() if outcome.startswith("http_"))


@dataclass(frozen=True)
class KindOfChange:
    """All changes of one label. No-ops are left out; figures over changes that were observed at all."""

    label: str
    n: int
    observed: int
    observed_median_ms: float | None
    observed_max_ms: float | None
    errors: int
    errors_above_background: float | None


def parse_changes(events: Iterable[Mapping[str, object]], where: str) -> list[Change]:
    """Changes among events, by the time of their request. Raises RunDirError naming the event."""
    changes = [_change(event, where) for event in events if event.get("kind") not in _NO_CHANGE]
    return sorted(changes, key=lambda change: change.requested_s)


def cost_of_changes(
    changes: Sequence[Change], errors: Mapping[str, NDArray[np.int64]], first_second: int, measured: tuple[int, int]
) -> tuple[list[ChangeCost], float | None]:
    """Attribute errors to changes; also return the background in errors per second (None: no second was quiet).

    `errors`: per class one count for each second from `first_second` on. `measured`: first measured second, and the
    one after the last; the drain behind it still belongs to the last window, but not to the background.
    """
    length = max((counts.size for counts in errors.values()), default=0)
    total = sum(errors.values(), np.zeros(length, dtype=np.int64))
    windows = _windows(changes, end_s=first_second + length)
    owner = np.full(length, -1, dtype=np.int64)
    for number, window in enumerate(windows):
        if window is not None:
            owner[max(window[0], measured[0], first_second) - first_second : max(window[1] - first_second, 0)] = number
    seconds = np.arange(first_second, first_second + length)
    quiet = (owner < 0) & (seconds >= measured[0]) & (seconds < measured[1])
    background_per_s = float(total[quiet].mean()) if quiet.any() else None
    costs = []
    for number, (change, window) in enumerate(zip(changes, windows, strict=True)):
        own = owner == number
        by_class = {outcome: int(counts[own].sum()) for outcome, counts in errors.items() if counts[own].any()}
        above = None
        if window is not None and own.any():
            above = max(0.0, sum(by_class.values()) - (background_per_s or 0.0) * int(own.sum()))
        costs.append(ChangeCost(change, window, by_class, above))
    return costs, background_per_s


def kinds_of_change(costs: Sequence[ChangeCost]) -> tuple[KindOfChange, ...]:
    """Group costs by label, in order of first appearance; no-ops, refused changes and the putting back stay out."""
    groups: dict[str, list[ChangeCost]] = {}
    for cost in costs:
        if not cost.change.noop and cost.change.error is None and cost.change.kind != _PUT_BACK:
            groups.setdefault(cost.change.label, []).append(cost)
    return tuple(_kind(label, group) for label, group in groups.items())


def is_error(outcome: str) -> bool:
    """Whether an outcome is an error to the user: no complete reply, or a 4xx or 5xx one."""
    return outcome in FAILURES or outcome in ("http_4xx", "http_5xx", "unfinished", "unsent")


def _kind(label: str, group: Sequence[ChangeCost]) -> KindOfChange:
    observed = [cost.change.observed_ms for cost in group if cost.change.observed_ms is not None]
    above = [cost.above_background for cost in group if cost.above_background is not None]
    return KindOfChange(
        label=label,
        n=len(group),
        observed=len(observed),
        observed_median_ms=statistics.median(observed) if observed else None,
        observed_max_ms=max(observed, default=None),
        errors=sum(cost.failed + cost.error_replies for cost in group),
        errors_above_background=sum(above) if above else None,
    )


def _windows(changes: Sequence[Change], end_s: float) -> list[tuple[int, int] | None]:
    """First second and the one after the last of each window; a later window takes seconds from an earlier one."""
    windows: list[tuple[int, int] | None] = []
    # The putting back comes after the drain, when no slot can end any more: it neither has a window nor ends one.
    real = [change for change in changes if not change.noop and change.kind != _PUT_BACK]
    follower = {id(change): after.requested_s for change, after in pairwise(real)}
    for change in changes:
        if change.noop or change.kind == _PUT_BACK:
            windows.append(None)
            continue
        until_s = min(end_s, follower.get(id(change), end_s))
        if change.settled_s is not None:
            until_s = min(until_s, change.settled_s + SETTLED_MARGIN_S)
        windows.append((int(np.floor(change.requested_s)), int(np.ceil(max(until_s, change.requested_s)))))
    return windows


def _change(event: Mapping[str, object], where: str) -> Change:
    name = f"{where}: event {str(event.get('id'))[:20]}"
    requested_s = _number(event, "requested_s", name)
    if requested_s is None:
        raise RunDirError(f"{name}: a change without requested_s")
    params = event.get("params")
    error = event.get("error")
    return Change(
        id=str(event.get("id", "")),
        kind=str(event["kind"]),
        label=_label(str(event["kind"]), params if isinstance(params, dict) else {}),
        requested_s=requested_s,
        accepted_s=_number(event, "accepted_s", name),
        applied_s=_number(event, "applied_s", name),
        first_new_s=_number(event, "first_new_s", name),
        last_old_s=_number(event, "last_old_s", name),
        settled_s=_number(event, "settled_s", name),
        observed_ms=_number(event, "observed_ms", name),
        noop=event.get("noop") is True,
        error=None if error is None else str(error)[:300],
    )


def _number(event: Mapping[str, object], key: str, where: str) -> float | None:
    value = event.get(key)
    if value is None:
        return None
    if not _is_number(value) or abs(value) > 1e9:
        raise RunDirError(f"{where}: {key} is {repr(value)[:40]}, not a number or null")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _label(kind: str, params: Mapping[str, object]) -> str:
    """Return a change in a few words: `scale to 7`, `cors on`, `rewrite /api to /v2`, `rewrite off`."""
    if kind == "scale" and "replicas" in params:
        text = f"scale to {params['replicas']}"
    elif kind == "cors" and "on" in params:
        text = f"cors {'on' if params['on'] is True else 'off'}"
    elif kind == "rewrite" and "rewrite" in params:
        rewrite = params["rewrite"]
        text = f"rewrite {rewrite.get('from')} to {rewrite.get('to')}" if isinstance(rewrite, dict) else "rewrite off"
    elif kind == _PUT_BACK:
        text = "put back"
    else:
        text = " ".join([kind, *(f"{key}={value}" for key, value in params.items())])
    return text[:80]
