"""Tokens from an issuer's token endpoint: client credentials with a secret or an assertion, and ``jwt-bearer``.

Source:
    RFC 6749 (4.4), RFC 7521, RFC 7523; KIP-768, KIP-1139, KIP-1258.
"""

from __future__ import annotations

import base64
import urllib.parse
from typing import ClassVar, Final

from kip848_client.common.model import Confidential, OAuthToken
from kip848_client.logins.assertions import AssertionSettings
from kip848_client.logins.https import HttpsSettings, Question, ask, shown_url
from kip848_client.logins.source import token_of_answer

CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class OidcSource(Confidential, frozen=True):
    """Asks a token endpoint.

    Attributes:
        grant: `CLIENT_CREDENTIALS` or `JWT_BEARER`.
        client_secret: proves the client; without it `assertion` does.
        urlencode: whether id and secret are encoded before they become a header, as RFC 6749 wants and few issuers do.
        extensions: SASL extensions that go with each token.
        subject_claim: the claim that names the user, for messages.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"url", "client_secret"})

    url: str
    grant: str = CLIENT_CREDENTIALS
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    assertion: AssertionSettings | None = None
    urlencode: bool = False
    extensions: tuple[tuple[str, str], ...] = ()
    subject_claim: str = "sub"
    https: HttpsSettings = HttpsSettings()

    @property
    def name(self) -> str:
        """What it is, for messages."""
        who = f" for client {self.client_id!r}" if self.client_id is not None else ""
        return f"the issuer {shown_url(self.url)}{who}"

    def fetch(self, now_s: float) -> OAuthToken:
        """Ask for a token.

        Raises:
            ConnectionLostError: the issuer was not reached, or could not answer now.
            AuthenticationError: it refuses the client.
        """
        form = {"grant_type": self.grant}
        headers: dict[str, str] = {}
        secrets: list[str | None] = [self.client_secret]
        if self.scope is not None:
            form["scope"] = self.scope
        if self.assertion is not None:
            assertion = self.assertion.make(now_s)
            secrets.append(assertion)
            if self.grant == JWT_BEARER:
                form["assertion"] = assertion
            else:
                form |= {"client_assertion_type": _CLIENT_ASSERTION, "client_assertion": assertion}
        if self.client_secret is not None:
            headers["Authorization"] = f"Basic {self._basic()}"
            secrets.append(self._basic())
        elif self.client_id is not None:
            form["client_id"] = self.client_id
        question = Question(self.url, form, headers, tuple(secrets), self._check())
        answer = ask(question, self.https)
        return token_of_answer(
            answer,
            now_s=now_s,
            who=f"the issuer {shown_url(self.url)}",
            extensions=dict(self.extensions),
            subject_claim=self.subject_claim,
        )

    def has_changed(self) -> bool:
        """Never: the issuer is asked when its token grows old."""
        return False

    def _basic(self) -> str:
        quote = urllib.parse.quote_plus if self.urlencode else str
        return base64.b64encode(f"{quote(self.client_id or '')}:{quote(self.client_secret or '')}".encode()).decode()

    def _check(self) -> str:
        keys = [f"client.id={self.client_id!r}"] if self.client_id is not None else []
        keys += ["client.secret"] if self.client_secret is not None else []
        keys += ["scope"] if self.scope is not None else []
        named = ", ".join(f"sasl.oauthbearer.{key}" for key in keys)
        proof = "the assertion's key, audience and issuer" if self.assertion is not None else ""
        return " and ".join(part for part in (named, proof) if part)
