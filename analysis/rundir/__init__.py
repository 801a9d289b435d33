"""The run directory: what a run leaves behind. Cheap to import, as the load worker does.

Writing: `RunWriter`. Reading: `RunReader`. Histogram arithmetic: `hdr_index`, `hdr_value`, `hdr_lowest`.
"""

from analysis.rundir._errors import RunDirError
from analysis.rundir._hdr import HDR_HIGHEST_US, HDR_SIZE, hdr_index, hdr_lowest, hdr_value
from analysis.rundir._hlog import Interval
from analysis.rundir._layout import (
    CENSORED,
    FAILURES,
    METRICS,
    OUTCOMES,
    REPLIES,
    SCHEMA,
    ConnectionsRow,
    GeneratorRow,
    OutcomeRow,
    ReplicaRow,
    ResourceRow,
    SlotsRow,
)
from analysis.rundir._payload import PayloadError, decode_payload, encode_payload
from analysis.rundir._reader import RunReader
from analysis.rundir._writer import RunWriter

__all__ = [
    "SCHEMA",
    "METRICS",
    "OUTCOMES",
    "REPLIES",
    "FAILURES",
    "CENSORED",
    "RunDirError",
    "RunWriter",
    "RunReader",
    "Interval",
    "SlotsRow",
    "OutcomeRow",
    "ConnectionsRow",
    "ReplicaRow",
    "ResourceRow",
    "GeneratorRow",
    "HDR_HIGHEST_US",
    "HDR_SIZE",
    "hdr_index",
    "hdr_lowest",
    "hdr_value",
    "PayloadError",
    "decode_payload",
    "encode_payload",
]
