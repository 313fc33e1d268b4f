"""Files of Java applications: their logins with tokens, as the keys that say the same."""

from __future__ import annotations

from typing import Final

import pytest

from kip848_client.config.java_names import translated
from kip848_client.errors import ConfigError

P: Final = "sasl.oauthbearer."
BEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER: Final = "org.apache.kafka.common.security.oauthbearer"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@pytest.mark.parametrize(
    ("java", "keys"),
    [
        (
            {
                "sasl.login.callback.handler.class": f"{HANDLER}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
                "sasl.jaas.config": f"{BEARER} clientId='orders' clientSecret='canary=;\"x' scope='a b' "
                "extension_logicalCluster='lkc-1' extension_identityPoolId='pool-2';",
                "sasl.login.connect.timeout.ms": "15000",
                "sasl.login.refresh.window.factor": "0.8",
            },
            {
                f"{P}method": "oidc",
                f"{P}token.endpoint.url": "https://issuer/token",
                f"{P}client.id": "orders",
                f"{P}client.secret": 'canary=;"x',
                f"{P}scope": "a b",
                f"{P}extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
            },
        ),
        (
            {
                "sasl.login.callback.handler.class": f"{HANDLER}.secured.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{BEARER};",
                f"{P}jwt.retriever.class": f"{HANDLER}.JwtBearerJwtRetriever",
                f"{P}jwt.validator.class": f"{HANDLER}.ClientJwtValidator",
                f"{P}assertion.file": "/assertion",
            },
            {f"{P}method": "oidc", f"{P}grant.type": JWT_BEARER, f"{P}assertion.file": "/assertion"},
        ),
        (
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
                "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            },
            {"sasl.mechanism": "AWS_MSK_IAM"},
        ),
        (
            {
                "sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="dev" '
                'awsStsRegion="eu-west-1";'
            },
            {f"{P}config": "awsProfileName=dev,awsStsRegion=eu-west-1"},
        ),
        (
            {
                "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f'{BEARER} awsRoleArn="arn:aws:iam::1:role/kafka";',
            },
            {
                f"{P}metadata.authentication.type": "aws_msk_iam",
                f"{P}config": "awsRoleArn=arn:aws:iam::1:role/kafka",
            },
        ),
        (
            {
                "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
                "sasl.jaas.config": f"{BEARER};",
            },
            {f"{P}metadata.authentication.type": "gcp"},
        ),
        (
            {
                "sasl.login.callback.handler.class": (
                    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
                ),
                "sasl.jaas.config": f'{BEARER} oauth.client.id="orders" oauth.client.secret="canary" '
                'oauth.token.endpoint.uri="https://keycloak/token" oauth.ssl.truststore.location="/ca.pem" '
                'oauth.ssl.truststore.type="PEM" ;',
            },
            {
                f"{P}method": "oidc",
                f"{P}client.id": "orders",
                f"{P}client.secret": "canary",
                f"{P}token.endpoint.url": "https://keycloak/token",
                "https.ca.location": "/ca.pem",
            },
        ),
        (
            {"ssl.keystore.location": "/k.jks", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "canary"},
            {"ssl.keystore.location": "/k.jks", "ssl.keystore.password": "canary"},
        ),
        ({"ssl.keystore.location": "/k.p12"}, {"ssl.keystore.location": "/k.p12"}),
    ],
)
def test_a_login_of_java_becomes_keys(java: dict[str, str], keys: dict[str, str]) -> None:
    """The file of the Java application beside will do for a command and for Spark."""
    assert translated(java) == keys


@pytest.mark.parametrize(
    ("java", "told"),
    [
        ({"sasl.jaas.config": f"{BEARER} clientId='a' more='canary';"}, "cannot be translated"),
        ({"sasl.jaas.config": f"{BEARER} unsecuredLoginStringClaim_sub='canary';"}, "unsigned tokens"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required x='canary';"}, "Kerberos"),
        ({"sasl.login.callback.handler.class": "com.example.Ours"}, "com.example.Ours is a class of Java"),
        ({f"{P}jwt.retriever.class": "com.example.Ours"}, "com.example.Ours is a class of Java"),
        (
            {"sasl.jaas.config": f"{BEARER} oauth.ssl.truststore.location='/t.jks' oauth.client.secret='canary';"},
            "https.ca.location=ca.pem",
        ),
        ({"sasl.jaas.config": f"{BEARER} clientId='a';", f"{P}client.id": "b"}, "differ; give one of them"),
    ],
)
def test_what_only_java_can_do_is_refused_without_its_secrets(java: dict[str, str], told: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(ConfigError) as refusal:
        translated(java, prefix="kafka.")
    assert told in str(refusal.value)
    assert "canary" not in str(refusal.value)
