"""Explains a failed TLS handshake in words. Makes no context (that is `tls`), opens no connection (`dialling`)."""

from __future__ import annotations

import ssl
from typing import Final

from kip848_client.errors import AuthenticationError, ConnectionLostError


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's name of what went wrong; some errors have only a text."""
    reason: str | None = getattr(error, "reason", None)
    return reason or str(error)


# OpenSSL's verdicts about a certificate (X509_V_ERR_...), with advice.
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
            cause += f"; {error.verify_message.rstrip('.')}. Connect by a name that it bears, or change the certificate"
        return AuthenticationError(f"TLS with {peer}: {cause} (CERTIFICATE_VERIFY_FAILED)")
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ConnectionLostError(hung_up(peer))
    reason = reason_of(error)
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}:
        return AuthenticationError(
            f"TLS with {peer}: it does not speak TLS on this port; check security.protocol and the port ({reason})"
        )
    if reason in {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}:
        return AuthenticationError(f"TLS with {peer}: no common version; TLS 1.2 is the lowest spoken here ({reason})")
    refusal = explain_alert(error, peer=peer)
    if refusal is not None:
        return refusal
    # A broker's other alerts, and damaged records, may pass: it is overloaded, or restarts.
    passing = "ALERT" in reason or "BAD_RECORD_MAC" in reason
    return (ConnectionLostError if passing else AuthenticationError)(f"TLS with {peer} failed: {reason}")


def hung_up(peer: str) -> str:
    """The message for a peer that ends the connection where its part of the handshake should come."""
    return (
        f"{peer} closed the connection during the TLS handshake; if that stays so, the port may not be one for TLS "
        "(security.protocol)"
    )


def explain_alert(error: BaseException | None, *, peer: str) -> AuthenticationError | None:
    """The exception for what the peer said of **our** certificate, in the handshake or (TLS 1.3) after it; or None."""
    if not isinstance(error, ssl.SSLError):
        return None
    reason = reason_of(error)
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
