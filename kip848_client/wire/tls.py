"""TLS contexts from `TlsSettings`, and what a failed handshake means in words. Opens no connection.

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

from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError
from kip848_client.model import TlsSettings

__all__ = ["client_context", "explain_alert", "explain_handshake", "hung_up", "load_identity"]

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
    if settings.certificate_location is None and settings.certificate_pem is None:
        return
    password = settings.key_password

    def ask() -> str:
        # Without this OpenSSL would ask on the terminal, and wait.
        if password is None:
            raise ConfigError("ssl.key.password is missing: the private key is encrypted")
        return password

    with (
        _as_file(settings.certificate_location, settings.certificate_pem) as certificate,
        _as_file(settings.key_location, settings.key_pem) as key,
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
        ConfigError: they cannot be used; says what is wrong as far as OpenSSL tells.
    """
    try:
        context.load_cert_chain(certificate, key, password=ask_password)  # type: ignore[arg-type]  # a callable, or None
    except ssl.SSLError as error:
        if _reason(error) == "KEY_VALUES_MISMATCH":
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
        raise ConfigError(f"{key}: {value} cannot be used: {_reason(error)}") from error
    except OSError as error:
        raise ConfigError(f"{key}: {value}: {error.strerror or error}") from error


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's name of what went wrong; some errors have only a text."""
    reason: str | None = getattr(error, "reason", None)
    return reason or str(error)


# What OpenSSL says of a certificate (X509_V_ERR_...), and what to do about it.
_CAUSES: Final[dict[int, str]] = {
    9: "its certificate is not valid yet; look at the clocks of both machines",
    10: "its certificate has expired; the broker needs a new one",
    18: "its certificate is signed by itself and not trusted here; set ssl.ca.location to that certificate",
    19: "the authority behind its certificate is not trusted here; set ssl.ca.location to that authority's certificate",
    20: "the authority behind its certificate is not known here; set ssl.ca.location to that authority's certificate",
    21: "the authority behind its certificate is not known here; set ssl.ca.location to that authority's certificate",
    23: "its certificate has been revoked",
    3: "no revocation list of its authority is there; add it to the file of ssl.crl.location",
    62: "its certificate is for other host names",
    64: "its certificate is for other addresses",
}


def explain_handshake(error: ssl.SSLError, *, peer: str) -> AuthenticationError | ConnectionLostError:
    """The exception for a handshake that failed with *error*; the caller raises it ``from`` that.

    Returns:
        AuthenticationError where no retry helps; ConnectionLostError if the peer only went away.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        cause = _CAUSES.get(code, f"its certificate was refused: {error.verify_message}")
        if code in (62, 64):
            cause += f"; {error.verify_message}. Connect by a name that it bears, or change the certificate"
        return AuthenticationError(f"TLS with {peer}: {cause} (CERTIFICATE_VERIFY_FAILED)")
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ConnectionLostError(hung_up(peer))
    reason = _reason(error)
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}:
        return AuthenticationError(
            f"TLS with {peer}: it does not speak TLS on this port; check security.protocol and the port ({reason})"
        )
    if reason in {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}:
        return AuthenticationError(f"TLS with {peer}: no common version; TLS 1.2 is the lowest spoken here ({reason})")
    refusal = explain_alert(error, peer=peer)
    if refusal is not None:
        return refusal
    # What is left of a broker's alerts, and damaged records, may pass: it is overloaded, or restarts.
    passing = "ALERT" in reason or "BAD_RECORD_MAC" in reason
    return (ConnectionLostError if passing else AuthenticationError)(f"TLS with {peer} failed: {reason}")


def hung_up(peer: str) -> str:
    """What to say of a peer that ends the connection where its part of the handshake should come."""
    return (
        f"{peer} closed the connection during the TLS handshake; if that stays so, the port may not be one for TLS "
        "(security.protocol)"
    )


def explain_alert(error: BaseException | None, *, peer: str) -> AuthenticationError | None:
    """The exception for what the peer said of **our** certificate, in the handshake or (TLS 1.3) after it; or None."""
    if not isinstance(error, ssl.SSLError):
        return None
    reason = _reason(error)
    if "ALERT" not in reason:
        return None
    if "HANDSHAKE_FAILURE" in reason:
        told = "has no cipher in common (ssl.cipher.suites), or demands a certificate (ssl.certificate.location)"
    elif "CERTIFICATE_REQUIRED" in reason or reason.endswith("ALERT_BAD_CERTIFICATE"):
        told = "demands a certificate from us that it trusts; set ssl.certificate.location and ssl.key.location"
    elif "CERTIFICATE_EXPIRED" in reason:
        told = "refuses our certificate, which has expired (ssl.certificate.location)"
    elif "UNKNOWN_CA" in reason or "CERTIFICATE" in reason or "ACCESS_DENIED" in reason:
        told = "refuses our certificate (ssl.certificate.location); it must be signed by an authority that it trusts"
    else:
        return None
    return AuthenticationError(f"TLS with {peer}: the broker {told} ({reason})")
