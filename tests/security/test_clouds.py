"""Amazon's and Google's libraries as sources of tokens; without a network, but for an issuer on loopback."""

from __future__ import annotations

import base64
import json
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client.config import parse_consumer_config
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError, Kip848Error
from kip848_client.logins.aws import AwsStsSource, region_of
from kip848_client.logins.oauth_tokens import OAuthTokens
from tests.support.issuer import Issuer, client_key, decoded

P: Final = "sasl.oauthbearer."
SERVERLESS: Final = "boot-1.kafka-serverless.us-east-2.amazonaws.com"


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine of whoever runs the tests may have accounts."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials, and Amazon's signer."""
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-aws")


def tokens_of(servers: str = "b-1.shop.k.c2.kafka.eu-west-1.amazonaws.com:9098", **keys: str) -> OAuthTokens:
    conf = {"bootstrap.servers": servers, "group.id": "g", "security.protocol": "sasl_ssl", **keys}
    found = parse_consumer_config(conf).data_plane["oauth_cb"]
    assert isinstance(found, OAuthTokens)
    return OAuthTokens(found.source)


def signed_url(token: str) -> tuple[str, dict[str, str]]:
    url = urllib.parse.urlsplit(decoded(token).decode())
    return url.netloc, dict(urllib.parse.parse_qsl(url.query))


@pytest.mark.usefixtures("aws")
def test_a_token_for_msk_is_signed_by_amazons_library() -> None:
    """One line is enough where Java's file has three."""
    tokens = tokens_of(**{"sasl.mechanism": "AWS_MSK_IAM"})
    token = tokens.token()
    host, query = signed_url(token.value)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert "canary" not in repr(token) + repr(tokens) + repr(tokens.source) + str(query)


@pytest.mark.usefixtures("aws")
def test_profiles_of_aws_and_another_region_are_named_in_the_configuration(tmp_path: Path) -> None:
    """A laptop has several accounts."""
    (tmp_path / "credentials").write_text("[dev]\naws_access_key_id=AKIDDEV\naws_secret_access_key=canary\n")
    keys = {
        "sasl.mechanism": "OAUTHBEARER",
        f"{P}metadata.authentication.type": "aws_msk_iam",
        f"{P}config": "region=eu-north-1,awsProfileName=dev",
    }
    host, query = signed_url(tokens_of("10.0.0.1:9098", **keys).token().value)
    assert host == "kafka.eu-north-1.amazonaws.com"
    assert query["X-Amz-Credential"].startswith("AKIDDEV/")


@pytest.mark.usefixtures("aws")
def test_what_aws_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signer raises an AttributeError about None where there are no credentials."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConnectionLostError, match=r"no credentials .*; set AWS_PROFILE"):
        tokens_of(**{"sasl.mechanism": "AWS_MSK_IAM"}).token()
    with pytest.raises(AuthenticationError, match=r"The config profile \(nobody\) could not be found"):
        tokens_of(**{"sasl.mechanism": "AWS_MSK_IAM", f"{P}config": "awsProfileName=nobody"}).token()
    with pytest.raises(ConfigError, match="the region of the cluster is not known"):
        tokens_of("10.0.0.1:9098", **{"sasl.mechanism": "AWS_MSK_IAM"})
    with pytest.raises(ConfigError, match="names are awsDebugCreds"):
        tokens_of(**{"sasl.mechanism": "AWS_MSK_IAM", f"{P}config": "secret=canary"})


def test_the_region_is_in_the_names_of_brokers() -> None:
    """As Amazon's library for Java finds it."""
    assert region_of([SERVERLESS, "b-2.x.kafka.us-east-2.amazonaws.com"]) == "us-east-2"
    assert region_of(["b-1.x.kafka.cn-north-1.amazonaws.com.cn"]) == "cn-north-1"
    assert region_of(["b-1.x.kafka.us-gov-west-1.amazonaws.com"]) == "us-gov-west-1"
    assert region_of([SERVERLESS, "b-1.x.kafka.eu-west-1.amazonaws.com"]) is None
    assert region_of(["kafka.example"]) is None


