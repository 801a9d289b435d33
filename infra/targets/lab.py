"""The lab as a target: a client of its control socket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.targets.changing import changes_between, evidence_for, in_words, state_after
from infra.targets.lines import LineError, LineSocket
from infra.targets.state import Applied, Evidence, State, TargetError, Usage
from infra.targets.steps import Change

__all__ = ["LabTarget"]


class LabTarget:
    """A running lab. Every request opens its own connection, so that one may run while another waits."""

    # A reload of a gateway under full load on one core was never seen to take over two seconds.
    _TIMEOUT_S = 60.0

    def __init__(self, control: Path) -> None:
        self._control = control
        self._gateway = self.facts()["gateway"]

    def facts(self) -> dict[str, object]:
        """Return the gateway's name, version, configuration digest and workers, and its addresses."""
        return self._ask("facts")

    def state(self) -> State:
        """Return the present state; raise TargetError if the gateway or a backend ended by itself."""
        return State.from_json(self._ask("state")["state"])

    def evidence(self, before: State, change: Change) -> Evidence:
        """Return how replies prove the change."""
        return evidence_for(before, change)

    def apply(self, change: Change) -> Applied:
        """Make the change and return once the gateway's control plane confirms it."""
        answer = self._ask("apply", change={"kind": change.kind, "params": change.params()})
        accepted_at_s, applied_at_s = answer["accepted_at_s"], answer["applied_at_s"]
        if not isinstance(accepted_at_s, float) or not isinstance(applied_at_s, float):
            raise TargetError(f"lab {self._control}: its answer to apply holds no times: {answer}")
        return Applied(accepted_at_s, applied_at_s, State.from_json(answer["state"]), noop=answer["noop"] is True)

    def put_back(self, original: State) -> list[str]:
        """Make the lab as it was, in one step: a gateway that reloads does so once."""
        present = self.state()
        done = []
        for change in changes_between(present, original):
            done.append(in_words(present, change))
            present = state_after(present, change)
        if done:
            self._ask("put_back", state=original.to_json())
        return done

    def usage(self) -> list[Usage]:
        """Return CPU and memory of the gateway and of every backend that ever ran."""
        parts = self._ask("usage")["usage"]
        if not isinstance(parts, list):
            raise TargetError(f"lab {self._control}: its answer to usage is no list")
        return [Usage(**part) for part in parts]

    def close(self) -> None:
        """Nothing is held between requests."""

    def _ask(self, op: str, **fields: object) -> dict[str, object]:
        try:
            with LineSocket.connect(self._control, timeout_s=self._TIMEOUT_S) as line:
                line.send({"op": op, **fields})
                answer = line.receive()
        except OSError as error:
            raise TargetError(f"lab {self._control}: {error.strerror or error}: is the lab still up?") from error
        except LineError as error:
            raise TargetError(f"lab {self._control}: {error}") from error
        if answer is None:
            raise TargetError(f"lab {self._control}: it ended before it answered")
        return _result(answer)


def _result(answer: Mapping[str, object]) -> dict[str, object]:
    if answer.get("ok") is not True:
        raise TargetError(str(answer.get("error", "the lab gave no reason")))
    return {key: value for key, value in answer.items() if key != "ok"}
