"""The measured loop against real sockets: each good or bad manner of a server gives exactly the outcomes it should."""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic as clock
from typing import Any

import gevent
import numpy as np
import pytest
from engine_certificate import certificate
from engine_load import GET, HEAD, Load, Result, run

from locustfiles.engine import _opener
from locustfiles.engine._connection import GONE
from locustfiles.engine._preflight import tls_context

OK = ("ok", "200")


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    server = Path(__file__).with_name("engine_server.py")
    with subprocess.Popen(
        [sys.executable, str(server), str(certificate().path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, int] = json.loads(process.stdout.readline())
        yield found
        process.stdin.close()
        assert process.wait(timeout=5) == 0


@pytest.fixture(scope="module")
def trusting() -> ssl.SSLContext:
    return tls_context(certificate().pem, insecure=False)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can take it
        yield held.getsockname()[1]


def undisturbed(load: Callable[[], Result]) -> Result:
    """The least disturbed of three loads: a machine that stops us makes slots late by our fault, and never fewer."""
    return min((load() for _ in range(3)), key=lambda result: result.slots[2])


# -- whole replies


@pytest.mark.parametrize(
    "manner",
    ["keep_alive", "interim", "interim_at_once", "chunked", "chunked_bytewise", "drip", "head", "no_content", "slow"],
)
def test_a_good_server_is_used_over_one_connection(ports: dict[str, int], manner: str) -> None:
    result = run(ports[manner], request=HEAD if manner == "head" else GET)
    code = "204" if manner == "no_content" else "200"
    assert result.outcomes == {("ok", code): 5}
    assert result.connections == [1, 0, 0, 0, 0]
    assert result.slots[:2] == [5, 5]


@pytest.mark.parametrize(
    ("manner", "closed_by_us"), [("close_each", 5), ("says_close", 5), ("http10", 5), ("close_delimited", 5)]
)
def test_a_server_that_closes_after_each_reply_is_connected_to_anew(
    ports: dict[str, int], manner: str, closed_by_us: int
) -> None:
    result = run(ports[manner], rate_per_s=50)
    assert result.outcomes == {OK: 5}
    assert 5 <= result.connections[0] <= 6
    # Where the close is the end of the reply it is the peer's, and nothing was cut short by it.
    assert result.connections[1:] == [0, 0, 0, closed_by_us]


def test_each_status_keeps_its_code(ports: dict[str, int]) -> None:
    result = run(ports["statuses"], rate_per_s=50)
    assert result.outcomes == {
        ("http_3xx", "301"): 1,
        ("http_4xx", "404"): 1,
        ("http_5xx", "503"): 1,
        OK: 1,
        ("ok", "204"): 1,
    }
    assert result.accounting == {"due": 5, "response": 5, "failed": 0, "censored": 0}


def test_headers_of_the_gateway_and_bytes_are_kept(ports: dict[str, int]) -> None:
    result = run(ports["keep_alive"])
    assert (result.kind(0).gateway, result.kind(0).backend) == ("gw", "1")
    assert result.bytes_in == 5 * 181
    assert set(result.rows[:, 5]) == {181}  # also where the head was known from the first reply


def test_a_head_in_pieces_and_in_one_piece_counts_the_same_bytes(ports: dict[str, int]) -> None:
    assert set(run(ports["drip"]).rows[:, 5]) == {181}
    assert len(set(run(ports["chunked"]).rows[:, 5]) | set(run(ports["chunked_bytewise"]).rows[:, 5])) == 1


def test_a_known_head_with_part_of_its_body_is_no_whole_reply(ports: dict[str, int]) -> None:
    result = run(ports["whole_then_split"])
    assert result.outcomes == {OK: 5}
    assert set(result.rows[:, 5]) == {181}
    assert result.connections == [1, 0, 0, 0, 0]


def test_a_known_head_with_more_than_its_body_is_a_bad_reply(ports: dict[str, int]) -> None:
    assert run(ports["whole_then_excess"], slots=4, rate_per_s=50).outcomes == {OK: 2, ("bad_reply", "excess"): 2}


def test_interim_bytes_belong_to_the_reply(ports: dict[str, int]) -> None:
    assert set(run(ports["interim_at_once"]).rows[:, 5]) == {181 + len("HTTP/1.1 100 Continue\r\n\r\n")}


@pytest.mark.parametrize("manner", ["keep_alive", "chunked", "chunked_bytewise", "close_delimited"])
@pytest.mark.parametrize(("expect_bytes", "outcome"), [(100, "ok"), (99, "wrong_reply"), (0, "wrong_reply")])
def test_a_body_of_the_wrong_length_is_a_wrong_reply(
    ports: dict[str, int], manner: str, expect_bytes: int, outcome: str
) -> None:
    result = run(ports[manner], slots=3, expect_bytes=expect_bytes)
    assert result.outcomes == {(outcome, "200"): 3}


def test_many_connections_share_the_grid_and_the_addresses(ports: dict[str, int]) -> None:
    result = run(ports["keep_alive"], ports["chunked"], slots=400, rate_per_s=2000, connections=20)
    assert result.outcomes == {OK: 400}
    assert result.connections[0] == 20
    assert sorted(result.rows[:, 0]) == [result.epoch.due_s(k % 20, k // 20) for k in range(400)]
    backends = [result.kind(row).backend for row in range(400)]
    assert (backends.count("1"), backends.count("")) == (200, 200)  # the second address sends no such header


@pytest.mark.parametrize("spins", [False, True])
def test_spinning_makes_the_same_load_and_tells_the_time_that_it_took(ports: dict[str, int], spins: bool) -> None:
    result = run(ports["keep_alive"], slots=100, rate_per_s=500, connections=5, spins=spins)
    assert result.outcomes == {OK: 100}
    # 0.2 s of load, in which each slot costs well under a millisecond.
    assert (result.spun_s > 0.05) == spins
    assert result.spun_s < 1.0


def test_spinning_sleeps_while_no_slot_is_near(ports: dict[str, int]) -> None:
    result = run(ports["keep_alive"], slots=3, rate_per_s=5, spins=True)
    assert result.outcomes == {OK: 3}
    assert 0 < result.spun_s < 0.2  # three times 10 ms and a reply, of more than 0.4 s


def test_slots_that_pile_up_behind_a_slow_reply_are_sent_in_order_and_measured_from_their_start(
    ports: dict[str, int],
) -> None:
    result = undisturbed(lambda: run(ports["slow_first"], slots=21, rate_per_s=200))
    assert result.outcomes == {OK: 21}
    rows = result.rows
    assert (np.diff(rows[:, 0]) > 0).all()
    response_s = rows[:, 3] - rows[:, 0]
    assert (response_s[:18] >= 0.1 - np.arange(18) * 0.005).all()
    service_s = rows[1:18, 3] - rows[1:18, 2]
    assert np.median(service_s) < 0.02
    due, sent, late_own, late_peer, unsent = result.slots
    assert (due, sent, unsent) == (21, 21, 0)
    assert late_peer >= 17
    assert late_own <= 3  # the peer's slowness is not ours; a busy machine may add a few


def test_slots_behind_our_own_stall_are_late_by_our_own_fault(ports: dict[str, int]) -> None:
    load = Load(ports["keep_alive"], connections=4)
    load.open()
    epoch = load.begin(800, 2000)
    while clock() < epoch.t0_s + 0.1:
        gevent.sleep(0.001)
    until_s = clock() + 0.1  # and now block the whole thread, as a garbage collection does
    while clock() < until_s:
        pass
    load.drain(epoch.t0_s + 799.5 / 2000)
    result = load.finish(epoch)
    _, sent, late_own, late_peer, _ = result.slots
    assert sent == 800
    # 200 fell due meanwhile; those behind the first of each connection were late because that one was.
    assert late_own >= 180
    assert late_peer <= 20


# -- replies that are none


@pytest.mark.parametrize(
    ("manner", "outcomes", "connections"),
    [
        ("reset", {("reset", "ECONNRESET"): 5}, (5, 0, 5, 0)),
        ("eof", {("reset", "eof"): 5}, (5, 0, 5, 0)),
        ("truncated", {("truncated", "eof"): 5}, (5, 0, 5, 0)),
        ("truncated_reset", {("truncated", "ECONNRESET"): 5}, (5, 0, 5, 0)),
        ("garbage", {("bad_reply", "status_line"): 5}, (5, 0, 0, 0)),
        ("bad_length", {("bad_reply", "content_length"): 5}, (5, 0, 0, 0)),
        ("switching", {("bad_reply", "interim"): 5}, (5, 0, 0, 0)),
        ("excess", {("bad_reply", "excess"): 5}, (5, 0, 0, 0)),
        ("reset_reused", {OK: 3, ("reset", "reused"): 2}, (3, 0, 2, 0)),
    ],
)
def test_a_bad_server_fails_each_slot_once(
    ports: dict[str, int], manner: str, outcomes: dict[tuple[str, str], int], connections: tuple[int, ...]
) -> None:
    """One connection for each failure, and one that is opened after the last."""
    result = run(ports[manner], rate_per_s=100)
    assert result.outcomes == outcomes
    opened, _, idle, busy, _ = result.connections
    assert opened in (connections[0], connections[0] + 1)
    assert (idle, busy) == connections[1:3]


def test_a_head_request_that_gets_a_body_is_a_bad_reply(ports: dict[str, int]) -> None:
    assert run(ports["keep_alive"], slots=2, request=HEAD).outcomes == {("bad_reply", "excess"): 2}


def test_failures_on_the_way_leave_no_gap_between_due_and_ended(ports: dict[str, int]) -> None:
    result = run(ports["reset_reused"], slots=200, rate_per_s=2000, connections=10)
    assert result.outcomes == {OK: 100, ("reset", "reused"): 100}


def test_a_reply_that_does_not_come_in_time(ports: dict[str, int]) -> None:
    result = run(ports["silent"], slots=3, rate_per_s=10, timeout_s=0.06)
    assert result.outcomes == {("read_timeout", "ETIMEDOUT"): 3}
    took_s = result.rows[:, 3] - result.rows[:, 2]
    assert ((took_s >= 0.06) & (took_s < 0.2)).all()
    assert result.connections[4] == 3


def test_what_has_no_end_at_the_end_is_unfinished_or_unsent(ports: dict[str, int]) -> None:
    result = run(ports["silent"], slots=4, rate_per_s=100, timeout_s=None, drain_s=0.2)
    assert result.outcomes == {("unfinished", ""): 1, ("unsent", ""): 3}
    assert result.accounting == {"due": 4, "response": 0, "failed": 0, "censored": 4}
    assert result.slots == [4, 1, 0, 0, 3]
    assert all(120_000 < age_us < 2_000_000 for age_us in result.censored_us)
    assert np.allclose(-np.diff(sorted(result.censored_us, reverse=True)), 10_000, atol=300)


def test_a_request_larger_than_all_buffers_is_sent_whole(ports: dict[str, int]) -> None:
    request = b"POST / HTTP/1.1\r\n\r\n" + b"a" * 12_000_000 + b"END!"
    result = run(ports["drains_slowly"], slots=2, rate_per_s=100, request=request)
    assert result.outcomes == {OK: 2}
    assert result.connections == [1, 0, 0, 0, 0]


def test_a_reply_before_the_request_is_whole_counts_and_ends_the_connection(ports: dict[str, int]) -> None:
    request = b"POST / HTTP/1.1\r\n\r\n" + b"a" * 12_000_000
    result = run(ports["answers_early"], slots=2, rate_per_s=10, request=request)
    assert result.outcomes == {("http_4xx", "413"): 2}
    assert result.connections[4] == 2


# -- connections


def test_a_refused_port_refuses_each_slot_once(closed_port: int) -> None:
    result = run(closed_port, slots=20, rate_per_s=500, connections=2, open_s=0.05)
    assert result.outcomes == {("refused", "ECONNREFUSED"): 20}
    assert result.slots == [20, 0, 0, 0, 0]
    assert np.isnan(result.rows[:, 2]).all()
    assert result.connections == [0] * 5


def test_an_address_that_refuses_costs_its_share_only(ports: dict[str, int], closed_port: int) -> None:
    result = run(ports["keep_alive"], closed_port, slots=20, rate_per_s=500, connections=4, open_s=0.05)
    assert result.outcomes == {OK: 10, ("refused", "ECONNREFUSED"): 10}


def test_want_of_descriptors_is_our_own_fault(ports: dict[str, int]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gevent.sleep(0.001)  # sockets of the test before are closed in gevent's loop
    load = Load(ports["keep_alive"])
    next_fd = os.dup(0)
    os.close(next_fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_fd, hard))
    try:
        assert load.open(0.03) == 0
        epoch = load.begin(3, 100.0)
        load.drain(epoch.t0_s + 0.025)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert load.finish(epoch).outcomes == {("local", "EMFILE"): 3}


def test_openings_are_paced(ports: dict[str, int]) -> None:
    load = Load(ports["keep_alive"], connections=58)
    begun_s = clock()
    assert load.open() == 58
    assert clock() - begun_s >= (58 - 8) / 500 * 0.95  # 500 a second after the first eight
    epoch = load.begin(0, 100.0)
    assert load.finish(epoch).connections == [58, 0, 0, 0, 0]


@pytest.mark.parametrize("manner", ["closes_idle", "speaks_unasked"])
def test_a_close_of_an_idle_connection_is_no_outcome(ports: dict[str, int], manner: str) -> None:
    result = run(ports[manner], slots=4, rate_per_s=20)
    assert result.outcomes == {OK: 4}
    opened, _, idle, busy, by_us = result.connections
    assert opened in (4, 5)
    assert busy == 0
    # Who speaks unasked is closed by us, and the reply to nothing is not taken for the next one's.
    assert (idle, by_us) in ([(3, 0), (4, 0)] if manner == "closes_idle" else [(0, 3), (0, 4)])


def test_a_peer_that_does_not_take_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_opener, "CONNECT_TIMEOUT_S", 0.05)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill its backlog: further SYNs are dropped
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        result = run(listener.getsockname()[1], slots=2, rate_per_s=10, open_s=0.1)
    assert result.outcomes == {("connect_timeout", "ETIMEDOUT"): 2}
    assert result.slots[1] == 0


def test_a_failed_opening_that_no_slot_waited_for_is_no_outcome(closed_port: int) -> None:
    load = Load(closed_port, connections=3)
    assert load.open(0.1) == 0
    epoch = load.begin(0, 100.0)
    gevent.sleep(0.05)
    assert load.finish(epoch).outcomes == {}


def test_connections_of_users_that_leave_are_closed_when_their_slots_are_served(ports: dict[str, int]) -> None:
    load = Load(ports["slow"], connections=3)
    assert load.open() == 3
    epoch = load.begin(60, 100.0)
    load.wait(lambda: load.pump.unfinished() > 0)
    load.pump.retire(load.connections[0])
    assert load.connections[0].state != GONE  # the present epoch still counts on it
    assert len(load.pump.live()) == 2
    second = load.begin(4, 100.0, number=2, delay_s=0.1)
    load.drain(second.t0_s + 0.035)
    load.wait(lambda: load.connections[0].state == GONE)
    assert load.connections[0].state == GONE
    result = load.finish(epoch)
    assert set(result.outcomes) == {OK}
    in_second = result.rows[:, 0] >= second.t0_s
    assert np.allclose(np.sort(result.rows[in_second, 0]), second.t0_s + np.arange(4) / 100.0, atol=1e-9)


def test_an_idle_connection_of_a_user_that_leaves_is_closed_at_once(ports: dict[str, int]) -> None:
    load = Load(ports["keep_alive"], connections=2)
    load.open()
    load.pump.retire(load.connections[1])
    load.wait(lambda: load.connections[1].state == GONE, 0.5)
    assert load.connections[1].state == GONE
    epoch = load.begin(4, 100.0)
    load.drain(epoch.t0_s + 0.035)
    result = load.finish(epoch)
    assert result.outcomes == {OK: 4}
    assert result.connections == [2, 0, 0, 0, 1]


def test_a_rate_that_changes_loses_no_slot(ports: dict[str, int]) -> None:
    load = Load(ports["keep_alive"], connections=4)
    load.open()
    first = load.begin(10**6, 400.0)
    gevent.sleep(0.05)
    second = load.begin(10**6, 1000.0, number=2, delay_s=0.05)
    load.wait(lambda: load.pump.come_to_s() > second.t0_s)
    end_s = clock() + 0.1
    load.pump.end_at(end_s)
    load.drain(end_s)
    result = load.finish(first)
    assert set(result.outcomes) == {OK}
    before = first.due_between(first.t0_s, second.t0_s)
    assert (result.rows[:, 0] < second.t0_s).sum() == before
    assert result.accounting["due"] == before + second.due_between(second.t0_s, end_s)


# -- TLS


@pytest.mark.parametrize(
    ("manner", "outcomes", "opened"),
    [
        ("tls_keep_alive", {OK: 4}, (1,)),
        ("tls_chunked_bytewise", {OK: 4}, (1,)),
        ("tls_close_each", {OK: 4}, (4, 5)),
        ("tls_http10", {OK: 4}, (4, 5)),
        # Without a goodbye, an end that only the close marks cannot be told from a cut.
        ("tls_http10_without_goodbye", {("truncated", "eof"): 4}, (4, 5)),
        ("tls_truncated", {("truncated", "eof"): 4}, (4, 5)),
        ("tls_reset", {("reset", "eof"): 4}, (4, 5)),
        ("tls_closes_idle", {OK: 4}, (4, 5)),
        ("tls_closes_idle_without_goodbye", {OK: 4}, (4, 5)),
    ],
)
def test_over_tls(
    ports: dict[str, int],
    trusting: ssl.SSLContext,
    manner: str,
    outcomes: dict[tuple[str, str], int],
    opened: tuple[int, ...],
) -> None:
    result = run(ports[manner], slots=4, rate_per_s=25, tls=trusting)
    if manner == "tls_reset":  # some versions of Python name the errno under TLS, others do not
        result.outcomes = {(outcome, "eof"): count for (outcome, _), count in result.outcomes.items()}
    assert result.outcomes == outcomes
    assert result.connections[0] in opened


def test_a_server_that_closes_now_and_then_over_tls(ports: dict[str, int], trusting: ssl.SSLContext) -> None:
    """It closes after two replies, while the connection is idle: no slot fails of it."""
    result = run(ports["tls_eof_reused"], slots=6, rate_per_s=20, tls=trusting)
    assert result.outcomes == {OK: 6}
    assert result.connections[2] in (2, 3)


def test_a_large_request_over_tls(ports: dict[str, int], trusting: ssl.SSLContext) -> None:
    request = b"POST / HTTP/1.1\r\n\r\n" + b"a" * 5_000_000 + b"END!"
    result = run(ports["tls_drains_slowly"], slots=1, rate_per_s=100, request=request, tls=trusting)
    assert result.outcomes == {OK: 1}
    assert result.connections[0] == 1


@pytest.mark.parametrize(
    ("manner", "ca", "name", "code"),
    [
        ("tls_keep_alive", False, "127.0.0.1", "certificate"),
        ("tls_keep_alive", True, "other.example.test", "certificate"),
        ("closes_in_the_handshake", True, "127.0.0.1", "eof"),
    ],
)
def test_a_failed_handshake_fails_each_slot_once(
    ports: dict[str, int], manner: str, ca: bool, name: str, code: str
) -> None:
    context = tls_context(certificate().pem if ca else None, insecure=False)
    result = run(ports[manner], slots=4, rate_per_s=50, tls=context, server_name=name, open_s=0.03)
    assert result.outcomes == {("tls", code): 4}
    assert result.connections == [0] * 5
    assert result.slots == [4, 0, 0, 0, 0]


def test_an_untrusted_certificate_may_be_taken_on_purpose(ports: dict[str, int]) -> None:
    context = tls_context(None, insecure=True)
    assert run(ports["tls_keep_alive"], slots=2, tls=context, server_name="other.test").outcomes == {OK: 2}


def test_a_handshake_that_gets_no_answer(
    ports: dict[str, int], trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_opener, "CONNECT_TIMEOUT_S", 0.05)
    result = run(ports["silent"], slots=2, rate_per_s=10, tls=trusting, open_s=0.1)
    assert result.outcomes == {("tls", "timeout"): 2}


# -- wrk2's way


def wrk2(*given: int, **more: Any) -> Any:
    return run(*given, wrk2=True, timeout_s=None, **more)


def test_a_failed_slot_is_repeated_until_it_ends_once(ports: dict[str, int]) -> None:
    result = wrk2(ports["resets_3"], slots=5, rate_per_s=50)
    assert result.outcomes == {("reset", "repeat:ECONNRESET"): 3, OK: 5}
    assert result.accounting == {"due": 5, "response": 5, "failed": 0, "censored": 0}
    first_start_s = result.rows[0, 0]
    assert (result.rows[:4, 0] == first_start_s).all()  # the same slot, each time measured from its start
    assert result.slots[:2] == [5, 5]


def test_repeats_keep_a_distance_of_half_a_period(ports: dict[str, int], closed_port: int) -> None:
    result = wrk2(closed_port, slots=4, rate_per_s=40, drain_s=0.2, open_s=0.02)
    repeats = result.outcomes.pop(("refused", "repeat:ECONNREFUSED"))
    assert result.outcomes == {("unsent", ""): 4}
    assert (np.diff(result.rows[:, 3]) >= 0.01249).all()
    took_s = result.rows[-1, 3] - result.rows[0, 3]
    assert repeats == len(result.rows) >= took_s / 0.03


def test_catching_up_goes_at_twice_the_rate_at_most(ports: dict[str, int]) -> None:
    result = undisturbed(lambda: wrk2(ports["slow_first"], slots=80, rate_per_s=200))
    assert result.outcomes == {OK: 80}
    intended_s, sent_s = result.rows[:, 0], result.rows[:, 2]
    behind = intended_s[1:] < sent_s[:-1]  # owed already when the one before was sent
    assert behind[1:30].all()  # without the limit the 20 that piled up would be sent in a moment
    assert (np.diff(sent_s)[behind] >= 0.00249).all()
    assert not behind[45:].all()  # and there is an end to it
    # To wait for one's turn at twice the rate is the rule, and no lateness of our own.
    assert result.slots[3] >= 30
    assert result.slots[2] <= 3
