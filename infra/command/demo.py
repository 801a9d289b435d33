"""`ingress-swarm demo`: the main job, on this machine, in about two minutes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from infra.command.campaign import Campaign, campaign_name, check_out
from infra.command.cores import available_cores, kept_off, split_cores
from infra.command.display import Display, open_console
from infra.command.ending import finish
from infra.command.engine import Load
from infra.command.errors import CommandError
from infra.command.interrupts import Interrupts
from infra.command.lanes import Lane, check_lanes, lab_spec, run_lanes, say_what_blurs
from infra.command.limits import raise_file_limit
from infra.command.options import GATEWAY_NAMES, RATE, out_option
from infra.command.saturation import friendly_rate, measure_saturation
from infra.command.size import LAB_CONNECTIONS, LAB_WAIT_S, difference
from infra.lab import GATEWAYS, Lab, LabError
from infra.lab.spec import DIRECT
from infra.scenarios import Scenario, load_scenario
from infra.targets.units import format_count

__all__ = ["command"]

_WARMUP_S, _STATIC_S, _DYNAMIC_S = 2.0, 6.0, 9.0


@click.command("demo")
@click.option("--gateway", "gateways", type=GATEWAY_NAMES, help="Only these gateways, with commas between.")
@click.option("--rate", type=RATE, help="Load at this rate instead of measuring one that all hold.")
@out_option
def command(gateways: tuple[str, ...] | None, rate: float | None, out: Path) -> int:
    """Load the baseline and four gateways, first as they are, then while their backends come and go.

    Every gateway gets the same load: half of what the slowest of them holds, measured at the start. Ends with a table
    and a report. The exit code is 0 only if every run is valid and complete.
    """
    lanes = [_lane(name, None) for name in gateways or (DIRECT, *GATEWAYS[:-1])]
    raise_file_limit(LAB_CONNECTIONS, lab=True)
    check_out(out)
    cores = split_cores(available_cores())
    with kept_off(cores), Interrupts() as interrupts, Display(open_console()) as display:
        campaign = Campaign(campaign_name("demo"), out, Load(), cores, display, interrupts)
        check_lanes(campaign, lanes)
        _say_what_is_special(campaign, lanes)
        try:
            rate_per_s = rate if rate is not None else _common_rate(campaign, lanes)
            run_lanes(campaign, [_lane(lane.gateway, rate_per_s) for lane in lanes], repeat=1)
        except LabError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            campaign.display.end()  # Ctrl-C while a gateway was starting: what exists is reported all the same
        return finish(campaign)


def _lane(gateway: str, rate_per_s: float | None) -> Lane:
    """Return what a gateway is put through: static, then dynamic; the baseline has nothing that could change.

    The rate is the published one as long as none is known.
    """
    static = _small("nginx-2020-static", rate_per_s, _STATIC_S)
    dynamic = _small("nginx-2020-dynamic", rate_per_s, _DYNAMIC_S)
    return Lane(gateway, (static,) if gateway == DIRECT else (static, dynamic))


def _small(name: str, rate_per_s: float | None, duration_s: float) -> Scenario:
    return load_scenario(name).scaled(
        rate_per_s=rate_per_s,
        connections=LAB_CONNECTIONS,
        duration_s=duration_s,
        warmup_s=_WARMUP_S,
        longest_wait_s=LAB_WAIT_S,
    )


def _common_rate(campaign: Campaign, lanes: Sequence[Lane]) -> float:
    """Return half of what the slowest gateway holds, rounded down; the baseline holds more and is not asked."""
    asked = [lane for lane in lanes if lane.gateway != DIRECT] or lanes
    held: dict[str, float] = {}
    for lane in asked:
        campaign.display.busy(f"measuring what {lane.gateway} holds")
        with Lab.start(lab_spec(lane, campaign)) as lab:
            held[lane.gateway] = measure_saturation(lab, lane.scenarios[0], campaign.cores, campaign.interrupts)
        campaign.display.note(f"{lane.gateway} holds about {format_count(round(held[lane.gateway], -2))}/s")
    rate_per_s = friendly_rate(min(held.values()))
    slowest = min(held, key=lambda name: held[name])
    campaign.display.note(f"every gateway is loaded with {format_count(rate_per_s)}/s, half of what {slowest} holds")
    return rate_per_s


def _say_what_is_special(campaign: Campaign, lanes: Sequence[Lane]) -> None:
    full = load_scenario("nginx-2020-dynamic")
    campaign.display.note(difference(full, _small(full.name, None, _DYNAMIC_S)))
    if any(lane.gateway == DIRECT for lane in lanes):
        campaign.display.note(
            "direct is the baseline, a backend without a gateway: nothing to change, so it runs static only"
        )
    say_what_blurs(campaign)
