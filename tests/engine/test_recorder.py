"""What is recorded, against a count by hand; and that no split into batches, seconds or workers changes a number."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from analysis.rundir import HDR_HIGHEST_US, RunWriter, hdr_index
from locustfiles.engine._collector import Collector
from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._outcome import Verdict
from locustfiles.engine._recorder import Recorder

T0_S = 5000.0
REQUEST_SIZE = 50
KINDS = [
    Kind("ok", "200", "nginx-0", "1"),
    Kind("ok", "200", "nginx-0", "2"),
    Kind("http_5xx", "503", "nginx-0"),
    Kind("wrong_reply", "200", "nginx-0", "1"),
    Kind("reset", "reused"),
    Kind("refused", "ECONNREFUSED"),
    Kind("reset", "repeat:eof"),
    Kind("refused", "repeat:ECONNREFUSED"),
]
NEVER_SENT = {5, 7}

Row = tuple[float, float, float, float, int, int]


def make_recorder() -> Recorder:
    kinds = Kinds()
    for kind in KINDS:
        kinds.number(kind)
    recorder = Recorder(kinds, REQUEST_SIZE)
    recorder.begin(T0_S)
    return recorder


@st.composite
def rows(draw: st.DrawFn) -> Row:
    kind = draw(st.integers(0, len(KINDS) - 1))
    intended_s = T0_S + draw(st.integers(0, 40)) / 10
    late_s = draw(st.sampled_from([0.0, 0.0005, 0.0015, 0.3, 1.2]))
    free_s = draw(st.sampled_from([-math.inf, intended_s - 1.0, intended_s + late_s, intended_s + late_s - 0.0005]))
    sent_s = math.nan if kind in NEVER_SENT else intended_s + late_s
    end_s = intended_s + late_s + draw(st.sampled_from([0.0001, 0.0023, 0.75, 2.5]))
    return (intended_s, free_s, sent_s, end_s, kind, draw(st.sampled_from([0, 120, 1100])))


many_rows = st.lists(rows(), max_size=40)


class Totals:
    """Counts by hand, or added up from reports."""

    def __init__(self) -> None:
        self.metrics: Counter[tuple[int, str, int]] = Counter()
        self.outcomes: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.replicas: Counter[tuple[int, str, str]] = Counter()
        self.slots: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])

    @classmethod
    def by_hand(cls, given_rows: Sequence[Row]) -> "Totals":
        totals = cls()
        for intended_s, free_s, sent_s, end_s, number, size in given_rows:
            kind, second = KINDS[number], math.floor(end_s - T0_S)
            sent = not math.isnan(sent_s)
            for place, amount in enumerate((1, size, REQUEST_SIZE if sent else 0)):
                totals.outcomes[second, kind.outcome, kind.code][place] += amount
            if kind.outcome in ("ok", "http_5xx"):
                totals.replicas[second, kind.gateway, kind.backend] += 1
                totals._sample(second, "response", end_s - intended_s)
                totals._sample(second, "service", end_s - sent_s)
            elif not kind.code.startswith("repeat:"):
                totals._sample(second, "failed", end_s - intended_s)
            if sent and not kind.code.startswith("repeat:"):
                slots = totals.slots[math.floor(intended_s - T0_S)]
                slots[1] += 1
                if sent_s - intended_s > 0.001:
                    slots[2 if sent_s - max(intended_s, free_s) > 0.001 else 3] += 1
        return totals

    def _sample(self, second: int, metric: str, value_s: float) -> None:
        self.metrics[second, metric, int(hdr_index(round(value_s * 1e6)))] += 1

    def add(self, report: dict[str, Any]) -> None:
        for entry in report["seconds"]:
            second = entry["second"]
            for metric, (indices, counts) in entry["metrics"].items():
                for index, count in zip(
                    np.frombuffer(indices, "<i4").tolist(), np.frombuffer(counts, "<i8").tolist(), strict=True
                ):
                    self.metrics[second, metric, index] += count
            for outcome, code, *amounts in entry["outcomes"]:
                for place, amount in enumerate(amounts):
                    self.outcomes[second, outcome, code][place] += amount
            for gateway, backend, count in entry["replicas"]:
                self.replicas[second, gateway, backend] += count
        for second, *counts in report["slots"]:
            for place, count in enumerate(counts):
                self.slots[second][place] += count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Totals) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def pieces(given_rows: Sequence[Row], places: Sequence[int]) -> Iterator[Sequence[Row]]:
    edges = [0, *sorted({place for place in places if place < len(given_rows)}), len(given_rows)]
    return (given_rows[start:end] for start, end in itertools.pairwise(edges))


@settings(deadline=None, max_examples=50)
@given(many_rows, st.lists(st.integers(0, 40), max_size=5), st.lists(st.integers(-1, 8), min_size=6, max_size=6))
def test_any_split_into_batches_and_reports_gives_what_a_count_by_hand_does(
    given_rows: list[Row], places: list[int], takes: list[int]
) -> None:
    recorder, totals = make_recorder(), Totals()
    for batch, before_second in zip(pieces(given_rows, places), takes, strict=False):
        for row in batch:
            recorder.rows.extend(row)
        recorder.fold()
        if before_second >= 0:
            totals.add(recorder.take(before_second, {}))
    totals.add(recorder.take(None, {}))
    assert totals == Totals.by_hand(given_rows)


def test_each_second_is_handed_over_once() -> None:
    recorder = make_recorder()
    for second in range(4):
        recorder.rows.extend((T0_S + second, -math.inf, T0_S + second, T0_S + second + 0.5, 0, 100))
    first = recorder.take(2, {0: 1, 1: 1})
    rest = recorder.take(None, {2: 1, 3: 1})
    assert [entry["second"] for entry in first["seconds"]] == [0, 1]
    assert [entry["second"] for entry in rest["seconds"]] == [2, 3]
    assert sorted(first["slots"] + rest["slots"]) == [
        [0, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [2, 1, 1, 0, 0, 0],
        [3, 1, 1, 0, 0, 0],
    ]
    assert recorder.take(None, {}) == {"seconds": [], "slots": [], "seen": [], "clipped": 0}


@pytest.mark.parametrize(
    ("late_s", "free_after_s", "own", "peer"),
    [
        (0.0, -math.inf, 0, 0),
        (0.00099, -math.inf, 0, 0),
        (0.00101, -math.inf, 1, 0),  # free for ever, and late
        (0.5, -1.0, 1, 0),  # free for a second
        (0.5, 0.5, 0, 1),  # busy until it was sent
        (0.5, 0.4995, 0, 1),
        (0.5, 0.498, 1, 0),  # free for two milliseconds, and not sent
        (0.0005, 0.0005, 0, 0),
    ],
)
def test_whose_fault_it_is_to_be_late(late_s: float, free_after_s: float, own: int, peer: int) -> None:
    recorder = make_recorder()
    intended_s = T0_S + 2.5
    recorder.rows.extend((intended_s, intended_s + free_after_s, intended_s + late_s, intended_s + 3, 0, 1))
    assert recorder.take(None, {2: 1})["slots"] == [[2, 1, 1, own, peer, 0]]


def test_a_slot_that_was_never_sent_is_not_late() -> None:
    recorder = make_recorder()
    recorder.rows.extend((T0_S, -math.inf, math.nan, T0_S + 0.9, 5, 0))
    report = recorder.take(None, {0: 1})
    assert report["slots"] == [[0, 1, 0, 0, 0, 0]]
    assert report["seconds"][0]["outcomes"] == [["refused", "ECONNREFUSED", 1, 0, 0]]


def test_a_repeated_attempt_is_counted_and_is_no_end() -> None:
    recorder = make_recorder()
    recorder.rows.extend((T0_S, -math.inf, T0_S, T0_S + 0.1, 6, 40))
    report = recorder.take(None, {})
    assert report["slots"] == []
    assert report["seconds"][0]["outcomes"] == [["reset", "repeat:eof", 1, 40, REQUEST_SIZE]]
    assert report["seconds"][0]["metrics"] == {}


def test_slots_without_an_end_are_recorded_with_their_age() -> None:
    recorder = make_recorder()
    unfinished = recorder.kinds.of_verdict(Verdict("unfinished", ""))
    unsent = recorder.kinds.of_verdict(Verdict("unsent", ""))
    recorder.censored(unfinished, T0_S + 10.25, T0_S + np.array([9.0, 9.5]), sent=True)
    recorder.censored(unsent, T0_S + 10.25, T0_S + np.array([8.0, 9.0, 9.25]), sent=False)
    totals = Totals()
    totals.add(recorder.take(None, {8: 1, 9: 4}))
    ages_us = [1_250_000, 750_000, 2_250_000, 1_250_000, 1_000_000]
    assert totals.metrics == Counter((10, "censored", int(hdr_index(age_us))) for age_us in ages_us)
    assert totals.outcomes == {
        (10, "unfinished", ""): [2, 0, 2 * REQUEST_SIZE],
        (10, "unsent", ""): [3, 0, 0],
    }
    assert totals.slots == {8: [1, 0, 0, 0, 1], 9: [4, 2, 0, 0, 2]}


def test_openings_before_the_load_are_of_second_minus_one() -> None:
    recorder = Recorder(Kinds(), REQUEST_SIZE)
    for end_s in (4000.2, 4990.0, 4999.9):
        recorder.opening(end_s, 0.001, 0.002)
        recorder.connection(end_s, Recorder.PEER_CLOSED_IDLE)
        recorder.fold()
    recorder.begin(T0_S)
    recorder.opening(T0_S - 0.05, 0.001, math.nan)
    recorder.opening(T0_S + 1.5, 0.001, 0.002)
    recorder.connection(T0_S + 1.5, Recorder.CLOSED_BY_US)
    report = recorder.take(None, {})
    assert [(entry["second"], entry["connections"]) for entry in report["seconds"]] == [
        (-1, [4, 0, 3, 0, 0]),
        (1, [1, 0, 0, 0, 1]),
    ]
    totals = Totals()
    totals.add(report)
    connect, tls = int(hdr_index(1000)), int(hdr_index(2000))
    assert totals.metrics == {
        (-1, "connect", connect): 4,
        (-1, "tls", tls): 3,
        (1, "connect", connect): 1,
        (1, "tls", tls): 1,
    }


def test_samples_over_the_range_are_clamped_and_counted_once_each() -> None:
    recorder = make_recorder()
    beyond_s = HDR_HIGHEST_US / 1e6 + 5
    recorder.rows.extend((T0_S, -math.inf, T0_S + 10, T0_S + beyond_s, 0, 1))  # response alone is over the range
    recorder.rows.extend((T0_S, -math.inf, T0_S, T0_S + beyond_s, 4, 1))  # a failure has no service time
    recorder.rows.extend((T0_S, -math.inf, T0_S, T0_S + beyond_s, 6, 1))  # a repeated attempt has neither
    report = recorder.take(None, {})
    assert report["clipped"] == 2
    totals = Totals()
    totals.add(report)
    second, top = int(beyond_s), int(hdr_index(HDR_HIGHEST_US))
    assert totals.metrics == {
        (second, "response", top): 1,
        (second, "service", int(hdr_index(HDR_HIGHEST_US - 5_000_000))): 1,
        (second, "failed", top): 1,
    }
    assert recorder.take(None, {})["clipped"] == 0


def test_each_folded_batch_is_passed_on() -> None:
    passed: list[NDArray[np.float64]] = []
    recorder = Recorder(Kinds(), REQUEST_SIZE, passed.append)
    recorder.kinds.number(KINDS[0])
    recorder.begin(T0_S)
    recorder.fold()
    row = (T0_S, -math.inf, T0_S, T0_S + 0.5, 0.0, 7.0)
    recorder.rows.extend(row)
    recorder.fold()
    assert [table.tolist() for table in passed] == [[list(row)]]


# -- what the master makes of reports


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunWriter]:
    made = RunWriter.create(tmp_path_factory.mktemp("run") / "run", {"schema": 1})
    yield made
    made.close()


def written(collector: Collector, writer: RunWriter, *, everything: bool = True) -> list[tuple[str, list[Any]]]:
    """What it would write, as names and plain values."""
    return [
        (
            getattr(write, "__name__", ""),
            [value.tolist() if isinstance(value, np.ndarray) else value for value in values],
        )
        for write, values in collector.writes(writer, everything=everything)
    ]


def report(given_rows: Sequence[Row], due: dict[int, int], complete: int = 99) -> dict[str, Any]:
    recorder = make_recorder()
    for row in given_rows:
        recorder.rows.extend(row)
    return {**recorder.take(None, due), "complete": complete}


def due_of(given_rows: Sequence[Row]) -> dict[int, int]:
    final = (row for row in given_rows if not KINDS[row[4]].is_repeat)
    return dict(Counter(math.floor(row[0] - T0_S) for row in final))


@settings(deadline=None, max_examples=40)
@given(many_rows, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=40, max_size=40), st.randoms())
def test_split_over_workers_and_reports_and_merged_is_as_if_never_split(
    writer: RunWriter, given_rows: list[Row], parts: list[tuple[int, int]], random: Any
) -> None:
    whole, merged = Collector("GET /"), Collector("GET /")
    whole.add("a", report(given_rows, due_of(given_rows)))
    split: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row, part in zip(given_rows, parts, strict=False):
        split[part].append(row)
    order = list(split)
    random.shuffle(order)
    for worker, number in order:
        mine = split[worker, number]
        merged.add(f"worker-{worker}", report(mine, due_of(mine)))
    assert written(merged, writer) == written(whole, writer)
    assert merged.accounting() == whole.accounting()
    assert (merged.totals, merged.due) == (whole.totals, whole.due)
    assert dict(merged.late_own) == dict(whole.late_own)
    assert dict(merged.failing) == dict(whole.failing)


@settings(deadline=None, max_examples=25)
@given(many_rows)
def test_the_accounts_are_those_of_a_count_by_hand(given_rows: list[Row]) -> None:
    collector = Collector("GET /")
    collector.add("a", report(given_rows, due_of(given_rows)))
    outcomes = Counter(KINDS[row[4]].outcome for row in given_rows if not KINDS[row[4]].is_repeat)
    accounts = collector.accounting()
    assert collector.totals == outcomes
    assert accounts["response"] == outcomes["ok"] + outcomes["http_5xx"]
    assert accounts["failed"] == outcomes["wrong_reply"] + outcomes["reset"] + outcomes["refused"]
    assert accounts["censored"] == 0
    assert accounts["due"] == accounts["response"] + accounts["failed"]


OK_ROW: Row = (T0_S + 0.5, -math.inf, T0_S + 0.5, T0_S + 0.6, 0, 100)
NEXT_ROW: Row = (T0_S + 1.5, -math.inf, T0_S + 1.7, T0_S + 1.8, 4, 0)


def test_rows_are_written_as_the_run_directory_wants_them(writer: RunWriter) -> None:
    collector = Collector("GET /")
    collector.add("a", report([OK_ROW, NEXT_ROW], {0: 1, 1: 1}))
    response, failed = int(hdr_index(100_000)), int(hdr_index(300_000))
    assert written(collector, writer) == [
        ("histogram", [0, "GET /", "response", [response], [1]]),
        ("histogram", [0, "GET /", "service", [response], [1]]),
        ("outcome", [0, "GET /", "ok", "200", 1, 100, REQUEST_SIZE]),
        ("replica", [0, "nginx-0", "1", 1]),
        ("histogram", [1, "GET /", "failed", [failed], [1]]),
        ("outcome", [1, "GET /", "reset", "reused", 1, 0, REQUEST_SIZE]),
        ("slots", [0, "GET /", 1, 1, 0, 0, 0]),
        ("slots", [1, "GET /", 1, 1, 1, 0, 0]),
    ]
    assert written(collector, writer) == []


def test_a_second_waits_for_all_workers(writer: RunWriter) -> None:
    collector = Collector("GET /")
    collector.expect(["a", "b"])
    assert collector.complete == 0
    collector.add("a", report([OK_ROW], {0: 1}, complete=2))
    assert (collector.come_to("a"), collector.come_to("b"), collector.complete) == (2, 0, 0)
    assert written(collector, writer, everything=False) == []
    collector.add("b", report([OK_ROW, NEXT_ROW], {0: 1, 1: 1}, complete=1))
    assert collector.complete == 1
    names = written(collector, writer, everything=False)
    assert ("outcome", [0, "GET /", "ok", "200", 2, 200, 2 * REQUEST_SIZE]) in names
    assert {values[0] for _, values in names} == {0}
    collector.add("b", report([], {}, complete=1))
    assert collector.complete == 1
    assert {values[0] for _, values in written(collector, writer, everything=True)} == {1}


def test_what_comes_late_is_written_as_further_rows(writer: RunWriter) -> None:
    collector = Collector("GET /")
    collector.add("a", report([OK_ROW], {0: 1}))
    assert len(written(collector, writer, everything=False)) == 5
    collector.add("a", report([OK_ROW], {}))
    late = written(collector, writer, everything=False)
    assert ("outcome", [0, "GET /", "ok", "200", 1, 100, REQUEST_SIZE]) in late
    assert collector.accounting() == {"due": 1, "response": 2, "failed": 0, "censored": 0}


def test_a_lost_worker_leaves_no_slot_without_an_end(writer: RunWriter) -> None:
    collector = Collector("GET /")
    collector.expect(["a", "b"])
    collector.add("a", report([OK_ROW, NEXT_ROW], {0: 1, 1: 1}))
    collector.add("b", report([OK_ROW], {0: 3}, complete=1))
    index = int(hdr_index(2_000_000))
    collector.lose("b", {1: 4, 2: 2}, 3, [index] * 6)
    assert collector.accounting() == {"due": 11, "response": 2, "failed": 1, "censored": 8}
    assert collector.due_by_worker["b"] == collector.ended_by_worker["b"] == 9
    assert collector.complete == 99
    assert dict(collector.late_own) == {0: [4, 0], 1: [5, 1], 2: [2, 0]}
    rows_of_loss = written(collector, writer)
    # 6 slots fell due after its last report; 2 of the 3 that it had reported as due never ended.
    assert ("outcome", [3, "GET /", "unsent", "worker_lost", 6, 0, 0]) in rows_of_loss
    assert ("outcome", [3, "GET /", "unfinished", "worker_lost", 2, 0, 0]) in rows_of_loss
    assert ("histogram", [3, "GET /", "censored", [index], [8]]) in rows_of_loss
    assert ("slots", [1, "GET /", 5, 1, 1, 0, 4]) in rows_of_loss
    assert ("slots", [2, "GET /", 2, 0, 0, 0, 2]) in rows_of_loss


def test_a_worker_that_is_lost_before_it_reported_leaves_all_unsent(writer: RunWriter) -> None:
    collector = Collector("GET /")
    collector.expect(["a"])
    collector.lose("a", {0: 2}, 1, [5, 7])
    assert collector.accounting() == {"due": 2, "response": 0, "failed": 0, "censored": 2}
    assert ("histogram", [1, "GET /", "censored", [5, 7], [1, 1]]) in written(collector, writer)


@pytest.mark.parametrize(
    ("failing", "complete", "last_second", "seconds", "share", "aborts"),
    [
        ({0: (10, 6), 1: (10, 6)}, 2, 1, 2, 0.5, True),
        ({0: (10, 5), 1: (10, 6)}, 2, 1, 2, 0.5, False),  # exactly half is not more than half
        ({0: (10, 5), 1: (10, 6)}, 2, 1, 1, 0.5, True),
        ({0: (10, 6)}, 1, 0, 2, 0.5, False),  # not long enough yet
        ({0: (10, 6), 2: (10, 6)}, 3, 2, 3, 0.5, False),  # nothing ended in between
        ({0: (10, 6), 1: (10, 0), 2: (10, 6)}, 1, 2, 1, 0.5, True),  # judged by what all workers have reported
        ({0: (10, 1)}, 1, 0, 1, 0.0, True),
        ({0: (10, 0)}, 1, 0, 1, 0.0, False),
    ],
)
def test_a_run_that_fails_throughout(
    failing: dict[int, tuple[int, int]], complete: int, last_second: int, seconds: int, share: float, aborts: bool
) -> None:
    collector = Collector("GET /")
    for second, (ended, failed) in failing.items():
        ok = (T0_S + second, -math.inf, T0_S + second, T0_S + second + 0.5, 0, 0)
        bad = (T0_S + second, -math.inf, T0_S + second, T0_S + second + 0.5, 4, 0)
        collector.add("a", report([ok] * (ended - failed) + [bad] * failed, {second: ended}, complete=complete))
    assert collector.fails_throughout(last_second, seconds, share) is aborts
