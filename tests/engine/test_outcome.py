"""How errors of the operating system and of TLS fall into classes."""

import errno
import socket
import ssl
from collections.abc import Callable

import pytest
from engine_certificate import certificate

from locustfiles.engine._outcome import (
    CENSORED,
    FAILURES,
    OUTCOMES,
    REPLIES,
    Verdict,
    connect_failure,
    read_failure,
    reply_outcome,
    tls_failure,
    write_failure,
)


def os_error(number: int) -> OSError:
    return OSError(number, "text")


def ssl_error(
    reason: str | None, kind: type[ssl.SSLError] = ssl.SSLError, number: int = ssl.SSL_ERROR_SSL
) -> ssl.SSLError:
    error = kind(number, reason or "text")
    error.reason = reason or ""  # OpenSSL does not always know one
    return error


def test_every_outcome_has_one_class() -> None:
    assert len(set(OUTCOMES)) == len(OUTCOMES) == len(REPLIES) + len(FAILURES) + len(CENSORED) == 18


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "ok"),
        (204, "ok"),
        (299, "ok"),
        (300, "http_3xx"),
        (304, "http_3xx"),
        (399, "http_3xx"),
        (400, "http_4xx"),
        (499, "http_4xx"),
        (500, "http_5xx"),
        (599, "http_5xx"),
    ],
)
def test_a_reply_is_classed_by_its_status(status: int, outcome: str) -> None:
    assert reply_outcome(status) == outcome


@pytest.mark.parametrize(
    ("number", "outcome", "code"),
    [
        (errno.ECONNREFUSED, "refused", "ECONNREFUSED"),
        (errno.ECONNRESET, "refused", "ECONNRESET"),
        (errno.EHOSTUNREACH, "unreachable", "EHOSTUNREACH"),
        (errno.ENETUNREACH, "unreachable", "ENETUNREACH"),
        (errno.EHOSTDOWN, "unreachable", "EHOSTDOWN"),
        (errno.ENETDOWN, "unreachable", "ENETDOWN"),
        (errno.EAFNOSUPPORT, "unreachable", "EAFNOSUPPORT"),
        (errno.ETIMEDOUT, "connect_timeout", "ETIMEDOUT"),
        (errno.EADDRNOTAVAIL, "local", "EADDRNOTAVAIL"),
        (errno.EMFILE, "local", "EMFILE"),
        (errno.ENFILE, "local", "ENFILE"),
        (errno.ENOBUFS, "local", "ENOBUFS"),
        (errno.ENOMEM, "local", "ENOMEM"),
        (errno.EACCES, "local", "EACCES"),
        (errno.EPERM, "local", "EPERM"),
        (9999, "refused", "9999"),
    ],
)
def test_a_failed_connect(number: int, outcome: str, code: str) -> None:
    assert connect_failure(os_error(number)) == Verdict(outcome, code)


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (ssl_error("WRONG_VERSION_NUMBER"), "tls", "wrong_version_number"),
        (ssl_error("TLSV1_ALERT_INTERNAL_ERROR"), "tls", "tlsv1_alert_internal_error"),
        (ssl_error("A" * 99), "tls", "a" * 48),
        (ssl_error(None), "tls", "sslerror"),
        (ssl_error("CERTIFICATE_VERIFY_FAILED", ssl.SSLCertVerificationError), "tls", "certificate"),
        (ssl_error("UNEXPECTED_EOF_WHILE_READING", ssl.SSLEOFError, ssl.SSL_ERROR_EOF), "tls", "eof"),
        (os_error(errno.ECONNRESET), "tls", "ECONNRESET"),
        (os_error(errno.EPIPE), "tls", "EPIPE"),
        (os_error(errno.EMFILE), "local", "EMFILE"),
        (OSError("no number"), "tls", "OSError"),
    ],
)
def test_a_failed_handshake(error: OSError, outcome: str, code: str) -> None:
    assert tls_failure(error) == Verdict(outcome, code)


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (os_error(errno.EPIPE), "write", "EPIPE"),
        (os_error(errno.ECONNRESET), "write", "ECONNRESET"),
        (os_error(errno.ENOBUFS), "local", "ENOBUFS"),
        (ssl_error("BAD_RECORD_MAC"), "write", "bad_record_mac"),
        (ssl_error(None, ssl.SSLEOFError, ssl.SSL_ERROR_EOF), "write", "eof"),
        (ssl_error(None, ssl.SSLZeroReturnError, ssl.SSL_ERROR_ZERO_RETURN), "write", "sslzeroreturnerror"),
    ],
)
def test_a_failed_write(error: OSError, outcome: str, code: str) -> None:
    assert write_failure(error) == Verdict(outcome, code)


