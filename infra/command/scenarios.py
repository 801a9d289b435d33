"""`ingress-swarm scenarios`: what there is to run."""

from __future__ import annotations

import click
import yaml

from infra.command.errors import FINE, UsageError
from infra.scenarios import ScenarioError, load_scenario, scenario_names
from infra.targets.units import format_count, format_duration

__all__ = ["command"]


@click.command("scenarios")
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """List the built-in scenarios, or print the one called NAME as YAML, ready to be changed and run from a file.

    \b
    Examples:
      ingress-swarm scenarios
      ingress-swarm scenarios nginx-2020-dynamic > mine.yaml
      ingress-swarm run ./mine.yaml --gateway traefik
    """
    if name is None:
        for known in scenario_names():
            scenario = load_scenario(known)
            size = (
                f"{format_count(scenario.rate_per_s)}/s over {format_count(scenario.connections)} connections"
                f" for {format_duration(scenario.duration_s)}"
            )
            click.echo(f"{known}\n    {scenario.about}\n    {size}")
        return FINE
    try:
        scenario = load_scenario(name)
    except ScenarioError as error:
        raise UsageError(str(error)) from error
    click.echo(yaml.safe_dump(scenario.to_data(), sort_keys=False, allow_unicode=True, width=110), nl=False)
    return FINE
