"""Tokens of Azure's Instance Metadata Service (IMDS), for the managed identity of the machine that this runs on.

Workload identity needs nothing of its own: it is `oidc` with the assertion that Kubernetes writes into a file.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kip848_client.common.model import Confidential, OAuthToken
from kip848_client.logins.https import HttpsSettings, Question, ask, shown_url
from kip848_client.logins.source import token_of_answer

IMDS_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
API_VERSION: Final = "2018-02-01"
_PASSING: Final = frozenset({404, 410})
"""IMDS answers these while it starts or is updated."""


class AzureImdsSource(Confidential, frozen=True):
    """Asks the service that answers on every machine of Azure.

    Attributes:
        url: with the query, which names the resource.
        extensions: SASL extensions that go with each token.
        subject_claim: the claim that names the user, for messages.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"url"})

    url: str
    extensions: tuple[tuple[str, str], ...] = ()
    subject_claim: str = "sub"
    https: HttpsSettings = HttpsSettings(proxies=False)

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return f"Azure's metadata service {shown_url(self.url)}"

    def fetch(self, now_s: float) -> OAuthToken:
        """Ask for a token.

        Raises:
            ConnectionLostError: the service was not reached, or could not answer now.
            AuthenticationError: the machine has no such identity, or the resource is unknown.
        """
        check = (
            "that this machine has a managed identity, and resource= and client_id= of query= in "
            "sasl.oauthbearer.config"
        )
        answer = ask(Question(self.url, None, {"Metadata": "true"}, (), check, _PASSING), self.https)
        return token_of_answer(
            answer,
            now_s=now_s,
            who=self.name,
            extensions=dict(self.extensions),
            subject_claim=self.subject_claim,
        )

    def has_changed(self) -> bool:
        """Never: the service is asked when its token grows old."""
        return False
