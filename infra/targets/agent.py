"""Edits a target on behalf of a process that must not do so itself: `python -m infra.targets.agent`.

A load generator that waited for a reload would stall its own load. So its master starts this process, writes the target
(what a target file holds) as the first line, and then requests, one JSON object a line; replies come back in the order
in which they are ready, with the `id` of their request.

Requests: facts, state, usage; evidence and apply with `change`: {"kind", "params"}; put_back; keep (leave everything as
it is now, also at the end); quit. The state at the first `state` or `apply` is the original. At the end of its input,
on SIGTERM and at quit it puts the original back, if it changed anything; Ctrl-C is not for it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from infra.targets.lines import LONGEST_BYTES, LineError, decode_line, encode_line
from infra.targets.opening import open_target
from infra.targets.state import State, TargetError
from infra.targets.steps import Change, PlanError, from_params
from infra.targets.target import Target

__all__ = ["main"]

# These wait for a gateway, so they run beside the loop that reads: usage is asked each second meanwhile.
_SLOW = ("apply", "put_back")


def main() -> int:
    """Serve requests from standard input until it ends; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = _lines_until_term()
    first = next(lines, None)
    if first is None:
        return 0
    agent = Agent(first)
    with ThreadPoolExecutor(1, "apply") as slow:
        for line in lines:
            try:
                request = decode_line(line)
            except LineError as error:
                _reply({"id": None, "ok": False, "error": f"agent: {error}"})
                continue
            if request.get("op") == "quit":
                break
            if request.get("op") in _SLOW:
                slow.submit(lambda request=request: _reply(agent.answer(request)))  # type: ignore[misc]
            else:
                _reply(agent.answer(request))
    return agent.end()


class Agent:
    """Answers requests about one target. `answer` never raises for what a request can hold."""

    def __init__(self, spec_line: bytes) -> None:
        self._original: State | None = None
        self._changed = False
        self._lock = threading.Lock()
        self._target: Target | None = None
        self._refusal = ""
        try:
            self._target = open_target(decode_line(spec_line))
        except (TargetError, LineError) as error:
            # Told with every reply: this process has nobody else to tell it to.
            self._refusal = str(error)

    def answer(self, request: Mapping[str, object]) -> dict[str, object]:
        """Return the reply to a request."""
        number = request.get("id")
        if self._target is None:
            return {"id": number, "ok": False, "error": self._refusal}
        try:
            return {"id": number, "ok": True, **self._result(self._target, request)}
        except (TargetError, PlanError) as error:
            return {"id": number, "ok": False, "error": str(error)}

    def end(self) -> int:
        """Put the original back if anything was changed; return the exit code, 1 if that failed."""
        if self._target is None:
            return 1
        try:
            self._put_back(self._target)
        except TargetError as error:
            sys.stderr.write(f"agent: the target was not put back: {error}\n")
            return 1
        finally:
            self._target.close()
        return 0

    def _result(self, target: Target, request: Mapping[str, object]) -> dict[str, object]:
        match request.get("op"):
            case "facts":
                return {"facts": target.facts()}
            case "state":
                return {"state": self._state(target).to_json()}
            case "usage":
                return {"usage": [used.to_json() for used in target.usage()]}
            case "evidence":
                return {"evidence": target.evidence(target.state(), _change(request)).to_json()}
            case "apply":
                return self._apply(target, _change(request))
            case "put_back":
                return {"changed": self._put_back(target)}
            case "keep":
                self._changed = False
                return {}
            case other:
                raise TargetError(
                    f"op: given {other!r}, allowed facts, state, usage, evidence, apply, put_back, keep or quit"
                )

    def _state(self, target: Target) -> State:
        state = target.state()
        with self._lock:
            self._original = self._original or state
        return state

    def _apply(self, target: Target, change: Change) -> dict[str, object]:
        self._state(target)
        # Before the change, since half of one has to be put back, too.
        self._changed = True
        applied = target.apply(change)
        return {
            "accepted_at_s": applied.accepted_at_s,
            "applied_at_s": applied.applied_at_s,
            "state": applied.state.to_json(),
            "noop": applied.noop,
        }

    def _put_back(self, target: Target) -> list[str]:
        if not self._changed or self._original is None:
            return []
        done = target.put_back(self._original)
        self._changed = False
        return done


def _change(request: Mapping[str, object]) -> Change:
    change = request.get("change")
    if not isinstance(change, Mapping) or not isinstance(change.get("params"), Mapping):
        raise TargetError(f"change: given {change!r}, allowed an object of kind and params")
    return from_params(str(change.get("kind")), change["params"])


def _reply(message: Mapping[str, object]) -> None:
    try:
        # One write for each line: the threads' replies do not mix.
        os.write(1, encode_line(message))
    except BrokenPipeError:
        # Who asked is gone; the end of the input says so, too, and is what ends this process.
        return


def _lines_until_term() -> Iterator[bytes]:
    """Give each line of standard input; end at its end, and at SIGTERM."""
    wake, waker = socket.socketpair()
    with wake, waker:
        waker.settimeout(0)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        buffer = b""
        while len(buffer) <= LONGEST_BYTES:
            if wake.fileno() in select.select([0, wake.fileno()], [], [])[0]:
                break
            piece = os.read(0, 65_536)
            if not piece:
                break
            *lines, buffer = (buffer + piece).split(b"\n")
            yield from lines
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
