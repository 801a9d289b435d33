"""The built-in scenarios, and the reader for anyone's own."""

from infra.scenarios.loader import (
    PROFILES,
    load_scenario,
    parse_scenario,
    parse_timeout,
    parse_warmup_s,
    scenario_names,
)
from infra.scenarios.scenario import Options, Published, Scenario, ScenarioError

__all__ = [
    "PROFILES",
    "Options",
    "Published",
    "Scenario",
    "ScenarioError",
    "load_scenario",
    "parse_scenario",
    "parse_timeout",
    "parse_warmup_s",
    "scenario_names",
]
