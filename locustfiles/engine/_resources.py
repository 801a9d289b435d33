"""CPU and memory each second: of the gateway and its backends from the target, of the master from itself."""

from typing import Any

from locustfiles.engine._agent import Agent, AgentError
from locustfiles.engine._health import Meter

Row = tuple[int, str, str, float, float, int, str]


class Resources:
    """`meter` None: there is no master process beside the worker. `agent` None: nothing is known of the target."""

    def __init__(self, meter: Meter | None, agent: Agent | None) -> None:
        self._meter = meter
        self._agent = agent
        self._last: dict[tuple[str, str], tuple[float, float]] = {}
        self.error: str | None = None

    def take(self, second: int) -> list[Row]:
        """Rows of resources.csv for what was used since the last call.

        A target that does not answer leaves a gap, told in `error`.
        """
        rows: list[Row] = []
        if self._meter is not None:
            used = self._meter.take()
            rows.append(
                (
                    second,
                    "master",
                    "0",
                    _number(used["cpu_user_s"]),
                    _number(used["cpu_system_s"]),
                    int(_number(used["rss_bytes"])),
                    "os.times",
                )
            )
        if self._agent is not None:
            try:
                usage = self._agent.ask("usage", limit_s=5.0)["usage"]
            except AgentError as error:
                self.error = str(error)
                return rows
            rows += [row for entry in usage if (row := self._since_last(second, entry)) is not None]
        return rows

    def _since_last(self, second: int, entry: dict[str, Any]) -> Row | None:
        key = (entry["role"], entry["name"])
        user_s, system_s = entry["cpu_user_s"], entry["cpu_system_s"]
        last = self._last.get(key)
        self._last[key] = (user_s, system_s)
        if last is None:
            return None  # what it used before the run is not the run's
        return (
            second,
            *key,
            max(0.0, user_s - last[0]),
            max(0.0, system_s - last[1]),
            entry["rss_bytes"],
            entry["source"],
        )


def _number(value: float | None) -> float:
    return 0.0 if value is None else value
