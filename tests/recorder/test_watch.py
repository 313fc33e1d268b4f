"""``kip848 groups watch``: what a person sees who watches a group."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition

from kip848_client import EmbeddedBroker
from kip848_client.admin import Admin, Progress
from kip848_client.cli import main
from kip848_client.common.model import NamedPartition
from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.groups.watch_screen import PlainLines, draw
from kip848_client.tools.groups.watch_view import GroupView, Wait
from tests.recorder.test_command import member, settle

NOW_MS = 1_700_000_000_000


def event(name: str, who: str | None = None, *, at_ms: int = 0, epoch: int = 2, **fields: JsonValue) -> JournalEvent:
    return JournalEvent(
        ts_ms=NOW_MS + at_ms,
        source="coordinator",
        event=name,
        group_id="billing",
        member_id=who,
        client_id=who,
        member_epoch=epoch,
        group_epoch=epoch,
        fields=fields,
    )


def a_handover() -> GroupView:
    """``two`` shall have orders-1, which ``one`` has not given up yet."""
    view = GroupView("billing")
    for each in (
        event("member_joined", "one", topics=["orders"], instance_id=None),
        event("member_assignment_changed", "one", state="STABLE", assigned={"orders": [0, 1]}, pending_revocation={}),
        event("target_assignment_computed", assignor=None, members={"one": {"orders": [0]}, "two": {"orders": [1]}}),
        event("member_joined", "two", topics=["orders"], instance_id=None),
        event(
            "member_assignment_changed",
            "two",
            at_ms=5_000,
            state="UNRELEASED_PARTITIONS",
            assigned={},
            pending_revocation={},
        ),
        event(
            "member_assignment_changed",
            "one",
            at_ms=6_000,
            state="UNREVOKED_PARTITIONS",
            assigned={"orders": [0]},
            pending_revocation={"orders": [1]},
        ),
        event("group_state_changed", at_ms=6_000, old="Stable", new="Reconciling"),
    ):
        view.take(each)
    return view


def commits_until_one_is_silent() -> list[JournalEvent]:
    """``one`` and ``two`` commit every second; from 10 s to 16 s ``two`` does alone."""
    return [
        *(event("member_joined", who, topics=["orders"], instance_id=None) for who in ("one", "two")),
        *(
            event("member_assignment_changed", who, state="STABLE", assigned={"orders": [index]}, pending_revocation={})
            for index, who in enumerate(("one", "two"))
        ),
        *(
            event("offsets_committed", who, at_ms=1_000 * second, offsets={f"orders-{index}": second})
            for second in range(1, 17)
            for index, who in enumerate(("one", "two"))
            if who == "two" or second <= 10
        ),
    ]


def test_a_member_is_called_silent_if_records_wait_and_others_commit() -> None:
    """A member that died looks healthy until its session ends; one that has nothing to read must not look ill."""
    view = GroupView("billing")
    for each in commits_until_one_is_silent():
        view.take(each)
    now_ms = NOW_MS + 16_000
    view.note_silence(now_ms=now_ms)
    assert "committed nothing" not in view.lines[-1].text, "whether records wait is not known"
    view.progress = {
        each.partition: each
        for each in (
            Progress(NamedPartition("orders", 0), committed=10, end=40, owner="one"),
            Progress(NamedPartition("orders", 1), committed=16, end=40, owner="two"),
        )
    }
    for _ in range(2):
        view.note_silence(now_ms=now_ms)
    assert view.lines[-1].text == "one has committed nothing for 6.0 s; others commit"
    shown: Any = view.to_plain(now_ms=now_ms)["members"]
    one, two = shown
    assert (one["committed_ms"], one["silent"], two["silent"]) == (NOW_MS + 10_000, True, False)
    view.take(event("offsets_committed", "one", at_ms=17_000, offsets={"orders-0": 40}))
    view.note_silence(now_ms=now_ms)
    assert view.lines[-1].text == "one is no longer silent"


def test_a_member_waits_for_the_one_that_still_has_its_partitions() -> None:
    """A group that does not come to rest has one member that does not let go: its name is what is asked for."""
    view = a_handover()
    one, two = view.sorted_members()
    assert view.waits(two) == [Wait((NamedPartition("orders", 1),), "one")]
    assert view.waits(one) == []
    assert one.pending == {NamedPartition("orders", 1)}
    assert one.since_ms == NOW_MS, "it has the same partitions as before"


@pytest.mark.parametrize("live", [True, False])
def test_both_screens_show_who_waits_for_whom_and_since_when(live: bool) -> None:
    """In a terminal, and in a log file."""
    rich = pytest.importorskip("rich.console")
    stream = io.StringIO()
    if live:
        rich.Console(file=stream, width=140).print(draw(a_handover(), now_ms=NOW_MS + 65_000))
    else:
        PlainLines(stream).show(a_handover(), now_ms=NOW_MS + 65_000)
    shown = stream.getvalue()
    assert "Reconciling" in shown
    assert "59 s" in shown
    assert "orders 1 of one" in shown


def test_a_terminal_of_80_columns_shows_whole_names() -> None:
    """Two columns that are empty while a group is at rest took the room of the topics' names."""
    rich = pytest.importorskip("rich.console")
    view = GroupView("billing")
    view.take(event("member_joined", "one", topics=["shipments"], instance_id=None))
    assigned: JsonValue = {"shipments": [0]}
    view.take(event("member_assignment_changed", "one", state="STABLE", assigned=assigned, pending_revocation={}))
    stream = io.StringIO()
    rich.Console(file=stream, width=80).print(draw(view, now_ms=NOW_MS))
    assert "shipments 0" in stream.getvalue()
    assert "gives up" not in stream.getvalue()


