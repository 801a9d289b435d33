"""The lab's control socket: JSON lines, one request and one reply at a time on a connection, any number of connections.

Requests: {"op": "state"}, {"op": "facts"}, {"op": "usage"}, {"op": "apply", "change": {"kind", "params"}} and
{"op": "put_back", "state": {"replicas", "cors", "rewrite"}}. Replies hold `ok` and either the result or `error`, one
line. Everything that comes in is checked here, since it ends up in files that gateways read.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from infra.lab.core import LabCore
from infra.lab.spec import LabError
from infra.targets.lines import LineError, LineSocket
from infra.targets.state import Applied, State, TargetError
from infra.targets.steps import Change, PlanError, from_params

__all__ = ["ControlServer"]

_log = logging.getLogger("infra.lab")


class ControlServer:
    """Serves a lab on a Unix socket that only its owner can reach, from threads of its own."""

    def __init__(self, core: LabCore, path: Path) -> None:
        self._core = core
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise LabError(f"control socket {path}: {error.strerror or error}") from error
        # The folder is 0700 already; this is for one that a person gave.
        path.chmod(0o600)
        self._listener.listen()
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="control client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with LineSocket(connection) as line:
            try:
                self._converse(line)
            except OSError as error:
                _log.warning("control: a client left: %s", error)

    def _converse(self, line: LineSocket) -> None:
        try:
            while (request := line.receive()) is not None:
                line.send(answer(self._core, request))
        except LineError as error:
            # Where the next message would begin is not known: this is the last reply on this connection.
            line.send({"ok": False, "error": f"control: {error}"})


def answer(core: LabCore, request: Mapping[str, object]) -> dict[str, object]:
    """Return the reply to a request; never raises for what a request can hold."""
    try:
        return {"ok": True, **_result(core, request)}
    except (LabError, TargetError, PlanError) as error:
        return {"ok": False, "error": str(error)}


def _result(core: LabCore, request: Mapping[str, object]) -> dict[str, object]:
    match request.get("op"):
        case "state":
            return {"state": core.state().to_json()}
        case "facts":
            return core.facts()
        case "usage":
            return {"usage": [used.to_json() for used in core.usage()]}
        case "apply":
            return _applied(core.apply(_change(request.get("change"))))
        case "put_back":
            return _applied(core.put_back(State.from_json(request.get("state"))))
        case other:
            raise LabError(f"op: given {other!r}, allowed state, facts, usage, apply or put_back")


def _applied(applied: Applied) -> dict[str, object]:
    return {
        "accepted_at_s": applied.accepted_at_s,
        "applied_at_s": applied.applied_at_s,
        "state": applied.state.to_json(),
        "noop": applied.noop,
    }


def _change(given: object) -> Change:
    if not isinstance(given, Mapping) or not isinstance(given.get("params"), Mapping):
        raise LabError(f"change: given {given!r}, allowed an object of kind and params")
    return from_params(str(given.get("kind")), given["params"])
