"""Arithmetic of the HdrHistogram layout: lowest value 1 us, highest 3,600 s, 3 significant digits.

A value v (whole microseconds) falls into bucket b = max(0, bits(v) - 11) and is kept with 11 significant bits:

    index = b * 1024 + (v >> b)

Values below 2,048 us are exact; above, all values of one index lie within 1/1,024 (0.1 %) of each other. This is the
layout of HdrHistogram itself, so counts arrays can be exchanged with its readers as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

HDR_LOWEST_US = 1
HDR_HIGHEST_US = 3_600_000_000
HDR_SIGNIFICANT_DIGITS = 3

_SUB_BUCKET_BITS = 11
_HALF_BITS = _SUB_BUCKET_BITS - 1
_BUCKETS = HDR_HIGHEST_US.bit_length() - _SUB_BUCKET_BITS + 1

HDR_SIZE = (_BUCKETS + 1) << _HALF_BITS
"""Length of a dense counts array (what HdrHistogram allocates for this range)."""

Indices = NDArray[np.int64]


def hdr_index(values_us: ArrayLike) -> Indices:
    """Index of each value in us. Values above the range are clamped to HDR_HIGHEST_US, negative ones to 0."""
    values = np.clip(np.asarray(values_us, dtype=np.int64), 0, HDR_HIGHEST_US)
    # frexp's exponent is the bit length, exactly, for every integer below 2**53.
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    bucket = np.maximum(bits - _SUB_BUCKET_BITS, 0)
    result: Indices = (bucket << _HALF_BITS) + (values >> bucket)
    return result


def hdr_lowest(indices: ArrayLike) -> Indices:
    """Lowest value in us that falls on each index."""
    index = np.asarray(indices, dtype=np.int64)
    bucket = _bucket(index)
    result: Indices = (index - (bucket << _HALF_BITS)) << bucket
    return result


def hdr_value(indices: ArrayLike) -> Indices:
    """Highest value in us that falls on each index: the value that quantiles report."""
    index = np.asarray(indices, dtype=np.int64)
    bucket = _bucket(index)
    result: Indices = ((index - (bucket << _HALF_BITS) + 1) << bucket) - 1
    return result


def _bucket(index: Indices) -> Indices:
    result: Indices = np.maximum((index >> _HALF_BITS) - 1, 0)
    return result
