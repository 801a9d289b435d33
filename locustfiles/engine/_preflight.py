"""Before anything starts: can the host be reached, does it speak TLS, is its certificate trusted, and are there
enough descriptors.
"""

import os
import resource
import socket
import ssl
from pathlib import Path
from typing import Final

from gevent.monkey import get_original

from locustfiles.engine._address import Address, Host, addresses_of, may_be_loaded
from locustfiles.engine._options import Settings

_LIMIT_S: Final = 10.0
_OWN_FDS: Final = 64  # what a Locust process has open beside its connections


def tls_context(settings_ca_pem: str | None, *, insecure: bool) -> ssl.SSLContext:
    """The one TLS context of a process: verified by default, HTTP/1.1 only, sessions not resumed. Raises ValueError."""
    context = ssl.create_default_context()
    if settings_ca_pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=settings_ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"--ca: holds no certificate that OpenSSL takes: {error}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def find_addresses(settings: Settings) -> tuple[Address, ...]:
    """Resolve the host and see that it may be loaded. Raises ValueError with one line."""
    addresses = addresses_of(settings.host, settings.resolves)
    if not may_be_loaded(settings.host, addresses, settings.may_load):
        name = settings.host.name
        raise ValueError(
            f"--host: {name} is outside loopback and private ranges: "
            f"if you are allowed to load it, say --i-may-load {name}"
        )
    return addresses


def try_connection(host: Host, addresses: tuple[Address, ...], context: ssl.SSLContext | None) -> dict[str, str]:
    """Open one connection to each address, as the load will.

    Returns what TLS agreed on. Raises ValueError with one line.
    """
    agreed: dict[str, str] = {}
    for family, target in addresses:
        where = f"{host.authority} at {target[0]}:{target[1]}"
        with get_original("socket", "socket")(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(_LIMIT_S)
            try:
                sock.connect(target)
            except TimeoutError:
                raise ValueError(
                    f"--host: {where} does not answer within {_LIMIT_S:.0f} s: check address, port and firewall"
                ) from None
            except OSError as error:
                raise ValueError(f"--host: cannot connect to {where}: {error.strerror}: is it running there?") from None
            if context is not None:
                agreed = _try_tls(sock, host, where, context)
    return agreed


def _try_tls(sock: socket.socket, host: Host, where: str, context: ssl.SSLContext) -> dict[str, str]:
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b"\x0a" + b"\0" * 15)  # 10 s, as a timeval
    try:
        tls = context._wrap_socket(sock, server_side=False, server_hostname=host.name)  # type: ignore[attr-defined]
        tls.do_handshake()
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message
        raise ValueError(
            f"--host: the certificate of {where} is not trusted: {reason}: "
            "give --ca FILE, or --insecure to load it unverified"
        ) from None
    except ssl.SSLWantReadError:
        raise ValueError(
            f"--host: {where} does not answer a TLS handshake within {_LIMIT_S:.0f} s: is it an http:// port?"
        ) from None
    except ssl.SSLError as error:
        raise ValueError(
            f"--host: {where} does not speak TLS as we do: {error.reason or error}: is it an http:// port?"
        ) from None
    except OSError as error:
        raise ValueError(
            f"--host: {where} broke the TLS handshake: {error.strerror or 'it closed the connection'}: "
            "is it an http:// port?"
        ) from None
    return {"tls_version": tls.version() or "", "cipher": (tls.cipher() or ("",))[0]}


def check_descriptors(connections: int) -> None:
    """One process must be able to hold so many connections. Raises ValueError with the number needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OWN_FDS
    if soft < needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    elif soft < needed:
        raise ValueError(
            f"-u: {connections} connections need {needed} open files, the limit here is {soft} and {hard} at most: "
            f"raise it with 'ulimit -n {needed}', or spread the load over more processes with --processes"
        )


def check_run_dir(path: Path) -> None:
    """A run directory must be new, in a place where it can be made. Raises ValueError with one line."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--run-dir: {path} exists and is not empty: give another one")
    parent = path.absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        reason = "cannot be written to" if parent.is_dir() else "is no folder"
        raise ValueError(f"--run-dir: {path} cannot be made, because {parent} {reason}: give another one")
