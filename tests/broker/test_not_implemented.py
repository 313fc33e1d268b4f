"""docs/broker.md, "Not implemented", row by row: a row about a part that is served by now sends users elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import load_apis
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey

PAGE: Final = Path(__file__).parents[2] / "docs" / "broker.md"


def served(key: ApiKey) -> int | None:
    """The newest version of an API that the broker serves; None if it does not serve it."""
    return next((api.version_max for api in load_apis() if api.api_key == key), None)


def no_two_phase_commit(_: RawConnection) -> None:
    assert served(ApiKey.INIT_PRODUCER_ID) == 5, "KIP-939 is version 6"


def no_replication(connection: RawConnection) -> None:
    throttle = {"resource_type": 4, "resource_name": "1"}
    configs = [{"name": "leader.replication.throttled.rate", "config_operation": 0, "value": "1"}]
    answer = connection.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[throttle | {"configs": configs}], validate_only=True
    )
    assert answer.responses[0].error_code != ErrorCode.NONE


def no_other_levels(connection: RawConnection) -> None:
    update = {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 3}
    assert connection.call(ApiKey.UPDATE_FEATURES, 2, feature_updates=[update]).error_code != ErrorCode.NONE


def no_second_folder(connection: RawConnection) -> None:
    dirs = [{"path": "/elsewhere", "topics": [{"name": "orders", "partitions": [0]}]}]
    answer = connection.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    assert answer.results[0].partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND


def no_tiers(connection: RawConnection) -> None:
    topic = {"name": "tiered", "num_partitions": 1, "replication_factor": 1}
    configs = [{"name": "remote.storage.enable", "value": "true"}]
    answer = connection.call(ApiKey.CREATE_TOPICS, 7, topics=[topic | {"configs": configs}])
    assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG


def no_streams_groups(_: RawConnection) -> None:
    streams = {key for key in ApiKey if key.name.startswith("STREAMS_")}
    share_state = {key for key in ApiKey if 83 <= key <= 87}
    assert [key for key in streams | share_state if served(key) is not None] == []


def no_kerberos(connection: RawConnection) -> None:
    answer = connection.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer.error_code != ErrorCode.NONE
    assert "GSSAPI" not in answer.mechanisms


def no_delegation_tokens(connection: RawConnection) -> None:
    assert connection.call(ApiKey.CREATE_DELEGATION_TOKEN, 3).error_code != ErrorCode.NONE


REFUSED: Final[dict[str, Callable[[RawConnection], None]]] = {
    "two-phase commit (KIP-939), journal events of transactions": no_two_phase_commit,
    "replication: copies of records, lag of followers": no_replication,
    "other levels of features (UpdateFeatures)": no_other_levels,
    "a second log folder": no_second_folder,
    "`remote.storage.enable=true`": no_tiers,
    "streams groups; a share coordinator for other brokers (the share-state APIs 83 to 87)": no_streams_groups,
    "Kerberos at the broker": no_kerberos,
    "a member's requests tied to its user; delegation tokens (refused as without `delegation.token.secret.key`)":
        no_delegation_tokens,
}  # fmt: skip
"""Row of the page -> that it is refused, or not advertised."""

OTHERWISE: Final = (
    "client-side assignors in a group with members of both protocols",
    "Kafka Connect's own workers on the protocol of [workers](workers.md)",
    "fsync by default, and by time (`flush.ms`)",
    "`compression.type` of a topic; deletion of transaction markers by compaction",
    "ListOffsets by time inside batches beyond 50,000 records or 8 MiB unpacked",
)
"""Rows about what is done in another way, and refused to nobody."""


@pytest.mark.kip848_broker(topics={"orders": 1})
@pytest.mark.parametrize("row", REFUSED)
def test_what_is_not_implemented_is_refused(row: str, broker: EmbeddedBroker) -> None:
    """A program that believes that it got it finds out in production, on another broker."""
    with RawConnection(broker.bootstrap_servers) as connection:
        REFUSED[row](connection)


def test_every_row_of_the_page_is_known_here() -> None:
    """Two rows told of what the broker did by then."""
    section = PAGE.read_text(encoding="utf-8").partition("## Not implemented")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| ", section, re.MULTILINE)[1:]
    assert sorted(row for row in rows if row != "---") == sorted([*REFUSED, *OTHERWISE])
