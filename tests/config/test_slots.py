"""group.instance.id.takeover and group.instance.id.pool."""

from __future__ import annotations

import pytest

from kip848_client.config import parse_consumer_config
from kip848_client.errors import ConfigError

BASE = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
POOL = "group.instance.id.pool"


@pytest.mark.parametrize(
    ("text", "first", "count"),
    [
        ("a,b,c", "a", 3),
        (" a , b ", "a", 2),
        ("orders-{0..9}", "orders-0", 10),
        ("{5..6}-eu", "5-eu", 2),
        ("one", "one", 1),
        ("orders-{1..1000}", "orders-1", 1_000),
    ],
)
def test_a_pool_is_a_list_or_one_range(text: str, first: str, count: int) -> None:
    """Every process of a deployment has the same text."""
    slots = parse_consumer_config({**BASE, POOL: text}).slots
    assert (slots.slots[0], len(slots.slots), slots.pooled) == (first, count, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({POOL: "orders-{0..1000}"}, "1,001 slots"),
        ({POOL: ",".join(f"s{number}" for number in range(1_001))}, "1,001 slots"),
        ({POOL: "orders-{9..0}"}, "ends before it begins"),
        ({POOL: "orders-{0..9},more"}, "one range"),
        ({POOL: "a,,b"}, "one range"),
        ({POOL: "a,b,a"}, "twice"),
        ({POOL: "a,b", "group.instance.id": "a"}, "not both"),
        ({POOL: "a,b", "group.instance.id.takeover": "fail"}, "contradict"),
        ({"group.instance.id.takeover": "wait"}, "waits for a slot"),
        ({"group.instance.id.takeover": "never", "group.instance.id": "a"}, "wait"),
        ({POOL: "a,b", "group.protocol": "classic"}, "removes that member"),
        (
            {"group.instance.id": "a", "group.instance.id.takeover": "wait", "group.protocol": "classic"},
            "removes that member",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, str], message: str) -> None:
    """A deploy must fail at its first process, not leave some standing by for ever."""
    with pytest.raises(ConfigError, match=message):
        parse_consumer_config({**BASE, **settings})


def test_without_the_key_a_static_member_does_not_stand_by() -> None:
    """Two processes with one id by mistake are noticed, as before."""
    assert parse_consumer_config({**BASE, "group.instance.id": "a"}).slots.slots == ()
