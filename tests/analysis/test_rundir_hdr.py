"""The histogram layout and its payload, against the HdrHistogram package as oracle."""

import base64
import struct
import zlib

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.rundir import (
    HDR_HIGHEST_US,
    HDR_SIZE,
    PayloadError,
    decode_payload,
    encode_payload,
    hdr_index,
    hdr_lowest,
    hdr_value,
)

values_us = st.integers(0, HDR_HIGHEST_US)
sparse = st.dictionaries(st.integers(0, HDR_SIZE - 1), st.integers(1, 2**53 - 1), max_size=60)


def oracle() -> HdrHistogram:
    return HdrHistogram(1, HDR_HIGHEST_US, 3)


@given(st.lists(values_us, min_size=1, max_size=50))
def test_index_and_highest_equivalent_value_are_those_of_hdrhistogram(values: list[int]) -> None:
    histogram = oracle()
    for value in values:
        histogram.record_value(value)
    expected = np.flatnonzero(np.array(list(histogram.counts)))
    assert np.unique(hdr_index(values)).tolist() == expected.tolist()
    assert hdr_value(hdr_index(values)).tolist() == [histogram.get_highest_equivalent_value(value) for value in values]


@given(values_us)
def test_a_value_comes_back_within_a_thousandth(value: int) -> None:
    index = hdr_index(value)
    assert hdr_lowest(index) <= value <= hdr_value(index)
    assert hdr_value(index) - value <= value / 1000


@given(st.integers(0, HDR_SIZE - 2))
def test_indices_cover_the_range_without_gap_or_overlap(index: int) -> None:
    assert hdr_lowest(index + 1) == hdr_value(index) + 1


@pytest.mark.parametrize(
    ("value", "index"),
    [(0, 0), (1, 1), (2047, 2047), (2048, 2048), (2049, 2048), (2050, 2049), (4096, 3072), (HDR_HIGHEST_US, 23220)],
)
def test_known_indices(value: int, index: int) -> None:
    assert hdr_index(value) == index


def test_values_outside_the_range_are_clamped() -> None:
    assert hdr_index([-5, HDR_HIGHEST_US + 1, 2**62]).tolist() == [0, 23220, 23220]


def test_size_is_that_of_hdrhistogram() -> None:
    assert oracle().counts_len == HDR_SIZE


@given(sparse)
def test_payload_round_trip(counts: dict[int, int]) -> None:
    indices = sorted(counts)
    back = decode_payload(encode_payload(indices, [counts[index] for index in indices]))
    assert dict(zip(back[0].tolist(), back[1].tolist(), strict=True)) == counts


@settings(max_examples=40)
@given(st.dictionaries(st.integers(0, 23_220), st.integers(1, 2**40), max_size=40))
def test_hdrhistogram_reads_what_we_write(counts: dict[int, int]) -> None:
    indices = sorted(counts)
    theirs = HdrHistogram.decode(encode_payload(indices, [counts[index] for index in indices]))
    read = np.array(list(theirs.counts))
    assert {int(index): int(read[index]) for index in np.flatnonzero(read)} == counts


@settings(max_examples=40)
@given(st.dictionaries(values_us, st.integers(1, 2**40), max_size=40))
def test_we_read_what_hdrhistogram_writes(recorded: dict[int, int]) -> None:
    theirs = oracle()
    expected = np.zeros(HDR_SIZE, dtype=np.int64)
    for value, count in recorded.items():
        theirs.record_value(value, count)
        expected[hdr_index(value)] += count
    indices, counts = decode_payload(theirs.encode())
    assert indices.tolist() == np.flatnonzero(expected).tolist()
    assert counts.tolist() == expected[indices].tolist()


@pytest.mark.parametrize(
    ("indices", "counts", "message"),
    [
        ([2, 1], [1, 1], "must ascend"),
        ([1, 1], [1, 1], "must ascend"),
        ([-1], [1], "must ascend within"),
        ([HDR_SIZE], [1], "must ascend within"),
        ([1], [0], "counts must lie within"),
        ([1], [2**53], "counts must lie within"),
        ([1, 2], [1], "2 indices for 1 counts"),
    ],
)
def test_what_is_no_histogram_is_not_written(indices: list[int], counts: list[int], message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        encode_payload(indices, counts)


def payload(body: bytes, *, cookie: int = 0x1C849313, highest: int = HDR_HIGHEST_US, length: int | None = None) -> str:
    head = struct.pack(">IIIIQQd", cookie, len(body) if length is None else length, 0, 3, 1, highest, 1.0)
    packed = zlib.compress(head + body)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "too short"),
        ("HIST!", "not base64"),
        (base64.b64encode(b"x" * 60).decode(), "not a compressed V2 histogram"),
        (payload(b"\x02", cookie=0x1C849301), "not a V2 histogram"),
        (payload(b"\x02", length=9), "not a V2 histogram"),
        (payload(b"\x02", highest=10), "only 1..3600000000 with 3 can be added up"),
        (payload(b"\x82"), "cut off"),
        (payload(b"\xff" * 8 + b"\x01"), "more than eight bytes"),
        (payload(b"\xff" * 7 + b"\x7f"), f"more than {HDR_SIZE} counts"),
        (payload(b"\xfe" * 7 + b"\x7f"), "a count above"),
        (payload(b"\x02" * (HDR_SIZE + 1)), f"more than {HDR_SIZE} counts"),
        (payload(b"\x00" * 50_000_000), "inflates to more than"),
        ("A" * 1_000_000, "characters, at most"),
    ],
)
def test_damaged_and_hostile_payloads_are_refused(text: str, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        decode_payload(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_histogram_or_an_error(body: bytes) -> None:
    try:
        indices, counts = decode_payload(payload(body))
    except PayloadError:
        return
    assert (np.diff(indices) > 0).all()
    assert (counts > 0).all()
    assert not indices.size or indices[-1] < HDR_SIZE


@given(st.binary(max_size=200))
def test_any_text_is_a_histogram_or_an_error(raw: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_payload(b"HISTFAAA" + raw)
