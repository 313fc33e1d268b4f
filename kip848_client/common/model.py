"""Frozen values that every layer shares. No behaviour beyond what the value itself means.

`NamedPartition` and `TopicIdPartition` are named tuples and not structs: they are dictionary keys on every path and
sorted often, and a tuple hashes and sorts in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

import msgspec

from kip848_client.common.named_partition import NamedPartition as NamedPartition  # noqa: PLC0414 - theirs, too
from kip848_client.errors import ConfigError, join_names

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no topic id"."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, which no pattern means. Named in full they are read."""

NO_EPOCH: Final = -1
"""Epoch of a commit or fetch without membership."""


class TopicIdPartition(NamedTuple):
    """A partition of one incarnation of a topic. Sorts by name, then partition.

    Two values are the same partition only if the topic id is equal too: a topic that was deleted and created again
    under its old name is another topic.
    """

    topic: str
    partition: int
    topic_id: UUID

    @property
    def topic_partition(self) -> NamedPartition:
        """The partition by name alone."""
        return NamedPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Unit(msgspec.Struct, frozen=True, order=True):
    """A unit of work that a group of workers shares; each unit runs on one worker. Sorts by name, then index.

    Args:
        index: -1 for a plain unit; 0 and up number the tasks of a name.
    """

    name: str
    index: int = -1

    def __str__(self) -> str:
        return self.name if self.index == -1 else f"{self.name}/{self.index}"


class OffsetAndMetadata(msgspec.Struct, frozen=True):
    """A position, as committed.

    Args:
        offset: the next offset to read; >= 0.
        leader_epoch: leader epoch of the record before it, or -1 if unknown.
        metadata: free text of the application.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetRange(msgspec.Struct, frozen=True):
    """Records of one partition from `start` up to, and without, `end`."""

    partition: NamedPartition
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets; fewer records if some were compacted away or belong to aborted transactions."""
        return self.end - self.start


class SubscriptionPattern(msgspec.Struct, frozen=True):
    """A subscription by regular expression: RE2 syntax, matched against the whole topic name by the coordinator.

    Raises:
        ConfigError: the pattern is empty.

    Source:
        KIP-848 "SubscribedTopicRegex"; Kafka's ``SubscriptionPattern``.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ConfigError("SubscriptionPattern needs a regular expression, got an empty one; use unsubscribe()")


class Subscription(msgspec.Struct, frozen=True):
    """Topics that a member wants: names, a pattern, or both. Empty means unsubscribed."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None


class BrokerNode(msgspec.Struct, frozen=True):
    """A broker's address as the cluster gives it."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (node {self.node_id})"


class Confidential(msgspec.Struct, frozen=True):
    """Base of values that hold secrets: fields named in `HIDDEN` are left out when the value is printed."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.HIDDEN]


class TlsSettings(Confidential, frozen=True):
    """Encryption of connections, trusted authorities, and our own certificate. Paths and texts as given; nothing is
    read here.

    Attributes:
        ca_location: PEM file, or folder of certificates, that is trusted; if `ca_pem` is None too,
            what the machine trusts.
        ca_pem: certificates that are trusted, as PEM text.
        crl_location: PEM file of revoked certificates.
        certificate_location, certificate_pem: our own certificate and the chain above it.
        key_location, key_pem: its private key; in the file of the certificate if absent.
        key_password: of the private key.
        keystore_location, keystore_password: a PKCS#12 store with certificate, chain and key, instead of these.
        cipher_suites: OpenSSL's list for TLS 1.2.
        verify_certificate: False accepts any certificate.
        verify_host_name: False takes any trusted certificate, also one for other names.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset(
        {"ca_pem", "certificate_pem", "key_pem", "key_password", "keystore_password"}
    )

    ca_location: str | None = None
    ca_pem: str | None = None
    crl_location: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = None
    key_password: str | None = None
    keystore_location: str | None = None
    keystore_password: str | None = None
    cipher_suites: str | None = None
    verify_certificate: bool = True
    verify_host_name: bool = True


class OAuthToken(Confidential, frozen=True):
    """A bearer token, as an ``oauth_cb`` or an issuer gave it.

    Attributes:
        value: what the broker is shown.
        expires_s: seconds since 1970.
        principal: whom librdkafka takes it for; the broker reads the token itself.
        extensions: SASL extensions, in order (KIP-342).
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"value"})

    value: str
    expires_s: float
    principal: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


class SaslSettings(Confidential, frozen=True):
    """The identity with which we log in.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: of PLAIN and SCRAM.
        password: of PLAIN and SCRAM.
        token: of OAUTHBEARER: a token that is good for a while; may block.
        token_source: where it comes from, for messages.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password", "token"})

    mechanism: str
    username: str = ""
    password: str = ""
    token: Callable[[], OAuthToken] | None = None
    token_source: str = "oauth_cb"  # noqa: S105  a name


class SecuritySettings(msgspec.Struct, frozen=True):
    """TLS and login settings of every connection to a broker. Without both, connections are plaintext.

    Args:
        loopback_only: a password or token would be sent unencrypted, and the configuration does not allow that: connect
        only to brokers on this machine.
    """

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    loopback_only: bool = False

    @property
    def protocol(self) -> str:
        """Kafka's name of the combination: ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``."""
        if self.sasl is None:
            return "plaintext" if self.tls is None else "ssl"
        return "sasl_plaintext" if self.tls is None else "sasl_ssl"


def describe_partitions(partitions: Iterable[NamedPartition | TopicIdPartition]) -> str:
    """Write partitions for people and logs, see `join_names`: ``orders-0, orders-1``, sorted; ``none`` without any."""
    return join_names(str(partition) for partition in sorted(partitions)) or "none"


def shorten_partitions(partitions: Iterable[NamedPartition | TopicIdPartition]) -> str:
    """Write any number of partitions in one short text: ``orders-[0-7,9], payments-0``; ``none`` without any."""
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return join_names(f"{topic}-{_ranges(sorted(set(its)))}" for topic, its in sorted(numbers.items())) or "none"


_RANGES_SHOWN: Final = 10


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers as ``7``, or as ``[0-7,9]``."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    if len(numbers) == 1:
        return str(numbers[0])
    shown = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_RANGES_SHOWN])
    rest = sum(last - first + 1 for first, last in ranges[_RANGES_SHOWN:])
    return f"[{shown},... {rest:,} more]" if rest else f"[{shown}]"
