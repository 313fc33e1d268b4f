"""Options of ``kip848 broker`` for TLS and SASL. Passwords come from files: ``ps`` shows command lines to every user.

::

    kip848 broker --tls-certificate broker.pem --tls-key broker.key --sasl-users users.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kip848_client.errors import ConfigError
from kip848_client.testing.broker.net.listener_security import BROKER_MECHANISMS, BrokerSasl, BrokerTls
from kip848_client.wire.sasl.oauthbearer import OAuthBearerServer


def add_security_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("security")
    group.add_argument("--tls-certificate", metavar="FILE", type=Path, help="serve TLS with this certificate (PEM)")
    group.add_argument("--tls-key", metavar="FILE", type=Path, help="its private key, if it is not in the same file")
    group.add_argument("--tls-key-password-file", metavar="FILE", type=Path, help="the password of that key")
    group.add_argument(
        "--tls-client-ca", metavar="FILE", type=Path, help="demand client certificates that this authority signed"
    )
    group.add_argument(
        "--sasl-users", metavar="FILE", type=Path, help="demand a login; one NAME:PASSWORD a line, '#' begins a comment"
    )
    group.add_argument(
        "--sasl-mechanism",
        metavar="NAME",
        action="append",
        default=[],
        choices=BROKER_MECHANISMS,
        help="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (unsecured tokens; alone it needs no users); may be "
        "repeated; without it both SCRAM mechanisms",
    )
    group.add_argument(
        "--allow-remote", action="store_true", help="listen on an address that is not loopback; needs authentication"
    )
    group.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="listen on an address that is not loopback, without a login: only in a network that you trust",
    )


def security_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `EmbeddedBroker` that the options stand for.

    Raises:
        ConfigError: options that do not go together, or a file that cannot be read.
    """
    return {
        "tls": _tls(arguments),
        "sasl": _sasl(arguments),
        "allow_remote": "anonymous" if arguments.allow_anonymous else arguments.allow_remote,
    }


def _tls(arguments: argparse.Namespace) -> BrokerTls | None:
    if arguments.tls_certificate is None:
        for option in ("tls_key", "tls_key_password_file", "tls_client_ca"):
            if getattr(arguments, option) is not None:
                raise ConfigError(f"--{option.replace('_', '-')} needs --tls-certificate")
        return None
    password = None
    if arguments.tls_key_password_file is not None:
        password = _read(arguments.tls_key_password_file, "--tls-key-password-file").rstrip("\r\n")
    return BrokerTls(arguments.tls_certificate, arguments.tls_key, password, arguments.tls_client_ca)


def _sasl(arguments: argparse.Namespace) -> BrokerSasl | None:
    if arguments.sasl_users is None:
        if arguments.sasl_mechanism == [OAuthBearerServer.mechanism]:
            return BrokerSasl(mechanisms=(OAuthBearerServer.mechanism,))
        if arguments.sasl_mechanism:
            raise ConfigError("--sasl-mechanism needs --sasl-users")
        return None
    users = parse_users(_read(arguments.sasl_users, "--sasl-users"), where=str(arguments.sasl_users))
    return BrokerSasl(users, tuple(arguments.sasl_mechanism)) if arguments.sasl_mechanism else BrokerSasl(users)


def parse_users(text: str, *, where: str) -> dict[str, str]:
    """Read ``NAME:PASSWORD`` of each line; a password may have colons.

    Raises:
        ConfigError: a line is not NAME:PASSWORD, or a name comes twice. The line is not shown: it may be a password.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise ConfigError(f"{where}, line {number}: not NAME:PASSWORD")
        if name in users:
            raise ConfigError(f"{where}, line {number}: user {name!r} comes twice")
        users[name] = password
    return users


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option} {path}: not UTF-8 text") from error
