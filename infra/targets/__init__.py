"""What the churn hook edits: one small interface, and the targets that speak it."""

from infra.targets.opening import load_target, open_target
from infra.targets.state import Applied, Evidence, Marker, Rewrite, State, TargetError, Usage
from infra.targets.target import Target

__all__ = [
    "Target",
    "load_target",
    "open_target",
    "State",
    "Rewrite",
    "Evidence",
    "Marker",
    "Applied",
    "Usage",
    "TargetError",
]
