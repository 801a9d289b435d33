"""The lab: real gateways and real backends on loopback addresses of this machine."""

from infra.lab.client import Lab
from infra.lab.spec import GATEWAYS, ORDERS, LabError, LabSpec

__all__ = ["GATEWAYS", "Lab", "LabError", "LabSpec", "ORDERS"]
