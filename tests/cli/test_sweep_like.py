"""``kip848 sweep --like``: what a change would cost a group of a real shape."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.errors import ConfigError
from kip848_client.testing.simulation.what_if import PLAYS, Setting, Shape, play
from kip848_client.tools.comparing.sweep_like import read_setting
from tests.support.waiting import wait_until

SHAPE = Shape(members=4, topics={"orders": 12})
AS_IT_IS = Setting("as it is")


def test_a_seed_is_played_to_the_same_end_again() -> None:
    """Users must be able to look into a play that cost more than the others."""
    assert play("one joins", SHAPE, AS_IT_IS, seed=3) == play("one joins", SHAPE, AS_IT_IS, seed=3)


def test_every_play_comes_to_rest_and_is_measured() -> None:
    """The three questions that are asked before a setting is changed."""
    found = {name: play(name, SHAPE, AS_IT_IS, seed=1) for name in PLAYS}
    assert {name: one.settled_ms is not None for name, one in found.items()} == dict.fromkeys(PLAYS, True)
    assert 2 <= found["one joins"].moved <= 3, "the fifth member gets a fifth of the partitions"
    assert found["one joins"].unread_ms_max < 2 * SHAPE.heartbeat_interval_ms + 1_000
    dead = found["a node dies"]
    assert dead.moved == 3
    assert found["rolling restart"].moved > dead.moved


@pytest.mark.parametrize("seed", range(6))
def test_partitions_of_the_dead_are_unread_until_their_sessions_end(seed: int) -> None:
    """A session is what a dead node costs, whatever the others do meanwhile."""
    dead = play("a node dies", msgspec.structs.replace(SHAPE, members_of_a_node=3), AS_IT_IS, seed=seed)
    session_ms, heartbeat_ms = SHAPE.session_timeout_ms, SHAPE.heartbeat_interval_ms
    assert session_ms - heartbeat_ms - 500 < dead.unread_ms_max < session_ms + 2 * heartbeat_ms


def test_settings_change_what_they_are_known_to_change() -> None:
    """Static members keep their partitions over a restart; a short session ends the waiting for the dead."""
    restart = play("rolling restart", SHAPE, read_setting("static=yes"), seed=1)
    assert restart.moved == 0
    assert restart.unread_ms > 0
    dead = play("a node dies", SHAPE, read_setting("session=10000,heartbeat=1000"), seed=1)
    assert dead.unread_ms_max < 15_000


@pytest.mark.parametrize("text", ["", "assignor=sticky", "heartbeat=fast", "static", "colour=red"])
def test_a_setting_that_says_nothing_known_is_refused(text: str) -> None:
    """A typing error would be played as the group as it is, and look like no gain."""
    with pytest.raises(ConfigError, match="expected assignor="):
        read_setting(text)


def test_the_shape_is_that_of_the_group(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Members, partitions and settings are asked of the cluster, and the answer is a table, JSON or a picture."""
    pytest.importorskip("matplotlib")
    kip848_broker.topics.create("orders", partitions=4)
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "billing"}
    with Consumer(conf) as one, Consumer(conf | {"group.instance.id": "i"}) as two:
        for consumer in (one, two):
            consumer.subscribe(["orders"])
        wait_until(lambda: [each.poll(0) or len(each.assignment()) for each in (one, two)] == [2, 2], timeout_s=20)
        command = ["sweep", "--like", "billing", "--bootstrap", kip848_broker.bootstrap_servers, "--seeds", "0:2"]
        assert main([*command, "--try", "static=no", "--json", "--plot", str(tmp_path / "what-if.png")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main([*command, "--try", "heartbeat=1000"]) == 0
    shape = found["shape"]
    assert (shape["members"], shape["topics"], shape["statics"], shape["members_of_a_node"]) == (
        2,
        {"orders": 4},
        0.5,
        2,
    )
    assert shape["heartbeat_interval_ms"] == kip848_broker.config.coordinator.consumer_heartbeat_interval_ms
    assert [(row["play"], row["setting"], row["count"]) for row in found["rows"]] == [
        (name, setting, 2) for name in PLAYS for setting in ("as it is", "static=no")
    ]
    assert (tmp_path / "what-if.png").stat().st_size > 5_000
    assert "rolling restart" in capsys.readouterr().out
