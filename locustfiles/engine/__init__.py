"""The engine: what makes a Locust process send on a schedule as precisely as wrk2, and record every slot.

A profile calls `install()` once and derives its user from `ConnectionUser`.
"""

from locustfiles.engine._install import install
from locustfiles.engine._user import ConnectionUser

__all__ = ["ConnectionUser", "install"]