def test_lines_tell_what_changes_and_nothing_twice() -> None:
    """A pipe to grep would find one rebalance five times."""
    view, stream = a_handover(), io.StringIO()
    lines = PlainLines(stream)
    lines.show(view, now_ms=NOW_MS)
    stream.truncate(0)
    view.take(event("member_left", "one", reason="removed", at_ms=7_000))
    for _ in range(3):
        lines.show(view, now_ms=NOW_MS)
    assert stream.getvalue().count("one is gone") == 1


def classic_assigned(who: str, *partitions: int) -> JournalEvent:
    """A member with the client id that many share; classic member ids begin with it."""
    assigned: JsonValue = {"orders": list(partitions)}
    shown = event("member_assignment_changed", f"kafka-python-{who}", state="STABLE", assigned=assigned)
    return msgspec.structs.replace(shown, client_id="kafka-python")


def test_a_classic_member_does_not_wait_for_what_it_had_before() -> None:
    """Each generation has its own assignment: partitions that went to another member are not this one's any more."""
    view = GroupView("billing")
    view.take(event("classic_generation_began", protocol="range", epoch=1))
    view.take(classic_assigned("one", 0, 1))
    view.take(event("classic_generation_began", protocol="range", epoch=2))
    view.take(classic_assigned("one", 0))
    view.take(classic_assigned("two", 1))
    assert [view.waits(each) for each in view.sorted_members()] == [[], []]
    view.take(classic_assigned("two"))
    assert view.free == []
    names = [each.name for each in view.sorted_members()]
    assert names == ["kafka-python one", "kafka-python two"], "eight letters of the whole id are the same"


def test_a_member_that_was_silent_before_it_went_is_not_said_to_have_left() -> None:
    """A record does not say whether a member left or died; "left" sends the reader to look for a deploy."""
    view = GroupView("billing")
    for each in commits_until_one_is_silent():
        view.take(each)
    for at_ms, who, reason in ((22_000, "one", "removed"), (16_100, "two", "removed")):
        view.take(event("member_left", who, reason=reason, at_ms=at_ms))
    assert [each.text for each in view.lines][-2:] == [
        "one is gone; its last commit was 12.0 s before",
        "two is gone",
    ]


def test_a_lag_that_grows_is_told_and_one_that_jumps_up_and_down_is_not() -> None:
    """A group that is too slow looks well by its members: only its lag says so, and not by one number."""
    orders, slow, well = NamedPartition("orders", 0), GroupView("billing"), GroupView("billing")
    for each in range(20):
        now_ms = NOW_MS + 2_000 * each
        slow.measured([Progress(orders, committed=14 * each, end=24 * each, owner="one")], now_ms=now_ms)
        well.measured([Progress(orders, committed=24 * (each - each % 2), end=24 * each, owner="one")], now_ms=now_ms)
    plain = slow.to_plain(now_ms=NOW_MS + 38_000)
    assert (plain["lag"], plain["lag_per_s"]) == (190, 5.0)
    lag_ms = plain["lag_ms"]
    assert isinstance(lag_ms, float)
    assert 15_000 < lag_ms < 17_000
    assert [line.text[:16] for line in slow.lines] == ["lag grows by 5.0"]
    stream = io.StringIO()
    PlainLines(stream).show(slow, now_ms=NOW_MS + 38_000)
    assert "lag 190, 16 s behind, growing by 5.0/s" in stream.getvalue()
    assert (well.lag_per_s, list(well.lines)) == (None, [])


