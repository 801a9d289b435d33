"""Numbers for kinds of endings, and their bound."""

import pytest

from locustfiles.engine._kinds import Kind, Kinds
from locustfiles.engine._outcome import Verdict
from locustfiles.engine._reply import Head, parse_head


def head(status: int, backend: str = "", cors: bool = False) -> Head:
    fields = f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\nX-Swarm-Backend: {backend}\r\nX-Swarm-Path: /p"
    return parse_head((fields + "\r\nAccess-Control-Allow-Origin: *" * cors).encode(), head_request=False)


def test_the_same_kind_has_the_same_number() -> None:
    kinds = Kinds()
    numbers = [kinds.of_reply(head(200, "1")), kinds.of_reply(head(200, "2")), kinds.of_reply(head(200, "1", True))]
    assert numbers == [0, 1, 2]
    assert [kinds.of_reply(head(200, "1")), kinds.of_reply(head(200, "2"))] == [0, 1]
    assert kinds.list == [
        Kind("ok", "200", "", "1", "/p", False),
        Kind("ok", "200", "", "2", "/p", False),
        Kind("ok", "200", "", "1", "/p", True),
    ]


@pytest.mark.parametrize(("status", "outcome"), [(200, "ok"), (302, "http_3xx"), (404, "http_4xx"), (503, "http_5xx")])
def test_a_reply_keeps_its_code(status: int, outcome: str) -> None:
    kinds = Kinds()
    kind = kinds.list[kinds.of_reply(head(status))]
    assert (kind.outcome, kind.code, kind.is_reply, kind.is_repeat) == (outcome, str(status), True, False)


def test_a_check_overrules_the_status() -> None:
    kinds = Kinds()
    kind = kinds.list[kinds.of_reply(head(200), "wrong_reply")]
    assert (kind.outcome, kind.code, kind.is_reply) == ("wrong_reply", "200", False)


def test_a_repeated_attempt_is_told_apart() -> None:
    kinds = Kinds()
    kinds.of_verdict(Verdict("refused", "ECONNREFUSED"))
    kinds.of_verdict(Verdict("refused", "ECONNREFUSED"), repeat=True)
    kinds.of_reply(head(200))
    assert [kind.code for kind in kinds.list] == ["ECONNREFUSED", "repeat:ECONNREFUSED", "200"]
    assert kinds.are_replies().tolist() == [False, False, True]
    assert kinds.are_repeats().tolist() == [False, True, False]


def test_a_peer_that_varies_its_headers_without_end_is_folded() -> None:
    kinds = Kinds()
    numbers = [kinds.number(Kind("ok", "200", backend=f"pod-{count}", cors=count % 2 == 1)) for count in range(6_000)]
    assert len(kinds.list) == 4_096 + 2
    assert len(set(numbers[:4_096])) == 4_096
    assert set(numbers[4_096:]) == {4_096, 4_097}
    assert kinds.list[4_096:] == [Kind("ok", "200"), Kind("ok", "200", cors=True)]
    assert len(kinds.are_replies()) == len(kinds.are_repeats()) == len(kinds.list)
    assert kinds.list[kinds.of_verdict(Verdict("reset", "eof"))] == Kind("reset", "eof")
