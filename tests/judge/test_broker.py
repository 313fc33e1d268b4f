"""Judging a broker: ours keeps every rule, on one node and on three, and nothing is left behind."""

from __future__ import annotations

import json

import pytest

from kip848_client import Admin, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.errors import Kip848Error
from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.broker.judge import judge_broker
from kip848_client.testing.judge.verdicts import Outcome
from tests.judge.arrange import HELD_UP, SETTINGS, chapter_of, differing


def test_our_broker_keeps_every_rule() -> None:
    """The reference must not differ from itself when it is asked over the wire, by many at once."""
    with EmbeddedBroker(config=SETTINGS) as broker:
        report = judge_broker(broker.bootstrap_servers)

    assert differing(report) == []
    assert {one.rule.number for one in report.verdicts} == {story.rule for story in STORIES}
    untried = [one for one in report.of(Outcome.CANNOT_BE_TRIED) if HELD_UP not in one.why]
    assert {one.why for one in untried} == {"give --restart COMMAND, which restarts the broker"}


def test_the_judge_finds_coordinators_and_leaders_of_a_cluster() -> None:
    """On a real cluster most groups have their coordinator at another broker than the one that is named."""
    stories = (*chapter_of(410), *chapter_of(475), *chapter_of(500))
    with EmbeddedBroker(config=SETTINGS, nodes=3) as broker:
        report = judge_broker(broker.bootstrap_servers.split(",")[0], stories=stories)

    assert differing(report) == []
    assert report.of(Outcome.CANNOT_BE_TRIED) == []


def test_nothing_is_left_behind_and_nothing_of_others_is_touched() -> None:
    """Somebody judges the broker on which a team works."""
    stories = (*chapter_of(400), *chapter_of(433), *chapter_of(485), *chapter_of(500))
    with EmbeddedBroker({"orders": 2}, config=SETTINGS) as broker:
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            report = judge_broker(broker.bootstrap_servers, stories=stories)
            groups = admin.list_groups().found
        topics = dict(broker.topics)

    assert differing(report) == []
    assert report.facts.get("could not be removed") is None
    assert list(groups) == []
    assert {name: count for name, count in topics.items() if not name.startswith("__")} == {"orders": 2}


def test_members_offsets_and_static_places_survive_a_restart() -> None:
    """The rules about restarts are tried when there is a way to restart the broker."""
    with EmbeddedBroker(config=SETTINGS) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        report = judge_broker(broker.bootstrap_servers, stories=chapter_of(496), restart=restart)

    assert differing(report) == []
    assert [one.outcome for one in report.verdicts] == [Outcome.HOLDS] * 3


def test_a_broker_that_forgets_members_differs_after_a_restart() -> None:
    """A broker that keeps members in memory only makes every client lose its partitions."""
    with EmbeddedBroker(config=SETTINGS) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()
            for group_id in broker.groups.ids():
                group = broker.groups.get(group_id)
                for member in () if group is None else group.members:
                    broker.groups.remove_member(group_id, member.member_id)

        report = judge_broker(broker.bootstrap_servers, stories=chapter_of(496), restart=restart)

    assert [one.outcome for one in report.verdicts] == [Outcome.DIFFERS] * 3
    assert report.verdicts[0].seen == "UNKNOWN_MEMBER_ID(25)"


def test_a_restart_that_fails_is_said() -> None:
    """Otherwise the broker would be blamed."""
    with EmbeddedBroker(config=SETTINGS) as broker:

        def restart() -> None:
            raise Kip848Error("no such container")

        report = judge_broker(broker.bootstrap_servers, stories=chapter_of(496), restart=restart)

    assert {one.why for one in report.verdicts} == {"no such container"}


def test_the_command_judges_some_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """While somebody writes a broker, one rule is tried again and again."""
    with EmbeddedBroker(config=SETTINGS) as broker:
        status = main(["judge", "broker", "--bootstrap", broker.bootstrap_servers, "--rule", "R442", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert status == 0
    assert {400, 441, 442} <= {one["rule"] for one in told["verdicts"]} < {story.rule for story in STORIES}
    assert {one["outcome"] for one in told["verdicts"]} == {"holds"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bootstrap", "127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["--bootstrap", ":9092"], "bootstrap.servers entry ':9092' is not host:port"),
        (["--bootstrap", "127.0.0.1:1", "--rule", "R57"], "is no rule that is tried"),
        (["--bootstrap", "127.0.0.1:1", "-X", "security.protocol=SSL"], "give a listener without encryption"),
    ],
)
def test_the_command_says_what_is_wrong(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A typing mistake is not the broker's."""
    assert main(["judge", "broker", *options]) == 1
    assert message in capsys.readouterr().err
