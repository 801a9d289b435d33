"""Quantiles: the one definition, against numpy; ranking of slots without a reply; too few samples."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.latency import QUANTILES, Histogram, Quantile, Ranked
from analysis.rundir import HDR_SIZE, hdr_index, hdr_lowest, hdr_value

samples = st.lists(st.integers(0, 50_000_000), min_size=1, max_size=300)


def histogram(values: list[int]) -> Histogram:
    return Histogram(np.bincount(hdr_index(np.array(values, dtype=np.int64)), minlength=HDR_SIZE))


NOTHING = Histogram.empty()


@given(samples, st.sampled_from(list(QUANTILES.values())))
def test_quantiles_are_numpys_nearest_rank_of_the_highest_equivalent_values(values: list[int], q: Fraction) -> None:
    rank = max(1, -(-len(values) * q.numerator // q.denominator))
    expected = np.quantile(hdr_value(hdr_index(values)), rank / len(values), method="inverted_cdf")
    assert Ranked(histogram(values), NOTHING).at(rank) == Quantile(int(expected))


@given(samples, st.sampled_from(list(QUANTILES.values())))
def test_a_quantile_is_never_too_low_and_at_most_a_thousandth_too_high(values: list[int], q: Fraction) -> None:
    rank = max(1, -(-len(values) * q.numerator // q.denominator))
    true = sorted(values)[rank - 1]
    told = Ranked(histogram(values), NOTHING).at(rank).value_us
    assert told is not None
    assert true <= told <= true * 1.001


@given(samples, st.integers(0, 6), st.randoms(use_true_random=False))
def test_histograms_split_and_merge_exactly_in_any_order(values: list[int], parts: int, random: object) -> None:
    shares = [values[part :: parts + 1] for part in range(parts + 1)]
    whole = histogram(values)
    forward = sum((histogram(share) for share in shares), NOTHING)
    backward = sum((histogram(share) for share in reversed(shares)), NOTHING)
    assert forward.counts.tolist() == whole.counts.tolist() == backward.counts.tolist()
    assert forward.n == len(values)


def test_ranks_by_hand() -> None:
    ranked = Ranked(histogram([10, 20, 30, 40]), histogram([5, 700]))
    assert [ranked.at(rank) for rank in range(1, 7)] == [
        Quantile(10),
        Quantile(20),
        Quantile(30),
        Quantile(40),
        Quantile(40, is_bound=True),  # failed after 5 us: slower than every reply, so than 40
        Quantile(700, is_bound=True),
    ]


@pytest.mark.parametrize("rank", [0, 7])
def test_there_is_no_such_rank(rank: int) -> None:
    with pytest.raises(IndexError, match=r"of \d values"):
        Ranked(histogram([10, 20, 30, 40]), histogram([5, 700])).at(rank)


@given(samples, samples)
def test_slots_without_reply_rank_above_every_reply(replies: list[int], ages: list[int]) -> None:
    ranked = Ranked(histogram(replies), histogram(ages))
    figures = [ranked.at(rank) for rank in range(1, ranked.n + 1)]
    assert [figure.is_bound for figure in figures] == [False] * len(replies) + [True] * len(ages)
    told = [figure.value_us or 0 for figure in figures]
    assert told == sorted(told)
    assert told[-1] == max(hdr_value(hdr_index(max(replies))), hdr_lowest(hdr_index(max(ages))))


def test_a_percentile_needs_ten_samples_beyond_it() -> None:
    enough = Ranked(histogram([7] * 1000), NOTHING).latency()
    assert enough.quantiles["p99"] == Quantile(7)
    assert enough.quantiles["p99.9"].absent == "only 1 of 1000 samples lie beyond it, 10 are needed"
    one_short = Ranked(histogram([7] * 999), NOTHING).latency()
    assert one_short.quantiles["p99"] == Quantile(None, absent="only 9 of 999 samples lie beyond it, 10 are needed")
    assert one_short.quantiles["p95"] == Quantile(7)
    assert one_short.max == Quantile(7)


def test_failed_slots_count_as_samples_beyond() -> None:
    latency = Ranked(histogram([7] * 985), histogram([9] * 15)).latency()
    assert (latency.n, latency.lost) == (1000, 15)
    assert latency.quantiles["p95"] == Quantile(7)
    assert latency.quantiles["p99"] == Quantile(9, is_bound=True)


def test_nothing_has_no_figures() -> None:
    latency = Ranked(NOTHING, NOTHING).latency()
    assert latency.n == 0
    assert {figure.absent for figure in (*latency.quantiles.values(), latency.max)} == {"no samples"}


def test_only_failures() -> None:
    latency = Ranked(NOTHING, histogram([0] * 50 + [2000] * 50)).latency()
    assert latency.quantiles["p50"] == Quantile(0, is_bound=True)
    assert latency.quantiles["p75"] == Quantile(2000, is_bound=True)


@given(samples, st.integers(0, 2_000_000))
def test_above_counts_what_is_surely_above(values: list[int], limit: int) -> None:
    shared = int(hdr_value(hdr_index(limit)))
    assert histogram(values).above(limit) == sum(1 for value in values if value > shared)
