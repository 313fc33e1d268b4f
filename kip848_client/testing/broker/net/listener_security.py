"""How the embedded broker is secured: values that `EmbeddedBroker` takes, and the TLS context made from them.

`authentication` decides who is let in, and when.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal

from kip848_client.common.model import Confidential
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.wire.sasl.oauthbearer import OAuthBearerServer
from kip848_client.wire.sasl.plain import PlainServer
from kip848_client.wire.sasl.scram import SCRAM_MECHANISMS
from kip848_client.wire.tls import load_identity

BROKER_MECHANISMS: Final = (PlainServer.mechanism, *SCRAM_MECHANISMS, OAuthBearerServer.mechanism)
"""SASL mechanisms that the embedded broker can offer."""


class BrokerTls(Confidential, frozen=True):
    """TLS of an embedded broker. PEM files.

    Args:
        certificate: the broker's certificate, and the chain above it.
        key: its private key; in the file of the certificate if None.
        key_password: of the private key.
        client_ca: given, clients must show a certificate that this authority signed.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"key_password"})

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str] | None = None
    key_password: str | None = None
    client_ca: str | os.PathLike[str] | None = None


class BrokerSasl(Confidential, frozen=True):
    """The users of an embedded broker, and their mechanisms.

    Args:
        users: passwords by user name; none are needed for ``OAUTHBEARER`` alone.
        mechanisms: of `BROKER_MECHANISMS`.
        validate_token: for ``OAUTHBEARER``: takes a token, and returns the user's name and when the token expires, in
            seconds since 1970; raises anything for a token that is not valid. It is called on the broker's thread, so
            it must not wait for a network. Without it unsecured JSON Web Tokens are taken, as in Kafka's test mode.

    Raises:
        ConfigError: no user, an empty password, or a mechanism that is not offered.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"users"})

    users: Mapping[str, str] = {}
    mechanisms: tuple[str, ...] = tuple(SCRAM_MECHANISMS)
    validate_token: Callable[[str], tuple[str, float]] | None = None

    def __post_init__(self) -> None:
        users: object = self.users
        mechanisms: object = self.mechanisms
        if not isinstance(users, Mapping) or not all(isinstance(part, str) for pair in users.items() for part in pair):
            # Not shown: it may have passwords.
            raise ArgumentTypeError('BrokerSasl takes passwords by user name: BrokerSasl({"alice": "secret"})')
        if isinstance(mechanisms, str):
            raise ArgumentTypeError(f"BrokerSasl: mechanisms is a tuple of names: ({mechanisms!r},)")
        if not self.users and self.mechanisms != (OAuthBearerServer.mechanism,):
            raise ConfigError("BrokerSasl needs at least one user")
        for name, password in self.users.items():
            if not name or not password or "\0" in name + password:
                raise ConfigError(
                    f"BrokerSasl: name and password of user {name!r} must not be empty or have zero bytes"
                )
        unknown = sorted(set(self.mechanisms) - set(BROKER_MECHANISMS))
        if unknown or not self.mechanisms:
            told = f"mechanism {unknown[0]!r} is not offered" if unknown else "no mechanism is given"
            raise ConfigError(f"BrokerSasl: {told}; choose from {', '.join(BROKER_MECHANISMS)}")


def protocol_name(tls: BrokerTls | None, sasl: BrokerSasl | None) -> str:
    """The value of ``security.protocol`` for clients."""
    if sasl is None:
        return "plaintext" if tls is None else "ssl"
    return "sasl_plaintext" if tls is None else "sasl_ssl"


def server_context(tls: BrokerTls) -> ssl.SSLContext:
    """The context for accepting clients; TLS 1.2 is the lowest version.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate = os.fspath(tls.certificate)
    key = certificate if tls.key is None else os.fspath(tls.key)
    for path in (certificate, key):
        _check_readable(path)

    def ask() -> str:
        # Without this OpenSSL would ask on the terminal, and wait.
        if tls.key_password is None:
            raise ConfigError(f"the private key {key} is encrypted, and no password is given")
        return tls.key_password

    load_identity(context, certificate=certificate, key=key, ask_password=ask, what="the broker's certificate")
    if tls.client_ca is not None:
        authority = os.fspath(tls.client_ca)
        _check_readable(authority)
        try:
            context.load_verify_locations(cafile=authority)
        except ssl.SSLError as error:
            raise ConfigError(f"{authority} holds no certificates in PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """The name of a certificate's owner as Java's X500Principal writes it (RFC 2253): ``CN=alice,O=Example``.

    Args:
        subject: as in ``ssl.SSLSocket.getpeercert()``: the most general part first.
    """
    parts = [
        "+".join(f"{_DN_KEYWORDS.get(key, key)}={_DN_SPECIAL.sub(_escaped, value)}" for key, value in part)
        for part in subject
    ]
    return ",".join(reversed(parts))


_DN_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_DN_SPECIAL: Final = re.compile(r'[,+"\\<>;]|^[ #]| $')


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def check_exposure(
    host: str,
    *,
    advertised_host: str | None,
    allow_remote: bool | Literal["anonymous"],
    tls: BrokerTls | None,
    sasl: BrokerSasl | None,
) -> None:
    """Refuse to serve other machines, unless *allow_remote* is set, and clients must log in or it is ``anonymous``.

    Raises:
        ConfigError: *host* is not an address, or serving others is not asked for or not safe.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError as error:
        raise ConfigError(f"host {host!r} is not an IP address; use 127.0.0.1, ::1 or localhost") from error
    if address.is_loopback:
        return
    if not allow_remote:
        raise ConfigError(
            f"host {host!r} is not loopback: this broker serves its own machine only, unless allow_remote=True "
            "(--allow-remote) is set"
        )
    if sasl is None and (tls is None or tls.client_ca is None) and allow_remote != "anonymous":
        raise ConfigError(
            f"host {host!r} is not loopback, and serving others needs authentication: give users (BrokerSasl), demand "
            'client certificates (BrokerTls.client_ca), or trust the whole network: allow_remote="anonymous" '
            "(--allow-anonymous)"
        )
    if sasl is not None and tls is None and PlainServer.mechanism in sasl.mechanisms:
        raise ConfigError(f"host {host!r} is not loopback, and PLAIN shows passwords; add TLS, or use SCRAM alone")
    if sasl is not None and OAuthBearerServer.mechanism in sasl.mechanisms:
        if sasl.validate_token is None:
            raise ConfigError(
                f"host {host!r} is not loopback, and anyone can make an unsecured token; set validate_token"
            )
        if tls is None:
            raise ConfigError(f"host {host!r} is not loopback, and OAUTHBEARER shows tokens; add TLS, or use SCRAM")
    if address.is_unspecified and advertised_host is None:
        raise ConfigError(
            f"host {host!r} is not an address that clients can connect to; give its Listener an advertised_host "
            "(--listen HOST:PORT=HOST:PORT)"
        )


def _check_readable(path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