def test_a_group_that_a_transaction_holds_back_is_told_so(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its members are well, its lag grows, and nothing in the group is the cause."""
    kip848_broker.topics.create("orders", partitions=2)
    bootstrap = kip848_broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "pay-7"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.commit_offsets("billing", {("orders", 0): 0, ("orders", 1): 0})
    assert main(["groups", "lag", "billing", "--bootstrap", bootstrap]) == 0
    held = "held back by an open transaction (kip848 transactions list): orders-0 at 0"
    assert capsys.readouterr().out.endswith(f"lag 1\n{held}\n")
    assert main(["groups", "list", "--lag", "--bootstrap", bootstrap]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP    TYPE     STATE  MEMBERS  LAG  WITHOUT OWNER  HELD BACK BY A TRANSACTION",
        "billing  classic  Empty        0    1  orders 0       orders 0",
    ]
    assert main(["groups", "list", "--lag", "--json", "--bootstrap", bootstrap]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["groups"]
    assert (shown["lag"], shown["without_owner"], shown["held_back"]) == (1, ["orders-0"], ["orders-0"])
    producer.abort_transaction()
    assert main(["groups", "lag", "billing", "--bootstrap", bootstrap]) == 0
    assert "held back" not in capsys.readouterr().out

    view = a_handover()
    waiting = [Progress(NamedPartition("orders", 0), committed=573, end=600, owner="one")]
    view.measured(waiting, now_ms=NOW_MS)
    assert view.stuck(now_ms=NOW_MS) == [], "a transaction is open for a moment again and again"
    view.measured(waiting, now_ms=NOW_MS + 10_000)
    assert view.stuck(now_ms=NOW_MS + 10_000) == waiting
    view.note_held({NamedPartition("orders", 0): 573}, now_ms=NOW_MS + 10_000)
    view.note_held({}, now_ms=NOW_MS + 20_000)
    assert [line.text for line in view.lines][-2:] == [
        "held back by an open transaction (kip848 transactions list): orders-0 at 573",
        "no longer held back by a transaction",
    ]


def test_a_group_is_watched_on_a_broker(kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Lag comes from the leaders, everything else from the coordinator's records."""
    kip848_broker.topics.create("orders", partitions=2)
    with member(kip848_broker, "one") as one:
        settle(kip848_broker, one)
        one.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        watch = ["groups", "watch", "billing", "--bootstrap", kip848_broker.bootstrap_servers, "--for", "0.5"]
        assert main([*watch, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert main(watch) == 0
    assert (shown["state"], shown["epoch"], shown["lag"]) == ("Stable", 1, 0)
    assert [(each["client_id"], each["owned"]) for each in shown["members"]] == [("one", ["orders-0", "orders-1"])]
    assert "one has orders 0-1 since" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["__init__", "read_to_end"], ids=["describe", "read"])
def test_who_may_not_read_the_records_is_shown_descriptions(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    """Most people may describe their groups, and few may read __consumer_offsets; some may describe that topic."""
    from kip848_client.errors import ErrorCode, error_for_code
    from kip848_client.tools.groups.offsets_reader import OffsetsReader

    def refused(*_: object, **__: object) -> None:
        raise error_for_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "reading __consumer_offsets")

    monkeypatch.setattr(OffsetsReader, step, refused)
    kip848_broker.topics.create("orders", partitions=2)
    with member(kip848_broker, "one") as one:
        settle(kip848_broker, one)
        assert main(["groups", "watch", "billing", "--bootstrap", kip848_broker.bootstrap_servers, "--for", "0.3"]) == 0
    told = capsys.readouterr()
    assert "one has orders 0-1" in told.out
    assert "described every second" in told.err
