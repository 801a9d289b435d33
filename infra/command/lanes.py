"""The lanes of a campaign in the lab: one start of each gateway serves all its scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.command.campaign import Campaign, Place, rotated
from infra.command.cores import BUSY_SHARE, busy_share
from infra.command.errors import FAILED, UsageError
from infra.lab import Lab, LabError, LabSpec
from infra.lab.binaries import find_program
from infra.lab.spec import DIRECT
from infra.scenarios import Scenario

__all__ = ["Lane", "check_lanes", "lab_spec", "run_lanes", "say_what_blurs"]

_SPARE_REPLICAS = 16
BACKEND = "nginx"  # the program behind every gateway


@dataclass(frozen=True)
class Lane:
    """A gateway, and the scenarios that are run against one start of it, in order."""

    gateway: str
    scenarios: tuple[Scenario, ...]


def check_lanes(campaign: Campaign, lanes: Sequence[Lane]) -> None:
    """Raise UsageError, before anything is started, for what no lab can be or for a program that is not installed."""
    for lane in lanes:
        lab_spec(lane, campaign)
    for name in dict.fromkeys((BACKEND, *(lane.gateway for lane in lanes)) if lanes else ()):
        if name != DIRECT:
            try:
                find_program(name)
            except LabError as error:
                raise UsageError(str(error)) from error


def say_what_blurs(campaign: Campaign, *, lab: bool = True) -> None:
    """Say before anything is started what about this machine makes figures worse."""
    if campaign.cores.shared and lab:
        campaign.display.note("one core for the load and the gateway: latencies are not comparable")
    share = busy_share()
    if share > BUSY_SHARE:
        campaign.display.note(f"this machine is busy ({share:.0%} of its CPU): runs are likely to be invalid")


def lab_spec(lane: Lane, campaign: Campaign) -> LabSpec:
    """Return the lab that a lane needs; raise UsageError if no lab can be that large."""
    plans = [scenario.churn for scenario in lane.scenarios if scenario.churn is not None]
    try:
        return LabSpec(
            gateway=lane.gateway,
            tls=all(scenario.scheme == "https" for scenario in lane.scenarios),
            cpus=campaign.cores.lab,
            connections=max(scenario.connections for scenario in lane.scenarios),
            max_replicas=max([_SPARE_REPLICAS, *(plan.max_replicas or 0 for plan in plans)]),
        )
    except LabError as error:
        raise UsageError(str(error)) from error


def run_lanes(campaign: Campaign, lanes: Sequence[Lane], repeat: int) -> None:
    """Run every lane `repeat` times, each time beginning with the next one; ends early when the campaign is stopped.

    A lab that does not start fails its lane, and the others are run all the same.
    """
    by_name = {lane.gateway: lane for lane in lanes}
    for round_number in range(repeat if lanes else 0):
        for name in rotated(list(by_name), round_number):
            if campaign.stopping:
                return
            try:
                _run_lane(campaign, by_name[name], round_number)
            except LabError as error:
                campaign.failed(f"{name}: {error}", FAILED)


def _run_lane(campaign: Campaign, lane: Lane, round_number: int) -> None:
    campaign.display.busy(f"starting {lane.gateway}")
    with Lab.start(lab_spec(lane, campaign)) as lab:
        for scenario in lane.scenarios:
            if campaign.stopping:
                return
            https = scenario.scheme == "https"
            place = Place(
                title=lane.gateway,
                kind="lab",
                host=lab.url if https else lab.http_url,
                target=lab.target_path,
                ca=lab.ca_path if https else None,
            )
            campaign.run(scenario, place, {"gateway": lane.gateway, "repeat": str(round_number + 1)})
