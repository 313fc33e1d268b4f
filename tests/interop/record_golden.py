"""Record the bytes of a real Kafka broker: `python -m tests.interop.record_golden` writes tests/golden/wire/ anew.

The recorded requests are the script: they are asked again, in the order of their correlation ids, and request and
answer are written. To add a case, add the `.json` of its request, with the correlation id of the request before it; to
update all answers, record with another version of Kafka. Ids, ports and times differ in every recording: read the diff.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

import msgspec
from kio.index import load_response_schema

from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_wire import CLIENT_ID, Exchange, Json, WireConnection, read_payload
from tests.support.waiting import wait_until

GOLDEN_FOLDER: Final = Path(__file__).parents[1] / "golden" / "wire"
HEX_LINE: Final = 96
TOPIC: Final = "orders"
MADE_BY_THE_BROKER: Final = ("topic_id", "member_id")
"""Fields whose values are learned from answers: later requests have to name what this broker has made."""
STARTING: Final = (14, 15)
"""Errors of a coordinator that is not there yet."""


class Recorded(msgspec.Struct, frozen=True):
    """One request of the recording, and the fields of its answer; none for a case that was not recorded yet."""

    api: str
    version: int
    case: str
    correlation_id: int
    fields: dict[str, Json]
    answer: dict[str, Json]


def recorded_exchanges() -> list[Recorded]:
    """All exchanges, in the order in which they were recorded."""
    found = []
    for path in GOLDEN_FOLDER.glob("*_request.json"):
        said = json.loads(path.read_text())
        answer = path.with_name(path.name.replace("_request.", "_response."))
        fields = json.loads(answer.read_text())["fields"] if answer.exists() else {}
        names = ("api", "version", "case", "correlation_id", "fields")
        found.append(Recorded(**{name: said[name] for name in names}, answer=fields))
    return sorted(found, key=lambda one: (one.correlation_id, not one.answer))


class Conversation:
    """Asks a broker what was recorded, in its own ids.

    Args:
        change: changes the fields of a request before it is sent.
    """

    def __init__(
        self, connection: WireConnection, *, change: Callable[[dict[str, Json]], Json] = lambda fields: fields
    ) -> None:
        self.ids: Final[dict[str, str]] = {}
        """Id in the recording -> that of this broker."""
        self._connection: Final = connection
        self._change: Final = change

    def hold(self) -> Iterator[tuple[Recorded, Exchange]]:
        """Ask everything, and what it takes to be answered alike."""
        everything = recorded_exchanges()
        first_fetch = next(said for said in everything if said.api == "fetch")
        for said in everything:
            if said is first_fetch:
                self._ask(next(one for one in everything if one.api == "produce"))
            yield said, self._ask(said)
            if said.api == "create_topics":
                wait_until_loaded(self._connection)

    def _ask(self, said: Recorded) -> Exchange:
        """Send one recorded request, again while the broker still starts, and learn ids from its answer."""
        fields = cast("dict[str, Json]", self._change(cast("dict[str, Json]", self._in_own_ids(said.fields))))
        exchanges: list[Exchange] = []

        def is_answered() -> bool:
            exchanges.append(self._connection.exchange(said.api, said.version, fields))
            return exchanges[-1].response.get("error_code") not in STARTING

        wait_until(is_answered, what=f"an answer to {said.case}")
        self._learn(said.answer, exchanges[-1].response)
        return exchanges[-1]

    def _in_own_ids(self, value: Json) -> Json:
        match value:
            case dict():
                return {name: self._in_own_ids(item) for name, item in value.items()}
            case list():
                return [self._in_own_ids(item) for item in value]
            case str():
                return self.ids.get(value, value)
            case _:
                return value

    def _learn(self, recorded: Json, answer: Json) -> None:
        match recorded, answer:
            case dict(), dict():
                for name in recorded.keys() & answer.keys():
                    old, new = recorded[name], answer[name]
                    if name in MADE_BY_THE_BROKER and isinstance(old, str) and isinstance(new, str) and old != new:
                        self.ids[old] = new
                    self._learn(old, new)
            case [old], [new]:  # longer lists may be in another order
                self._learn(old, new)
            case _:
                pass


def main() -> None:
    """Start a broker, hold the conversation with it, write the files."""
    with KafkaBroker() as broker, WireConnection(broker.bootstrap_servers) as connection:
        held = list(Conversation(connection).hold())
        for old in GOLDEN_FOLDER.glob("*_re*.*"):
            old.unlink()
        for said, exchange in held:
            write_exchange(said.case, exchange, broker_name=f"Apache Kafka {broker.version}")
        write_refused_version(connection, broker_name=f"Apache Kafka {broker.version}")
    sys.stdout.write(f"{len(held)} exchanges in {GOLDEN_FOLDER}\n")


def write_exchange(case: str, exchange: Exchange, *, broker_name: str) -> None:
    """Write the four files of one exchange."""
    for direction, header, frame, fields in (
        ("request", exchange.request_header_version, exchange.request_bytes, exchange.request),
        ("response", exchange.response_header_version, exchange.response_bytes, exchange.response),
    ):
        described: dict[str, Json] = {
            "broker": broker_name,
            "api": exchange.api,
            "api_key": exchange.api_key,
            "version": exchange.version,
            "direction": direction,
            "case": case,
            "header_version": header,
            "correlation_id": exchange.correlation_id,
            "client_id": CLIENT_ID if direction == "request" else None,
            "fields": fields,
        }
        name = "{api}_v{version}_{case}_{direction}".format_map(described)
        text = frame.hex()
        lines = [text[start : start + HEX_LINE] for start in range(0, len(text), HEX_LINE)]
        (GOLDEN_FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n")
        (GOLDEN_FOLDER / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")


def write_refused_version(connection: WireConnection, *, broker_name: str) -> None:
    """The answer to a version of ApiVersions from the future, which has the layout of version 0."""
    software: dict[str, Json] = {"client_software_name": "wire", "client_software_version": "1"}
    known = connection.exchange("api_versions", 4, software)
    answer = connection.exchange_raw(known.request_bytes[:2] + struct.pack(">h", 99) + known.request_bytes[4:])
    refused = msgspec.structs.replace(
        known, version=0, response_bytes=answer, response=read_payload(load_response_schema(known.api_key, 0), answer)
    )
    write_exchange("unsupported_version", refused, broker_name=broker_name)
    for path in GOLDEN_FOLDER.glob("api_versions_v0_unsupported_version_request.*"):
        path.unlink()


def wait_until_loaded(connection: WireConnection) -> None:
    """Wait until the group coordinator has learnt of the topic: a join by name is answered with partitions."""
    probe: dict[str, Json] = {"group_id": "probe", "member_id": "probe", "topic_partitions": []}
    join: dict[str, Json] = {"rebalance_timeout_ms": 1_000, "member_epoch": 0, "subscribed_topic_names": [TOPIC]}

    def is_answered_with_partitions() -> bool:
        assignment = connection.exchange("consumer_group_heartbeat", 1, probe | join).response["assignment"]
        return isinstance(assignment, dict) and bool(assignment["topic_partitions"])

    wait_until(is_answered_with_partitions, what="the coordinator to learn of the new topic")
    connection.exchange("consumer_group_heartbeat", 1, {**probe, "topic_partitions": None, "member_epoch": -1})


if __name__ == "__main__":
    main()
