"""A lab at work: the gateway, its backends, their present state, and how one change goes through them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

from infra.lab.backend import Backends
from infra.lab.binaries import find_program, program_version
from infra.lab.certificate import make_certificate
from infra.lab.gateway import (
    START_TIMEOUT_S,
    Gateway,
    Moments,
    Routing,
    Site,
    example_routing,
    example_site,
)
from infra.lab.lanes import gateway_class, program_name
from infra.lab.ports import PortTakenError, free_port
from infra.lab.probe import await_that, serves
from infra.lab.processes import Child, CpuTimes, process_trees
from infra.lab.spec import DIRECT, LabError, LabSpec
from infra.targets.changing import state_after
from infra.targets.state import Applied, State, Usage
from infra.targets.steps import Change

__all__ = ["LabCore"]

# Between the two halves of a scale-down that are not done together: long enough for hundreds of requests to meet it,
# and about what a busy cluster takes to tell its gateways of an endpoint.
ORDER_GAP_S = 0.5
_START_ATTEMPTS = 3
_log = logging.getLogger("infra.lab")


class LabCore:
    """Starts everything when it is made (raises LabError). Methods may be called from several threads."""

    def __init__(self, spec: LabSpec, folder: Path, open_files: int) -> None:
        self._spec = spec
        self._folder = folder
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._peaks: dict[tuple[str, str], CpuTimes] = {}
        self._open_files = open_files
        # Found before anything is started: what is missing should leave nothing behind.
        self._program = find_program(program_name(spec.gateway))
        self._backend_program = find_program(program_name(DIRECT))
        self._version = program_version(program_name(spec.gateway), self._program)
        self._certificate = make_certificate(folder)
        replicas = 1 if spec.gateway == DIRECT else spec.replicas
        self._state = State(replicas=replicas, cors=False, rewrite=None)
        self._backends = self._start_backends()
        self._gateway, self._site = self._start_gateway()

    @property
    def children(self) -> tuple[Child, ...]:
        """The processes that should be running: the gateway's and the backends'."""
        return (self._gateway.child, *self._backends.children)

    @property
    def addresses(self) -> dict[str, str]:
        """The URLs of the gateway's listeners, by scheme."""
        ports = {"https": self._site.https_port, "http": self._site.http_port}
        return {scheme: f"{scheme}://127.0.0.1:{port}" for scheme, port in ports.items()}

    @property
    def ca(self) -> Path:
        """The certificate to verify the HTTPS listener with."""
        return self._certificate.ca

    def fail(self, reason: str) -> None:
        """Note that the lab is broken; every later question is answered with the first reason."""
        _log.error("%s", reason)
        self._failure = self._failure or reason

    def facts(self) -> dict[str, object]:
        """Return what a manifest says about the gateway."""
        self._check()
        example = self._gateway.example(example_site(self._spec, self._open_files), example_routing(self._spec))
        digest = hashlib.sha256(example.encode()).hexdigest()
        return {
            "kind": "lab",
            "gateway": {
                "name": self._gateway.name,
                "version": self._gateway.version,
                "config_digest": f"sha256:{digest}",
                "workers": self._spec.workers,
            },
            "addresses": [self.addresses["https" if self._spec.tls else "http"].partition("://")[2]],
        }

    def state(self) -> State:
        """Return the present state; raise LabError if something broke."""
        self._check()
        return self._state

    def apply(self, change: Change) -> Applied:
        """Make a change and return when it is in force; raise LabError."""
        with self._lock:
            return self._become(state_after(self._state, change))

    def put_back(self, original: State) -> Applied:
        """Make the lab as it was, in one step; raise LabError."""
        with self._lock:
            return self._become(original)

    def usage(self) -> list[Usage]:
        """Return what the gateway and each backend used so far. Does not wait for a change under way."""
        table = process_trees([child.pid for child in self.children])
        name = f"{self._gateway.name}-0"
        if self._spec.gateway == DIRECT:
            return [self._usage("backend", "backend-1", self._gateway.child.usage(table))]
        backends = self._backends.usage(table)
        return [
            self._usage("gateway", name, self._gateway.child.usage(table)),
            *(self._usage("backend", f"backend-{replica}", used) for replica, used in sorted(backends.items())),
        ]

    def _become(self, after: State) -> Applied:
        self._check()
        if not 1 <= after.replicas <= self._spec.max_replicas:
            raise LabError(
                f"replicas: given {after.replicas}, allowed 1 to {self._spec.max_replicas} (the lab's max_replicas)"
            )
        if after == self._state:
            now_s = time.monotonic()
            return Applied(now_s, now_s, after, noop=True)
        if self._spec.gateway == DIRECT:
            # Refused before anything was touched, so the lab is as whole as before.
            self._gateway.apply(self._routing(after))
        try:
            moments = self._move(self._state, after)
        except LabError as error:
            self.fail(f"{self._gateway.name}: a change broke the lab: {error}")
            raise
        self._state = after
        _log.info("now %s", after)
        return Applied(moments.accepted_at_s, moments.applied_at_s, after)

    def _usage(self, role: str, name: str, used: CpuTimes) -> Usage:
        # A worker that exits between the reading of its master and its own is in neither for once: never go back.
        peak = self._peaks.get((role, name), CpuTimes())
        peak = CpuTimes(max(peak.user_s, used.user_s), max(peak.system_s, used.system_s))
        self._peaks[role, name] = peak
        return Usage(role, name, peak.user_s, peak.system_s, used.rss_bytes, "proc")

    def _check(self) -> None:
        if self._failure is not None:
            raise LabError(self._failure)

    def _routing(self, state: State) -> Routing:
        endpoints = tuple(self._backends.endpoint(replica) for replica in range(1, state.replicas + 1))
        return Routing(endpoints, state.cors, state.rewrite)

    def _move(self, before: State, after: State) -> Moments:
        more = range(before.replicas + 1, after.replicas + 1)
        fewer = range(after.replicas + 1, before.replicas + 1)
        self._backends.start(more)
        if self._spec.order != "gateway-first":
            self._backends.terminate(fewer)
        if fewer and self._spec.order == "backend-first":
            time.sleep(ORDER_GAP_S)
        moments = self._gateway.apply(self._routing(after))
        if fewer and self._spec.order == "gateway-first":
            time.sleep(ORDER_GAP_S)
            self._backends.terminate(fewer)
        self._backends.collect()
        return moments

    def _start_backends(self) -> Backends:
        for attempt in range(_START_ATTEMPTS):
            backends = Backends(self._backend_program, self._folder, self._spec.max_replicas, self._spec.connections)
            if self._spec.gateway == DIRECT:
                return backends
            try:
                backends.start(range(1, self._state.replicas + 1))
            except PortTakenError as error:
                _log.warning("attempt %d: %s", attempt + 1, error)
                backends.terminate(range(1, len(backends.children) + 1))
                backends.collect()
            else:
                return backends
        raise LabError(f"backends: their ports were taken by others {_START_ATTEMPTS} times in a row: try again")

    def _start_gateway(self) -> tuple[Gateway, Site]:
        example = example_site(self._spec, self._open_files)
        for attempt in range(_START_ATTEMPTS):
            site = replace(
                example,
                folder=self._folder,
                certificate=self._certificate,
                https_port=free_port(),
                http_port=free_port(),
                admin_port=free_port(),
            )
            gateway = gateway_class(self._spec.gateway)(self._program, self._version, site)
            try:
                gateway.start(self._routing(self._state))
                for port, ca in ((site.https_port, self.ca), (site.http_port, None)):
                    await_that(
                        lambda port=port, ca=ca: serves("127.0.0.1", port, ca),  # type: ignore[misc]
                        gateway.child,
                        f"{gateway.name} serves port {port}",
                        timeout_s=START_TIMEOUT_S,
                        every_s=0.01,
                    )
            except PortTakenError as error:
                _log.warning("attempt %d: %s", attempt + 1, error)
            else:
                return gateway, site
        raise LabError(
            f"{self._spec.gateway}: its ports were taken by others {_START_ATTEMPTS} times in a row: try again"
        )
