"""Names of the data plane's configuration keys, to suggest the nearest one; and which keys hold secrets.

The list is a help for error messages, not a filter: a key that is missing here still reaches librdkafka.
Source: librdkafka CONFIGURATION.md, properties of scope C and *.
"""

from __future__ import annotations

from typing import Final

DATA_PLANE_KEYS: Final[frozenset[str]] = frozenset(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
    client.id client.rack compression.codec connections.max.idle.ms coordinator.query.interval.ms debug
    enable.auto.commit enable.gapless.guarantee enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification error_cb fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms
    internal.termination.signal isolation.level log.connection.close log.queue log.thread.name log_level logger
    max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes message.copy.max.bytes
    message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    oauth_cb queued.max.messages.kbytes queued.min.messages receive.message.max.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.password sasl.username security.protocol socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    stats_cb throttle_cb topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """.split()
)

TOKEN_KEYS: Final[frozenset[str]] = frozenset(
    """
    https.ca.location https.ca.pem sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    """.split()
)
"""Keys that say where tokens come from. librdkafka does not get them: it is given the tokens."""

_SECRET_MARKS: Final = ("password", "secret", "key.pem", "passphrase", "jaas", "oauthbearer.config")


def is_secret(key: str) -> bool:
    """Whether the value of *key* must never be shown."""
    return any(mark in key for mark in _SECRET_MARKS) or ("token" in key and not key.endswith("token.endpoint.url"))