def test_sts_issues_a_token_for_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of confluent-kafka's method aws_iam."""
    asked: dict[str, Any] = {}
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "arn:aws:iam::1:role/app", "exp": 2e9}).encode()).decode()

    class Boto3:
        @staticmethod
        def client(name: str, **options: object) -> type[Boto3]:
            asked.update(options, name=name)
            return Boto3

        @staticmethod
        def get_web_identity_token(**question: object) -> dict[str, str]:
            asked.update(question)
            return {"WebIdentityToken": f"x.{claims.rstrip('=')}.y"}

    monkeypatch.setitem(sys.modules, "boto3", Boto3)
    keys = {
        "sasl.mechanism": "OAUTHBEARER",
        f"{P}method": "oidc",
        f"{P}metadata.authentication.type": "aws_iam",
        f"{P}config": r"region=eu-west-1,audience=https://a\,b,duration_seconds=600,tag_team=orders",
        f"{P}extensions": "logicalCluster=lkc-1",
    }
    token = tokens_of("kafka.example:9092", **keys).token()
    assert token.principal == "arn:aws:iam::1:role/app"
    assert token.expires_s == 2e9
    assert token.extensions == (("logicalCluster", "lkc-1"),)
    assert asked == {
        "name": "sts",
        "region_name": "eu-west-1",
        "endpoint_url": None,
        "Audience": ["https://a,b"],
        "SigningAlgorithm": "ES384",
        "DurationSeconds": 600,
        "Tags": [{"Key": "team", "Value": "orders"}],
    }


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [("AccessDenied", 403, AuthenticationError), ("Throttling", 429, ConnectionLostError)],
)
def test_a_refusal_of_aws_is_told(
    code: str, status: int, kind: type[Kip848Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS names the role and the action that it lacks."""
    exceptions = pytest.importorskip("botocore.exceptions")

    class Boto3:
        @staticmethod
        def client(*_: object, **__: object) -> type[Boto3]:
            return Boto3

        @staticmethod
        def get_web_identity_token(**_: object) -> None:
            answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise exceptions.ClientError(answer, "GetWebIdentityToken")

    monkeypatch.setitem(sys.modules, "boto3", Boto3)
    with pytest.raises(kind, match=rf"AWS STS in eu-west-1 refuses: An error occurred \({code}\)"):
        AwsStsSource("eu-west-1", "a").fetch(1.0)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


def service_account(issuer: Issuer, folder: Path) -> str:
    """A file of Google's kind, whose tokens come from *issuer*."""
    key, pem = client_key()
    issuer.client_keys.append(key.public_key())
    file = folder / "account.json"
    account = {
        "type": "service_account",
        "client_email": "app@shop.iam",
        "private_key": pem,
        "private_key_id": "1",
        "token_uri": issuer.url,
        "project_id": "shop",
    }
    file.write_text(json.dumps(account))
    return str(file)


GCP: Final = {"sasl.mechanism": "OAUTHBEARER", f"{P}metadata.authentication.type": "gcp"}


def test_googles_library_finds_an_account(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token has the form that Google's brokers take: whose it is, and the access token as the signature."""
    pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(issuer, tmp_path))
    token = tokens_of("kafka.example:9092", **GCP).token()
    header, claims, access = token.value.split(".")
    assert json.loads(decoded(header)) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    told = json.loads(decoded(claims))
    assert told["sub"] == token.principal == "app@shop.iam"
    assert told["exp"] == token.expires_s
    assert decoded(access).decode() == issuer.tokens[0]


def test_what_google_refuses_is_told(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was deleted, and no account at all."""
    pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(issuer, tmp_path))
    issuer.answer = (400, b'{"error":"invalid_grant","error_description":"Invalid JWT Signature."}')
    with pytest.raises(AuthenticationError, match="invalid_grant: Invalid JWT Signature"):
        tokens_of("kafka.example:9092", **GCP).token()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(AuthenticationError, match=r"none\.json was not found"):
        tokens_of("kafka.example:9092", **GCP).token()


@pytest.mark.parametrize(
    ("module", "extra", "keys"),
    [
        ("aws_msk_iam_sasl_signer", "aws", {"sasl.mechanism": "AWS_MSK_IAM"}),
        ("google.auth", "gcp", GCP),
        (
            "boto3",
            "aws",
            {
                "sasl.mechanism": "OAUTHBEARER",
                f"{P}metadata.authentication.type": "aws_iam",
                f"{P}config": "region=eu-west-1,audience=a",
            },
        ),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    module: str, extra: str, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain install has none of them."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'kip848_client\[{extra}\]'"):
        tokens_of(**keys)