@pytest.mark.parametrize(
    ("error", "begun", "used", "outcome", "code"),
    [
        (None, False, False, "reset", "eof"),
        (None, False, True, "reset", "reused"),
        (None, True, False, "truncated", "eof"),
        (None, True, True, "truncated", "eof"),
        (os_error(errno.ECONNRESET), False, False, "reset", "ECONNRESET"),
        (os_error(errno.ECONNRESET), False, True, "reset", "reused"),
        (os_error(errno.ECONNRESET), True, True, "truncated", "ECONNRESET"),
        (os_error(errno.ETIMEDOUT), False, False, "reset", "ETIMEDOUT"),
        (os_error(errno.ENOMEM), True, False, "local", "ENOMEM"),
        (ssl_error(None, ssl.SSLEOFError, ssl.SSL_ERROR_EOF), False, False, "reset", "eof"),
        (ssl_error("TLSV1_ALERT_INTERNAL_ERROR"), False, True, "reset", "reused"),
        (
            ssl_error("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
            True,
            False,
            "truncated",
            "decryption_failed_or_bad_record_mac",
        ),
    ],
)
def test_a_connection_that_ends_under_a_request(
    error: OSError | None, begun: bool, used: bool, outcome: str, code: str
) -> None:
    assert read_failure(error, reply_begun=begun, used_before=used) == Verdict(outcome, code)


@pytest.mark.parametrize("number", range(1, 9))
def test_no_number_of_openssl_is_taken_for_an_errno(number: int) -> None:
    """SSL_ERROR_SSL is 1, which is EPERM elsewhere."""
    error = ssl_error("REASON", number=number)
    assert tls_failure(error).outcome == "tls"
    assert write_failure(error).outcome == "write"
    assert read_failure(error, reply_begun=False, used_before=False).outcome == "reset"


# -- the real thing


def test_a_real_refusal() -> None:
    with socket.socket() as held, socket.socket() as sock:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port meanwhile
        with pytest.raises(OSError, match="refused") as caught:
            sock.connect(held.getsockname())
    assert connect_failure(caught.value) == Verdict("refused", "ECONNREFUSED")


def handshake(client: ssl.SSLContext, answer: Callable[[bytes], bytes] | None, name: str = "127.0.0.1") -> OSError:
    """A TLS client in memory, whose peer answers with what `answer` makes of the hello; None: it closes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    if answer is None:
        incoming.write_eof()
    else:
        incoming.write(answer(hello))
    with pytest.raises(OSError, match=r".") as caught:
        tls.do_handshake()
    return caught.value


def serve(hello: bytes) -> bytes:
    """What our server answers to a hello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate().path)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(hello)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return outgoing.read()


def test_a_real_peer_that_speaks_no_tls() -> None:
    error = handshake(ssl.create_default_context(), lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert tls_failure(error) == Verdict("tls", "wrong_version_number")


def test_a_real_peer_that_closes_in_the_handshake() -> None:
    assert tls_failure(handshake(ssl.create_default_context(), None)) == Verdict("tls", "eof")


def test_a_real_alert() -> None:
    error = handshake(ssl.create_default_context(), lambda _: b"\x15\x03\x03\x00\x02\x02\x28")
    assert tls_failure(error).outcome == "tls"
    assert "handshake_failure" in tls_failure(error).code


def test_a_real_certificate_that_nobody_trusts() -> None:
    assert tls_failure(handshake(ssl.create_default_context(), serve)) == Verdict("tls", "certificate")


def test_a_real_certificate_for_another_name() -> None:
    context = ssl.create_default_context(cadata=certificate().pem)
    assert tls_failure(handshake(context, serve, "other.example.test")) == Verdict("tls", "certificate")
