"""Talks to the helper process that edits the target, so that no edit ever runs in a process that pumps."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import gevent
from gevent import subprocess
from gevent.event import AsyncResult

ANSWER_LIMIT_S: Final = 120.0
_CLOSE_LIMIT_S: Final = 30.0


class AgentError(Exception):
    """The target or its helper could not do what was asked; one line."""


class Agent:
    """One helper process.

    It puts the target back by itself if this process dies, because it then reads the end of its input.
    """

    def __init__(self, spec: Mapping[str, object], cpus: frozenset[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "infra.targets.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if cpus:
            with contextlib.suppress(OSError):  # a container may not give us those cores: then ours have to do
                os.sched_setaffinity(self._process.pid, cpus)
        self._waiting: dict[int, AsyncResult[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._reader = gevent.spawn(self._read)
        self._write(dict(spec))

    def ask(self, op: str, limit_s: float = ANSWER_LIMIT_S, **more: object) -> dict[str, Any]:
        """Ask and wait for the answer; other greenlets run meanwhile. Raises AgentError."""
        number = next(self._numbers)
        waiting: AsyncResult[dict[str, Any]] = AsyncResult()
        self._waiting[number] = waiting
        try:
            self._write({"id": number, "op": op, **more})
            answer: dict[str, Any] = waiting.get(timeout=limit_s)
        except gevent.Timeout:
            raise AgentError(f"{op}: no answer from the target within {limit_s:.0f} s") from None
        finally:
            self._waiting.pop(number, None)
        if not answer.get("ok"):
            raise AgentError(str(answer.get("error", "the target gave no reason")))
        return answer

    def close(self) -> None:
        """End the helper; it puts back what it still has changed."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already, with a request still in the pipe
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=1)
        self._process.stdout.close()

    def _write(self, message: Mapping[str, object]) -> None:
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise AgentError("the helper process that edits the target has ended") from None

    def _read(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            waiting = self._waiting.get(answer.get("id"))
            if waiting is not None:
                waiting.set(answer)
        for waiting in list(self._waiting.values()):
            waiting.set({"ok": False, "error": "the helper process that edits the target has ended"})
