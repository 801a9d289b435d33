"""HdrHistogram's compressed V2 payload, to and from sparse (index, count) arrays, without touching empty counts.

Payload = base64(cookie, length, zlib(header, words)). A word is a count, or minus the length of a run of zeros;
words are zigzag numbers in LEB128, seven bits a byte, lowest first.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.rundir._hdr import HDR_HIGHEST_US, HDR_LOWEST_US, HDR_SIGNIFICANT_DIGITS, HDR_SIZE, Indices

_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_ENCODED_COOKIE = 0x1C849303 | 0x10
_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIIIQQd")
_MAX_WORD_BYTES = 8
_MAX_COUNT = 2**53 - 1
"""Above this a count would take a ninth byte, which LEB128 in this format packs differently; no run comes near."""
_MAX_INFLATED = _HEADER.size + HDR_SIZE * _MAX_WORD_BYTES
MAX_PAYLOAD_CHARS = 4 * (_MAX_INFLATED + 1024) // 3
"""No honest payload is longer, even if zlib could not shrink it at all."""


class PayloadError(ValueError):
    """A payload that is not a histogram of this layout. The message says what is wrong, not where."""


def encode_payload(indices: Sequence[int] | Indices, counts: Sequence[int] | Indices) -> str:
    """Payload of a histogram given by ascending indices and their counts (above zero); both may be empty.

    Raises PayloadError for indices that do not ascend or leave the range, and for counts below 1 or above 2**53 - 1.
    """
    index = np.asarray(indices, dtype=np.int64)
    count = np.asarray(counts, dtype=np.int64)
    if index.shape != count.shape or index.ndim != 1:
        raise PayloadError(f"{index.size} indices for {count.size} counts")
    if index.size and (index[0] < 0 or index[-1] >= HDR_SIZE or bool(np.any(np.diff(index) <= 0))):
        raise PayloadError(f"indices must ascend within 0..{HDR_SIZE - 1}")
    if index.size and (int(count.min()) < 1 or int(count.max()) > _MAX_COUNT):
        raise PayloadError(f"counts must lie within 1..{_MAX_COUNT}")
    zeros_before = np.diff(index, prepend=-1) - 1
    words = np.column_stack((_zigzag_of_zeros(zeros_before), count << 1)).ravel()
    has_word = np.column_stack((zeros_before > 0, np.ones(index.size, dtype=bool))).ravel()
    body = _leb128_encode(words[has_word])
    header = _HEADER.pack(_ENCODED_COOKIE, len(body), 0, HDR_SIGNIFICANT_DIGITS, HDR_LOWEST_US, HDR_HIGHEST_US, 1.0)
    packed = zlib.compress(header + body, 6)
    return base64.b64encode(_OUTER.pack(_COMPRESSED_COOKIE, len(packed)) + packed).decode("ascii")


def decode_payload(payload: str | bytes) -> tuple[Indices, Indices]:
    """Ascending indices and their counts of a payload. Inflates at most what this layout can hold.

    Raises PayloadError.
    """
    body = _inflate(payload)
    words = _leb128_decode(np.frombuffer(body, dtype=np.uint8))
    is_run = (words & 1) == 1
    step = np.where(is_run, (words >> 1) + 1, 1)
    # Each step is bounded by 2**55 and there are at most HDR_SIZE * 8 of them: check before the sum can overflow.
    if step.size and (int(step.max()) > HDR_SIZE or int(step.sum()) > HDR_SIZE):
        raise PayloadError(f"more than {HDR_SIZE} counts")
    counts = words >> 1
    is_count = ~is_run & (counts > 0)
    if bool(np.any(counts[is_count] > _MAX_COUNT)):
        raise PayloadError(f"a count above {_MAX_COUNT}")
    return (np.cumsum(step) - step)[is_count], counts[is_count]


def _zigzag_of_zeros(zeros: NDArray[np.int64]) -> NDArray[np.int64]:
    # Minus n in zigzag is 2n - 1. A single zero is written as the count 0, as HdrHistogram does.
    return np.where(zeros == 1, 0, 2 * zeros - 1)


def _leb128_encode(words: NDArray[np.int64]) -> bytes:
    if not words.size:
        return b""
    bits = np.frexp(words.astype(np.float64))[1]
    # frexp may round a word just below a power of two up; then one byte too many (a leading zero group) is harmless.
    length = np.maximum((bits + 6) // 7, 1)
    start = np.cumsum(length) - length
    out = np.zeros(int(length.sum()), dtype=np.uint8)
    for k in range(int(length.max())):
        here = length > k
        more = (length[here] > k + 1).astype(np.int64) << 7
        out[start[here] + k] = ((words[here] >> (7 * k)) & 0x7F) | more
    return out.tobytes()


def _leb128_decode(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    if not data.size:
        return np.zeros(0, dtype=np.int64)
    end = np.flatnonzero(data < 0x80)
    if not end.size or end[-1] != data.size - 1:
        raise PayloadError("its last number is cut off")
    start = np.concatenate((np.zeros(1, dtype=np.int64), end[:-1] + 1))
    length = end - start + 1
    longest = int(length.max())
    if longest > _MAX_WORD_BYTES:
        raise PayloadError("a number of more than eight bytes")
    words = (data[start] & 0x7F).astype(np.int64)
    for k in range(1, longest):
        here = np.flatnonzero(length > k)
        words[here] |= (data[start[here] + k].astype(np.int64) & 0x7F) << (7 * k)
    return words


def _inflate(payload: str | bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_CHARS:
        raise PayloadError(f"a payload of {len(payload)} characters, at most {MAX_PAYLOAD_CHARS} are allowed")
    try:
        raw = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError("not base64") from error
    if len(raw) < _OUTER.size:
        raise PayloadError("too short")
    cookie, packed_len = _OUTER.unpack_from(raw)
    if cookie != _COMPRESSED_COOKIE or packed_len != len(raw) - _OUTER.size:
        raise PayloadError("not a compressed V2 histogram")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(raw[_OUTER.size :], _MAX_INFLATED + 1)
    except zlib.error as error:
        raise PayloadError("its compressed part is damaged") from error
    if len(plain) > _MAX_INFLATED:
        raise PayloadError(f"it inflates to more than {_MAX_INFLATED} bytes")
    if not inflater.eof or len(plain) < _HEADER.size:
        raise PayloadError("its compressed part is cut off")
    cookie, body_len, offset, digits, lowest, highest, ratio = _HEADER.unpack_from(plain)
    body = plain[_HEADER.size :]
    if cookie != _ENCODED_COOKIE or body_len != len(body):
        raise PayloadError("not a V2 histogram")
    if (offset, digits, lowest, highest, ratio) != (0, HDR_SIGNIFICANT_DIGITS, HDR_LOWEST_US, HDR_HIGHEST_US, 1.0):
        raise PayloadError(
            f"a histogram of {lowest}..{highest} with {digits} digits; only "
            f"{HDR_LOWEST_US}..{HDR_HIGHEST_US} with {HDR_SIGNIFICANT_DIGITS} can be added up"
        )
    return body
