"""Tokens of AWS: for MSK with IAM by Amazon's signer library, and web identity tokens of STS for other clusters.

The only home of ``aws_msk_iam_sasl_signer``, ``boto3`` and ``botocore``. All find credentials where AWS's tools do:
environment, profiles, containers, instance metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from kip848_client.common.model import Confidential, OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error
from kip848_client.logins.source import checked_token, claims_of, library_of_extra, plain

_INSTALL: Final = "pip install 'kip848_client[aws]'"
_REGION_OF_HOST: Final = re.compile(
    r"(?:\.|^)(?:kafka|kafka-serverless)\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?$"
)
_FINAL: Final = frozenset({"ProfileNotFound", "InvalidConfigError", "ConfigParseError", "PartialCredentialsError"})
"""Errors of botocore that only a change of the settings ends."""


def region_of(hosts: Iterable[str]) -> str | None:
    """The region in the names of MSK's brokers, as Amazon's Java library finds it."""
    found = {match[1] for host in hosts if (match := _REGION_OF_HOST.search(host.lower()))}
    return found.pop() if len(found) == 1 else None


class AwsMskIamSource(Confidential, frozen=True):
    """Signs tokens for MSK with IAM.

    Attributes:
        region: of the cluster.
        profile: of AWS's configuration files.
        role_arn, session_name: a role to assume, and how the session is called.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    region: str
    profile: str | None = None
    role_arn: str | None = None
    session_name: str | None = None

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return f"AWS IAM in {self.region}"

    def fetch(self, now_s: float) -> OAuthToken:
        """Sign a token; it lives for 15 minutes.

        Raises:
            ConnectionLostError: there are no credentials now.
            AuthenticationError: the library is not installed, or AWS refuses.
        """
        del now_s
        signer = msk_signer()

        def sign() -> tuple[str, int]:
            if self.role_arn is not None:
                named = {} if self.session_name is None else {"sts_session_name": self.session_name}
                return _pair(signer.generate_auth_token_from_role_arn(self.region, self.role_arn, **named))
            if self.profile is not None:
                return _pair(signer.generate_auth_token_from_profile(self.region, self.profile))
            return _pair(signer.generate_auth_token(self.region))

        token, expires_ms = _asked(self.name, sign)
        return checked_token(token, expires_ms / 1_000, who=self.name)

    def has_changed(self) -> bool:
        """Never: a token is signed anew when the last one grows old."""
        return False


class AwsStsSource(Confidential, frozen=True):
    """Asks STS for a web identity token (GetWebIdentityToken), for clusters that trust AWS as an issuer.

    Attributes:
        audience: for whom the token is.
        life_s: 60 to 3600.
        tags: claims that are added.
        extensions: SASL extensions that go with each token.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    region: str
    audience: str
    algorithm: str = "ES384"
    life_s: int = 300
    endpoint: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return f"AWS STS in {self.region}"

    def fetch(self, now_s: float) -> OAuthToken:
        """Ask for a token.

        Raises:
            ConnectionLostError: there are no credentials now, or STS was not reached.
            AuthenticationError: boto3 is not installed, or AWS refuses.
        """
        sdk = boto3()
        question: dict[str, Any] = {
            "Audience": [self.audience],
            "SigningAlgorithm": self.algorithm,
            "DurationSeconds": self.life_s,
        }
        if self.tags:
            question["Tags"] = [{"Key": name, "Value": text} for name, text in self.tags]

        def answer() -> Any:
            client = sdk.client("sts", region_name=self.region, endpoint_url=self.endpoint)
            return client.get_web_identity_token(**question)

        token = str(_asked(self.name, answer)["WebIdentityToken"])
        claims = claims_of(token)
        expires_s, subject = claims.get("exp", now_s + self.life_s), claims.get("sub", "")
        return checked_token(token, expires_s, subject, dict(self.extensions), who=self.name)

    def has_changed(self) -> bool:
        """Never: STS is asked when its token grows old."""
        return False


def msk_signer() -> Any:
    """Amazon's signer.

    Raises:
        AuthenticationError: it is not installed.
    """
    with library_of_extra(f"a login with AWS IAM needs Amazon's signer library: {_INSTALL}"):
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    return MSKAuthTokenProvider


def boto3() -> Any:
    """Amazon's SDK.

    Raises:
        AuthenticationError: it is not installed.
    """
    with library_of_extra(f"a login with AWS needs boto3: {_INSTALL}"):
        import boto3 as found
    return found


def _pair(returned: Any) -> tuple[str, int]:
    token, expires_ms = returned
    return str(token), int(expires_ms)


def _asked(name: str, question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Kip848Error:
        raise
    except Exception as error:
        from botocore.exceptions import BotoCoreError, ClientError

        kind = type(error).__name__
        if isinstance(error, ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            text = f"{name} refuses: {plain(str(error))}"
            raise (AuthenticationError if 400 <= status < 500 and status != 429 else ConnectionLostError)(
                text
            ) from error
        if isinstance(error, BotoCoreError):
            raise (AuthenticationError if kind in _FINAL else ConnectionLostError)(
                f"{name}: {plain(str(error))}"
            ) from error
        # The signer fails so if AWS's chain finds no credentials.
        raise ConnectionLostError(
            f"{name}: no credentials ({kind}); set AWS_PROFILE, or give this machine or pod a role"
        ) from error
