"""Tokens for Google Cloud's Managed Service for Apache Kafka, by Google's authentication library.

The only home of ``google.auth``. It finds credentials where Google's tools do: GOOGLE_APPLICATION_CREDENTIALS, gcloud's
login, the machine's service account, workload identity.

Source:
    Google's login handlers for Kafka: an access token is sent as the signature of a JSON Web Token that only says whose
    it is and when it ends.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any, ClassVar, Final

from kip848_client.common.model import Confidential, OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError
from kip848_client.logins.source import LIFE_IF_UNKNOWN_S, checked_token, library_of_extra, plain

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}


class GcpSource(Confidential, frozen=True):
    """Asks Google's library for the credentials of this machine or user.

    Attributes:
        extensions: SASL extensions that go with each token.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return "Google's authentication library"

    def fetch(self, now_s: float) -> OAuthToken:
        """Ask for an access token.

        Raises:
            ConnectionLostError: Google was not reached.
            AuthenticationError: the library is not installed, there are no credentials, or Google refuses them.
        """
        library, errors, transport = google_auth()
        try:
            credentials, _ = library.default(scopes=[_SCOPE])
            credentials.refresh(transport.Request())
        except errors.TransportError as error:
            raise ConnectionLostError(f"{self.name}: {plain(str(error))}") from error
        except (errors.GoogleAuthError, OSError, ValueError) as error:
            kind = ConnectionLostError if getattr(error, "retryable", False) else AuthenticationError
            raise kind(f"{self.name}: {plain(_words(error))}") from error
        expiry: dt.datetime | None = credentials.expiry  # in UTC, without a zone
        expires_s = now_s + LIFE_IF_UNKNOWN_S if expiry is None else expiry.replace(tzinfo=dt.UTC).timestamp()
        subject = str(getattr(credentials, "service_account_email", None) or "")
        claims = {"exp": expires_s, "iat": now_s, "iss": "Google", "scope": "kafka", "sub": subject}
        parts = [json.dumps(_HEADER), json.dumps(claims), str(credentials.token)]
        return checked_token(".".join(map(_encoded, parts)), expires_s, subject, dict(self.extensions), who=self.name)

    def has_changed(self) -> bool:
        """Never: the library is asked when its token grows old."""
        return False


def google_auth() -> tuple[Any, Any, Any]:
    """Google's library, its errors and its transport.

    Raises:
        AuthenticationError: it is not installed.
    """
    with library_of_extra("a login with Google's credentials needs google-auth: pip install 'kip848_client[gcp]'"):
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    return google.auth, google.auth.exceptions, google.auth.transport.requests


def _words(error: Exception) -> str:
    """Google's errors have the text first, then the whole answer."""
    return str(error.args[0]) if error.args else type(error).__name__


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
