"""TLS contexts from `TlsSettings`. Opens no connection; what a failed handshake means is in `tls_failures`.

TLS 1.2 is the lowest version. The host name is checked unless the settings say otherwise, and then that is logged where
the client is put together.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kip848_client.common.model import TlsSettings
from kip848_client.errors import ConfigError
from kip848_client.wire.tls_failures import reason_of

_CERTIFICATE: Final = "ssl.certificate"
_KEY: Final = "ssl.key"


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context for dialling brokers.

    Raises:
        ConfigError: a file or text cannot be used; the message names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not settings.verify_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not settings.verify_host_name:
        context.check_hostname = False
    _trust(context, settings)
    if settings.crl_location is not None:
        with _naming("ssl.crl.location", settings.crl_location):
            context.load_verify_locations(cafile=settings.crl_location)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if settings.cipher_suites is not None:
        with _naming("ssl.cipher.suites", settings.cipher_suites):
            context.set_ciphers(settings.cipher_suites)
    _identify(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    location = settings.ca_location
    if location is not None:
        with _naming("ssl.ca.location", location):
            if Path(location).is_dir():
                context.load_verify_locations(capath=location)
            else:
                context.load_verify_locations(cafile=location)
    elif settings.ca_pem is not None:
        with _naming("ssl.ca.pem", "the text"):
            context.load_verify_locations(cadata=settings.ca_pem)
    else:
        context.load_default_certs()


def _identify(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate_pem, key_pem = settings.certificate_pem, settings.key_pem
    if settings.keystore_location is not None:
        from kip848_client.wire.key_stores import read_key_store  # here: it loads another library

        certificate_pem, key_pem = read_key_store(settings.keystore_location, settings.keystore_password)
    if settings.certificate_location is None and certificate_pem is None:
        return
    password = settings.key_password

    def ask() -> str:
        # Without this OpenSSL would ask on the terminal, and wait.
        if password is None:
            raise ConfigError("ssl.key.password is missing: the private key is encrypted")
        return password

    with (
        _as_file(settings.certificate_location, certificate_pem) as certificate,
        _as_file(settings.key_location, key_pem) as key,
    ):
        for name, path in ((_CERTIFICATE, certificate), (_KEY, key)):
            with _naming(f"{name}.location", path), Path(path).open("rb"):
                pass  # load_cert_chain does not say which file is missing
        load_identity(context, certificate=certificate, key=key, ask_password=ask)


def load_identity(
    context: ssl.SSLContext, *, certificate: str, key: str, ask_password: object = None, what: str = _CERTIFICATE
) -> None:
    """Let *context* prove who we are with a certificate (and the chain above it) and its private key, PEM files.

    Raises:
        ConfigError: they cannot be used; the message has the reason that OpenSSL gives.
    """
    try:
        context.load_cert_chain(certificate, key, password=ask_password)  # type: ignore[arg-type]  # a callable, or None
    except ssl.SSLError as error:
        if reason_of(error) == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{what}: the private key does not belong to the certificate") from error
        # OpenSSL does not tell a wrong password from a damaged file.
        told = "" if ask_password is None else ", or the password does not open the key"
        raise ConfigError(f"{what}: certificate or private key cannot be read as PEM{told}") from error
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror or error}") from error


@contextmanager
def _as_file(location: str | None, pem: str | None) -> Iterator[str]:
    """The path of a PEM file; Python's ssl reads keys from files alone, so a text is written to one for a moment."""
    if location is not None:
        yield location
        return
    assert pem is not None
    handle, path = tempfile.mkstemp(prefix="kip848-", suffix=".pem")  # readable by this user alone
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(pem)
        yield path
    finally:
        Path(path).unlink()


@contextmanager
def _naming(key: str, value: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise ConfigError(f"{key}: {value} cannot be used: {reason_of(error)}") from error
    except OSError as error:
        raise ConfigError(f"{key}: {value}: {error.strerror or error}") from error
