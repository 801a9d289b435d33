"""From a target file to a target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from infra.targets.lab import LabTarget
from infra.targets.state import TargetError
from infra.targets.target import Target

__all__ = ["load_target", "open_target"]

_LAB_KEYS = ("kind", "control", "url", "ca", "gateway")


def load_target(path: Path) -> dict[str, object]:
    """Read a target file; raise TargetError if there is none, or it is no target."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise TargetError(f"target {path}: cannot read it: {reason}") from error
    except yaml.YAMLError as error:
        raise TargetError(f"target {path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise TargetError(f"target {path}: given {type(data).__name__}, allowed keys such as `kind: lab`")
    try:
        _check(data)
    except TargetError as error:
        raise TargetError(f"target {path}: {error}") from error
    return data


def open_target(spec: Mapping[str, object]) -> Target:
    """Return the target that `spec` (what load_target read) describes, connected; raise TargetError."""
    _check(spec)
    return LabTarget(Path(str(spec["control"])))


def _check(spec: Mapping[str, object]) -> None:
    if spec.get("kind") != "lab":
        raise TargetError(f"kind: given {spec.get('kind')!r}, allowed lab")
    for key in spec:
        if key not in _LAB_KEYS:
            raise TargetError(f"{key}: unknown key, allowed {', '.join(_LAB_KEYS)}")
    control = spec.get("control")
    if not isinstance(control, str) or not control.startswith("/"):
        raise TargetError(f"control: given {control!r}, allowed the absolute path of a lab's control socket")
