"""The events that the recorder reads out of records are those that the coordinator noted when it wrote them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client.journal import JournalEvent
from kip848_client.testing.coordinator.core.group_events import to_journal
from kip848_client.testing.coordinator.core.result import CoordinatorResult
from kip848_client.testing.simulation.run import run
from kip848_client.testing.simulation.virtual import cluster
from kip848_client.testing.simulation.virtual.scenario import scenario_of
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.wire.messages.group_records import encode_record_key, encode_record_value
from tests.support.coordinator_harness import Harness

IN_THE_RECORDS = frozenset(
    {
        "member_left",
        "group_epoch_bumped",
        "target_assignment_computed",
        "member_assignment_changed",
        "group_state_changed",
    }
)
"""Events that leave a trace of their own. A join of a member that is there already does not."""


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[CoordinatorResult]:
    """Every decision whose records the simulated cluster kept."""
    kept: list[CoordinatorResult] = []
    finish = cluster.CoordinatorHost.finish

    def finish_and_keep(self: cluster.CoordinatorHost, result: CoordinatorResult) -> None:
        before = len(self._cluster.log)
        finish(self, result)
        if len(self._cluster.log) > before:
            kept.append(result)

    monkeypatch.setattr(cluster.CoordinatorHost, "finish", finish_and_keep)
    return kept


@pytest.mark.parametrize("scenario", ["churn", "static", "topics", "patterns", "refusals"])
@pytest.mark.parametrize("seed", range(3))
def test_records_lead_to_the_events_that_the_coordinator_noted(
    scenario: str, seed: int, decisions: list[CoordinatorResult]
) -> None:
    """A report of a recorded cluster would differ from that of the same groups on the embedded broker."""
    run(scenario_of(scenario, seed=seed, changes=()), seed=seed)
    recorder = Recorder()
    assert len(decisions) > 20
    for number, decision in enumerate(decisions, start=1):
        recorded = list(_recorded(recorder, decision, ts_ms=number))
        noted = [to_journal(event, ts_ms=number, topic_name=recorder.name_of) for event in decision.events]
        assert _comparable(recorded) == _comparable(noted), f"decision {number} of seed {seed}: {decision.records}"


def test_two_members_that_commit_in_one_millisecond_have_a_commit_each() -> None:
    """The report of a cluster would count fewer commits than its members made."""
    harness = Harness()
    harness.create_topic("orders", partitions=4)
    harness.join("one", ["orders"])
    harness.join("two", ["orders"])
    harness.heartbeat("one", 1)
    harness.heartbeat("one", 1, owned=harness.target("one"))
    harness.heartbeat("two", 2)
    first = len(harness.results)
    for member in ("one", "two"):
        harness.commit(member, 2, {topic: dict.fromkeys(held, 5) for topic, held in harness.assigned(member).items()})
    recorder = Recorder(topic_name=lambda topic_id: harness.image.by_id[topic_id].name)
    for number, decision in enumerate(harness.results[:first]):
        list(_recorded(recorder, decision, ts_ms=number))

    commits = []
    for decision in harness.results[first:]:
        commits += list(_recorded(recorder, decision, ts_ms=first, ends=False))
    commits += list(recorder.finish())

    assert [(event.event, event.member_id, event.fields["offsets"]) for event in commits] == [
        ("offsets_committed", "one", {"orders-0": 5, "orders-1": 5}),
        ("offsets_committed", "two", {"orders-2": 5, "orders-3": 5}),
    ]


def _recorded(
    recorder: Recorder, decision: CoordinatorResult, *, ts_ms: int, ends: bool = True
) -> Iterator[JournalEvent]:
    for record in decision.records:
        value = None if record.value is None else encode_record_value(record.value)
        yield from recorder.add(RawRecord(0, ts_ms, encode_record_key(record.key), value))
    if ends:
        yield from recorder.end_of_partition(0)


def _comparable(events: list[JournalEvent]) -> list[object]:
    """Without what no record tells: why a member left, the assignor's name, and a second leave of a static member."""
    found: list[object] = []
    for event in events:
        if event.event not in IN_THE_RECORDS or event.fields.get("reason") == "static_leave":
            continue
        fields = {name: value for name, value in event.fields.items() if name != "assignor"}
        if event.event == "member_left" and fields["reason"] != "replaced":
            fields["reason"] = "removed"
        elif event.event == "group_epoch_bumped":
            fields["reason"] = str(fields["reason"]).partition(" (")[0]
        found.append((event.event, event.member_id, event.client_id, event.member_epoch, event.group_epoch, fields))
    return sorted(found, key=str)
