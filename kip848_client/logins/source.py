"""What every source of tokens offers, and how an answer of one becomes a token. Fetches nothing itself."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError

LIFE_IF_UNKNOWN_S: Final = 300.0
"""Of a token that does not say when it ends, and whose issuer does not either."""

_MILLISECONDS_FROM: Final = 100_000_000_000
"""An expiry after the year 5000 is one in milliseconds, and its token would never be renewed."""

_MARKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
TOLD_MAX: Final = 300


class TokenSource(Protocol):
    """One way to get tokens. Used by one thread at a time; a value, so that equal settings share one token."""

    @property
    def name(self) -> str:
        """What it is, for messages; without secrets."""
        ...

    def fetch(self, now_s: float) -> OAuthToken:
        """Get a token; may block.

        Args:
            now_s: wall clock, in seconds since 1970.

        Raises:
            ConnectionLostError: there is none now; it may be there later.
            AuthenticationError: asking again would not help. Neither message contains a secret.
        """
        ...

    def has_changed(self) -> bool:
        """Whether there is a newer token than the last one, although that is still good; must not block."""
        ...


@contextmanager
def library_of_extra(words: str) -> Iterator[None]:
    """Import a library that the plain install does not have.

    Args:
        words: what needs which library, and how it is installed.

    Raises:
        AuthenticationError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise AuthenticationError(words) from error


def checked_token(
    value: object, expires_s: object, principal: object = "", extensions: object = None, *, who: str
) -> OAuthToken:
    """A token whose parts the mechanism can carry.

    Args:
        who: what returned it, for messages.

    Raises:
        AuthenticationError: it cannot be used. The message never contains the token.
    """
    principal = "" if principal is None else principal
    extensions = {} if extensions is None else extensions
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable() or " " in value:
        raise AuthenticationError(f"{who} returned a token that is not printable ASCII text without spaces (RFC 6750)")
    if isinstance(expires_s, bool) or not isinstance(expires_s, (int, float)):
        raise AuthenticationError(f"{who} returned an expiry of type {type(expires_s).__name__}; seconds are needed")
    if expires_s > _MILLISECONDS_FROM:
        raise AuthenticationError(
            f"{who} returned the expiry {expires_s:.0f}, as if in milliseconds; seconds since 1970 are needed"
        )
    if not isinstance(principal, str):
        raise AuthenticationError(f"{who} returned a principal of type {type(principal).__name__}; text is needed")
    if not isinstance(extensions, dict):
        raise AuthenticationError(f"{who} returned extensions of type {type(extensions).__name__}; a dict is needed")
    for name, text in extensions.items():
        if not can_be_extension(name, text):
            raise AuthenticationError(f"{who} returned an extension that OAUTHBEARER cannot carry (RFC 7628, KIP-342)")
    return OAuthToken(value, float(expires_s), principal, tuple(extensions.items()))


def can_be_extension(name: object, text: object) -> bool:
    """Whether OAUTHBEARER can carry this SASL extension (RFC 7628, KIP-342)."""
    if not (isinstance(name, str) and isinstance(text, str) and name.isascii() and name.isalpha() and name != "auth"):
        return False
    return all(character.isprintable() or character in "\r\n\t" for character in text)


def token_of_answer(
    answer: Mapping[str, object],
    *,
    now_s: float,
    who: str,
    extensions: Mapping[str, str],
    subject_claim: str = "sub",
) -> OAuthToken:
    """The token in an issuer's answer (RFC 6749, 5.1).

    Its end is told by ``expires_in``, else by the token's own claim ``exp``.

    Raises:
        ConnectionLostError: there is no token in it.
        AuthenticationError: the token cannot be used.
    """
    value = answer.get("access_token") or answer.get("id_token")
    if value is None:
        fields = ", ".join(sorted(answer)) or "no field"
        raise ConnectionLostError(f"{who} answered without access_token, but with {plain(fields)}; check its URL")
    claims = claims_of(value)
    expires_s = _number(answer.get("expires_in"))
    if expires_s is not None:
        expires_s += now_s
    else:
        expires_s = _number(answer.get("expires_on")) or _number(claims.get("exp")) or now_s + LIFE_IF_UNKNOWN_S
    return checked_token(value, expires_s, _subject(claims, subject_claim), dict(extensions), who=who)


def token_of_text(
    value: str, *, now_s: float, who: str, extensions: Mapping[str, str], subject_claim: str = "sub"
) -> OAuthToken:
    """The token *value*, whose end is its own claim ``exp``.

    Raises:
        AuthenticationError: it cannot be used.
    """
    answer = {"access_token": value}
    return token_of_answer(answer, now_s=now_s, who=who, extensions=extensions, subject_claim=subject_claim)


def claims_of(token: object) -> dict[str, object]:
    """The claims of a JSON Web Token; none if it is another kind of token. The signature is the broker's to check."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def without_secrets(text: str, secrets: tuple[str | None, ...]) -> str:
    """*text* that an issuer sent, on one line, cut, and without *secrets*, which it may repeat."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "...")
    return plain(text)


def plain(text: str) -> str:
    """*text* on one line, and cut."""
    told = _MARKS.sub(" ", text).strip()
    return told if len(told) <= TOLD_MAX else f"{told[:TOLD_MAX]}..."


def _subject(claims: Mapping[str, object], claim: str) -> str:
    subject = claims.get(claim)
    return subject if isinstance(subject, str) else ""


def _number(value: object) -> float | None:
    """A number of seconds, also as text, which Azure sends."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < _MILLISECONDS_FROM else None
