"""Requests of members of share groups, as steps. All read partition 0 of `s0`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import SHARE_TOPIC, Side, as_int, rows
from kip848_client.testing.judge.broker.steps import AskingStep, Epoch, Request, find_epoch
from kip848_client.wire.record_batch import Record, build_batch

WAIT_MS: Final = 300
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3

Said = tuple[tuple[int, int, int], ...]
"""First offset, last offset, and what is said about them."""


class ShareHeartbeat(AskingStep, frozen=True):
    """A ShareGroupHeartbeat."""

    member: str
    epoch: Epoch = Epoch.CURRENT
    names: tuple[str, ...] | None = None
    group: str = "g"

    def request(self, side: Side) -> Request:
        view = side.view(self.group, self.member)
        offset = side.epoch_offset.get(self.group, 0)
        return (
            "share_group_heartbeat",
            1,
            {
                "group_id": side.group_id(self.group),
                "member_id": view.member_id,
                "member_epoch": find_epoch(self.epoch, view, offset=offset),
                "subscribed_topic_names": None
                if self.names is None
                else [side.topic_name(name) for name in self.names],
            },
        )

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        side.hear_heartbeat(self.group, self.member, sent_epoch=sent["member_epoch"], answer=answer)


class ShareFetch(AskingStep, frozen=True):
    """A ShareFetch of one member.

    Args:
        session: epoch of the share session; None goes on with the one that the member has.
        said: acknowledgements that go with it.
        reads: whether it may bring records.
    """

    member: str
    session: int | None = None
    said: Said = ()
    reads: bool = True
    group: str = "g"

    def request(self, side: Side) -> Request:
        count = 100 if self.reads else 0
        limits = {"max_wait_ms": WAIT_MS if self.reads else 0, "min_bytes": 1, "max_bytes": 1 << 20}
        fields = _session(side, self.group, self.member, self.session, self.said, opens=self.reads)
        return "share_fetch", 1, {**fields, **limits, "max_records": count, "batch_size": 100}

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        _hear_session(side, self.group, self.member, sent, answer)

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """What was acquired, and what became of the acknowledgements."""
        parts = [part for topic in rows(answer["responses"]) for part in rows(topic["partitions"])]
        acquired: list[Json] = []
        for part in parts:
            for row in rows(part["acquired_records"]):
                last = acquired[-1] if acquired else None
                first, end, count = (row[name] for name in ("first_offset", "last_offset", "delivery_count"))
                if isinstance(last, dict) and last["to"] == as_int(first) - 1 and last["delivery"] == count:
                    last["to"] = end
                else:
                    acquired.append({"from": first, "to": end, "delivery": count})
        return {
            "error_code": answer["error_code"],
            "partition errors": [part["error_code"] for part in parts if part["error_code"]],
            "acknowledgement errors": [code for part in parts if (code := part["acknowledge_error_code"])],
            "acquired": acquired,
        }


class ShareAcknowledge(AskingStep, frozen=True):
    """A ShareAcknowledge."""

    member: str
    said: Said
    session: int | None = None
    group: str = "g"

    def request(self, side: Side) -> Request:
        return "share_acknowledge", 1, _session(side, self.group, self.member, self.session, self.said, opens=False)

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        _hear_session(side, self.group, self.member, sent, answer)

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """The codes."""
        parts = [part for topic in rows(answer["responses"]) for part in rows(topic["partitions"])]
        codes: list[Json] = [part["error_code"] for part in parts if part["error_code"]]
        return {"error_code": answer["error_code"], "partition errors": codes}


class Produce(AskingStep, frozen=True):
    """A Produce of some records, as one batch."""

    count: int

    def request(self, side: Side) -> Request:
        batch = build_batch([Record(key=None, value=b"judged", timestamp=int(time.time() * 1000))] * self.count)
        data = [{"name": side.topic_name(SHARE_TOPIC), "partition_data": [{"index": 0, "records": batch}]}]
        return "produce", 9, {"acks": -1, "timeout_ms": 10_000, "topic_data": data}

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """The code and the offset."""
        (part,) = rows(rows(answer["responses"])[0]["partition_responses"])
        return {"error_code": part["error_code"], "base_offset": part["base_offset"]}


def _session(side: Side, group: str, member: str, session: int | None, said: Said, *, opens: bool) -> dict[str, Any]:
    """The fields that a ShareFetch and a ShareAcknowledge have in common."""
    epoch = side.sessions.get((group, member), 0) if session is None else session
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": (kind,)} for first, last, kind in said]
    named = bool(batches) or (opens and epoch == 0)
    partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
    topic = {"topic_id": uuid.UUID(side.topic_id(SHARE_TOPIC)), "partitions": partitions}
    return {
        "group_id": side.group_id(group),
        "member_id": side.view(group, member).member_id,
        "share_session_epoch": epoch,
        "topics": [topic] if named else [],
    }


def _hear_session(side: Side, group: str, member: str, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
    if not answer["error_code"]:
        side.sessions[group, member] = sent["share_session_epoch"] + 1
