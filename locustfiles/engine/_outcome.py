"""What became of a slot: its classes, and how an error of the operating system or of TLS falls into one."""

import errno
import ssl
from dataclasses import dataclass
from typing import Final

REPLIES: Final = ("ok", "http_3xx", "http_4xx", "http_5xx")
FAILURES: Final = (
    *("dns", "unreachable", "refused", "connect_timeout", "tls", "write"),
    *("reset", "truncated", "read_timeout", "bad_reply", "wrong_reply", "local"),
)
CENSORED: Final = ("unfinished", "unsent")
NEVER_SENT: Final = frozenset({"dns", "unreachable", "refused", "connect_timeout", "tls", "unsent"})
OUTCOMES: Final = REPLIES + FAILURES + CENSORED

# Faults of our own machine: never the gateway's, and a run that has one is invalid.
_LOCAL: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM}
)
_UNREACHABLE: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EAFNOSUPPORT}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome class and its code: a status, the name of an errno, or a TLS alert."""

    outcome: str
    code: str


def reply_outcome(status: int) -> str:
    """The class of a complete reply. A final 1xx cannot reach this place: the reader refuses it."""
    return "ok" if status < 300 else REPLIES[min(status // 100, 5) - 2]


def _is_local(error: OSError) -> bool:
    """Our own fault. The `errno` of an SSLError is a number of OpenSSL's, and 1 there is not EPERM."""
    return not isinstance(error, ssl.SSLError) and error.errno in _LOCAL


def _code(error: OSError) -> str:
    """The name of an errno, or OpenSSL's reason."""
    if isinstance(error, ssl.SSLEOFError):
        return "eof"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return (error.reason or type(error).__name__).lower()[:48]
    if error.errno is None:
        return type(error).__name__
    return errno.errorcode.get(error.errno, str(error.errno))


def connect_failure(error: OSError) -> Verdict:
    """An error before the connection stood."""
    if _is_local(error):
        return Verdict("local", _code(error))
    if error.errno in _UNREACHABLE:
        return Verdict("unreachable", _code(error))
    if error.errno == errno.ETIMEDOUT:
        return Verdict("connect_timeout", _code(error))
    return Verdict("refused", _code(error))


def tls_failure(error: OSError) -> Verdict:
    """An error inside the TLS handshake, a reset of the connection under it included."""
    return Verdict("local" if _is_local(error) else "tls", _code(error))


def write_failure(error: OSError) -> Verdict:
    """An error while a request was being sent."""
    return Verdict("local" if _is_local(error) else "write", _code(error))


def read_failure(error: OSError | None, *, reply_begun: bool, used_before: bool) -> Verdict:
    """The peer closed (`error` is None) or broke the connection before a reply was whole.

    `used_before`: replies came over this connection earlier, so it is the keep-alive race and its code says `reused`.
    """
    if error is not None and _is_local(error):
        return Verdict("local", _code(error))
    code = "eof" if error is None else _code(error)
    if reply_begun:
        return Verdict("truncated", code)
    return Verdict("reset", "reused" if used_before else code)
