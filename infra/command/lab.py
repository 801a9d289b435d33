"""`ingress-swarm lab up`: a gateway and its backends in the foreground, for loading by hand."""

from __future__ import annotations

import os
import shlex
import time

import click

from infra.command.cores import available_cores, split_cores
from infra.command.engine import locustfile
from infra.command.errors import FINE, CommandError, UsageError
from infra.command.interrupts import Interrupts
from infra.command.limits import raise_file_limit
from infra.command.options import COUNT, REPLICAS
from infra.lab import GATEWAYS, ORDERS, Lab, LabError, LabSpec
from infra.targets import TargetError, load_target, open_target
from infra.targets.located import nearest

__all__ = ["command"]

_LOOK_EVERY_S = 1.0


@click.group("lab")
def command() -> None:
    """Gateways and backends on this machine, with their own certificate, on free ports of 127.0.0.0/8."""


@command.command("up")
@click.argument("gateway")
@click.option("--replicas", type=REPLICAS, default=5, show_default=True, help="Backends at the start.")
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Worker threads of the gateway.")
@click.option("--connections", type=COUNT, default=1000, show_default=True, help="Client connections that must fit.")
@click.option("--http", is_flag=True, help="Print the plain HTTP listener's URL; there is always one of each.")
@click.option(
    "--lab-order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="Who hears of a scale-down first.",
)
def up(gateway: str, replicas: int, workers: int, connections: int, http: bool, lab_order: str) -> int:  # noqa: FBT001
    """Start GATEWAY (nginx, haproxy, envoy, traefik, or direct) with its backends; Ctrl-C ends it.

    \b
    Examples:
      ingress-swarm lab up envoy
      ingress-swarm lab up nginx --replicas 7 --workers 2 --http
    """
    if gateway not in GATEWAYS:
        raise UsageError(f"gateway: given {gateway!r}, allowed {', '.join(GATEWAYS)}{nearest(gateway, GATEWAYS)}")
    raise_file_limit(connections, lab=True)
    cores = split_cores(available_cores())
    try:
        spec = LabSpec(
            gateway=gateway,
            replicas=replicas,
            workers=workers,
            connections=connections,
            tls=not http,
            cpus=cores.lab,
            order=lab_order,
            max_replicas=max(16, replicas),
        )
    except LabError as error:
        raise UsageError(str(error)) from error
    parent = os.getppid()
    try:
        with Interrupts(), Lab.start(spec) as lab:
            click.echo(_welcome(lab, gateway, http=http))
            _stay(lab, parent)
    except KeyboardInterrupt:
        click.echo()
    except (LabError, TargetError) as error:
        raise CommandError(str(error)) from error
    click.echo(f"{gateway} ended")
    return FINE


def _stay(lab: Lab, parent: int) -> None:
    """Wait until our parent is gone (kill -9 tells nobody); raise TargetError once a part of the lab is."""
    target = open_target(load_target(lab.target_path))
    try:
        while os.getppid() == parent:
            target.state()
            time.sleep(_LOOK_EVERY_S)
    finally:
        target.close()


def _welcome(lab: Lab, gateway: str, *, http: bool) -> str:
    url = lab.http_url if http else lab.url
    trust = [] if http else ["--ca", str(lab.ca_path)]
    locust = ["locust", "-f", str(locustfile("constant_rate")), "--headless", "-u", "100", "--host", url, *trust]
    locust += ["--rate", "1000/s", "--duration", "30s"]
    run = ["ingress-swarm", "run", "nginx-2020-dynamic", "--target", str(lab.target_path)]
    return "\n".join(
        [
            f"{gateway} {lab.gateway_version} is up; Ctrl-C ends it",
            f"  URL     {url}",
            f"  CA      {lab.ca_path}",
            f"  target  {lab.target_path}",
            "load it by hand:",
            f"  {shlex.join(locust)}",
            "load it while it changes:",
            f"  {shlex.join(run)}",
        ]
    )
