"""Unsecured JSON Web Tokens (RFC 7515, A.5), as Kafka's test mode of OAUTHBEARER takes them. They prove nothing.

Source:
    apache/kafka ``OAuthBearerUnsecuredJws``, ``OAuthBearerUnsecuredValidatorCallbackHandler``.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

import msgspec

_PARTS: Final = 3
_MS_PER_S: Final = 1000


class TokenError(ValueError):
    """A token is not valid; the text does not repeat it."""


class BearerClaims(NamedTuple):
    """Who a token is for, and until when.

    Attributes:
        user: the principal's name.
        expires_s: in seconds since 1970.
    """

    user: str
    expires_s: float


def unsecured_token(user: str, *, expires_s: float) -> str:
    """A token that anyone can make; for tests."""
    return f"{_packed({'alg': 'none'})}.{_packed({'sub': user, 'exp': expires_s})}."


def read_unsecured_token(token: str, *, now_ms: int) -> BearerClaims:
    """The claims ``sub`` and ``exp`` of a token.

    Raises:
        TokenError: it is no such token, lacks a claim, has expired, or is signed.
    """
    parts = token.split(".")
    if len(parts) != _PARTS or parts[2]:
        raise TokenError("the token is not an unsecured JWS: two parts that end with a dot each")
    header, claims = _unpacked(parts[0]), _unpacked(parts[1])
    if header.get("alg") != "none":
        raise TokenError("the token's algorithm is not 'none'; give BrokerSasl a validate_token for signed tokens")
    user, expires_s, issued_s = claims.get("sub"), _number(claims, "exp"), _number(claims, "iat")
    if not isinstance(user, str) or not user:
        raise TokenError("the token's claim 'sub' is missing, or not text")
    if expires_s is None or now_ms >= expires_s * _MS_PER_S:
        raise TokenError("the token has no claim 'exp', or has expired")
    if issued_s is not None and (issued_s * _MS_PER_S > now_ms or issued_s >= expires_s):
        raise TokenError("the token's claim 'iat' is later than now, or than 'exp'")
    return BearerClaims(user, expires_s)


def _number(claims: dict[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's claim {name!r} is not a number")
    return float(value)


def _packed(content: dict[str, object]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()


def _unpacked(part: str) -> dict[str, object]:
    try:
        content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(content, type=dict[str, object])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise TokenError("a part of the token is not JSON in base64") from error
