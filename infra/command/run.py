"""`ingress-swarm run`: one scenario, against the lab, a target or a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from infra.command.campaign import Campaign, Place, campaign_name, check_out
from infra.command.cores import available_cores, kept_off, split_cores
from infra.command.display import Display, open_console
from infra.command.ending import finish
from infra.command.errors import UsageError
from infra.command.interrupts import Interrupts
from infra.command.lanes import Lane, check_lanes, run_lanes, say_what_blurs
from infra.command.limits import raise_file_limit
from infra.command.options import COUNT, FACTOR, GATEWAY_NAMES, Requests, load_of, load_options, out_option, requests_of
from infra.command.size import Size, sized
from infra.lab import GATEWAYS
from infra.lab.spec import DIRECT
from infra.scenarios import Scenario, ScenarioError, load_scenario, parse_scenario
from infra.targets import TargetError, load_target
from infra.targets.units import format_count, format_duration

__all__ = ["command"]


@click.command("run")
@click.argument("scenario")
@click.option(
    "--gateway", "gateways", type=GATEWAY_NAMES, help="Gateways of the lab, with commas between; default all."
)
@click.option("--target", type=click.Path(path_type=Path), help="File of a running target, as `lab up` writes it.")
@click.option("--host", help="A URL to load as it is; nothing is changed about it.")
@click.option("--repeat", type=COUNT, default=1, show_default=True, help="Run everything so often, in rotated order.")
@click.option("--full", is_flag=True, help="The published size, not the one scaled down for a lab.")
@click.option("--wait-scale", type=FACTOR, help="Multiply every wait of the churn plan.")
@out_option
@load_options
def command(
    scenario: str,
    gateways: tuple[str, ...] | None,
    target: Path | None,
    host: str | None,
    repeat: int,
    full: bool,  # noqa: FBT001 - click gives a flag so
    wait_scale: float | None,
    out: Path,
    **given: object,
) -> int:
    """Run SCENARIO, a built-in name or a YAML file, and end with a table and a report.

    \b
    Examples:
      ingress-swarm run nginx-2020-dynamic
          every gateway of the lab, and the baseline
      ingress-swarm run nginx-2020-dynamic --gateway nginx,envoy --repeat 3 --rate 3000/s
      ingress-swarm run ./mine.yaml --target lab-nginx/target.yaml
      ingress-swarm run nginx-2020-static --host https://10.0.0.7 --ca ca.pem --rate 500 --connections 50

    In the lab a built-in scenario is scaled down unless you say otherwise, and the command says so.

    Ctrl-C ends a run in order: replies are waited for, the target is put back, the report is made of what is there. A
    second Ctrl-C ends it at once. The exit code is the worst of all runs: 4 (invalid) beats 3 beats 1.
    """
    ways = {"--gateway": gateways, "--target": target, "--host": host}
    chosen_ways = [name for name, value in ways.items() if value is not None]
    if len(chosen_ways) > 1:
        raise UsageError(f"given {' and '.join(chosen_ways)}, allowed one of {', '.join(ways)}")
    size = Size(given["rate"], given["connections"], given["duration"], given["warmup"], wait_scale)  # type: ignore[arg-type]
    asked = _scenario(scenario, requests_of(given))
    if host is not None:
        _check_host(asked, host, size, full=full)
    ready, scaled_down = sized(asked, size, shrink=asked.built_in and host is None and not full)
    load = load_of(given)
    places = [_target_place(target)] if target is not None else []
    if host is not None:
        places.append(Place(title=urlsplit(host).hostname or "host", host=host))
    lanes = [] if places else _lanes(ready, gateways or GATEWAYS)
    raise_file_limit(ready.connections, lab=not places)
    check_out(out)

    cores = split_cores(available_cores(), load.processes or 1)
    with kept_off(cores), Interrupts() as interrupts, Display(open_console()) as display:
        campaign = Campaign(campaign_name(ready.name), out, load, cores, display, interrupts)
        check_lanes(campaign, lanes)
        _say_what_is_special(campaign, ready, lanes, scaled_down)
        try:
            run_lanes(campaign, lanes, repeat)
            for place in places * repeat:
                if not campaign.stopping:
                    campaign.run(ready, place, {})
        except KeyboardInterrupt:
            campaign.display.end()  # Ctrl-C while a gateway was starting: what exists is reported all the same
        return finish(campaign)


def _scenario(name: str, requests: Requests) -> Scenario:
    """Return the scenario with what the command line says about its requests."""
    try:
        scenario = load_scenario(name)
        changed = requests.on(scenario)
        # Read back as a whole: a path that the plan's rewrite never meets is found here.
        checked = parse_scenario(changed.to_data(), f"{scenario.name} with these options")
    except ScenarioError as error:
        raise UsageError(str(error)) from error
    return replace(checked, built_in=scenario.built_in)


def _check_host(scenario: Scenario, host: str, size: Size, *, full: bool) -> None:
    if urlsplit(host).scheme not in ("http", "https"):
        raise UsageError(
            f"--host: given {host!r}, allowed a URL with its scheme, such as https://{host.split('//')[-1]}"
        )
    if scenario.churn is not None:
        raise UsageError(
            f"--host: {scenario.name} changes what it loads, and a bare host cannot be changed: "
            "give --target FILE, or a scenario without churn such as nginx-2020-static"
        )
    if scenario.built_in and not full and (size.rate_per_s is None or size.connections is None):
        raise UsageError(
            f"--host: {scenario.name} as published loads {format_count(scenario.rate_per_s)}/s over "
            f"{format_count(scenario.connections)} connections for {format_duration(scenario.duration_s)}: "
            "give --rate and --connections, or --full if you mean that"
        )


def _target_place(path: Path) -> Place:
    try:
        spec = load_target(path)
    except TargetError as error:
        raise UsageError(str(error)) from error
    if not isinstance(spec.get("url"), str):
        raise UsageError(f"target {path}: url: missing, allowed the URL to load, such as https://127.0.0.1:8443")
    ca = spec.get("ca")
    return Place(
        title=str(spec.get("gateway") or spec["kind"]),
        host=str(spec["url"]),
        kind=str(spec["kind"]),
        target=path.absolute(),
        ca=Path(str(ca)) if ca else None,
    )


def _lanes(scenario: Scenario, gateways: Sequence[str]) -> list[Lane]:
    return [Lane(name, (scenario.without_churn() if name == DIRECT else scenario,)) for name in gateways]


def _say_what_is_special(campaign: Campaign, scenario: Scenario, lanes: Sequence[Lane], scaled_down: str) -> None:
    if scaled_down:
        campaign.display.note(f"{scaled_down} (--full runs the published size)")
    if scenario.churn is not None and any(lane.gateway == DIRECT for lane in lanes):
        campaign.display.note("direct has no gateway to change: it is loaded without churn, as the baseline")
    if scenario.gates:
        campaign.display.note(f"this version checks no gates: {', '.join(scenario.gates)} will not be decided")
    say_what_blurs(campaign, lab=bool(lanes))
