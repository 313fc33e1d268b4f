"""group.local.assignors and its companions: what is taken, and with which words the rest is refused."""

from __future__ import annotations

import pytest

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.client.loading import load_assignors
from kip848_client.assignors.client.spread import spread_evenly
from kip848_client.config import ConfigValue, ConsumerConfig, parse_consumer_config
from kip848_client.errors import ConfigError

BASE: dict[str, ConfigValue] = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
HERE = "tests.config.test_assignors"


class Even(PartitionAssignor):
    name = "even"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return spread_evenly(spec)


class Other(Even):
    name = "other"


class NeedsArguments(Even):
    def __init__(self, size: int) -> None:
        self.size = size


class Awaited(Even):
    async def assign(self, spec: AssignmentSpec) -> GroupAssignment:  # type: ignore[override]
        raise AssertionError("it is never awaited")


class Nameless(PartitionAssignor):
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return spread_evenly(spec)


class NoAssign(PartitionAssignor):
    name = "no assign"


READY = Even()


def parse(**conf: ConfigValue) -> ConsumerConfig:
    return parse_consumer_config({**BASE, **{key.replace("_", "."): value for key, value in conf.items()}})


def names(config: ConsumerConfig) -> list[str]:
    return [assignor.name for assignor in config.local_assignors.assignors]


def versions(name: str, low: object, high: object) -> PartitionAssignor:
    made = type("Versions", (Even,), {"name": name, "minimum_version": low, "maximum_version": high})
    assignor = made()
    assert isinstance(assignor, PartitionAssignor)
    return assignor


@pytest.mark.parametrize(
    "given",
    [
        READY,
        Even,
        f"{HERE}:Even",
        f"{HERE}:READY",
        [READY],
        (Even,),
        [f"{HERE}:Even"],
    ],
)
def test_an_assignor_is_given_as_object_class_or_import_path(given: object) -> None:
    """A program passes an object or a class, a configuration file can only pass text."""
    assert names(parse(group_local_assignors=given)) == ["even"]


@pytest.mark.parametrize("given", [[Other, READY], f"{HERE}:Other, {HERE}:Even", f"{HERE}:Other,{HERE}:READY,"])
def test_the_order_is_the_priority(given: object) -> None:
    """The coordinator takes the first that all members have."""
    assert names(parse(group_local_assignors=given)) == ["other", "even"]


def test_each_consumer_has_its_own_object_of_a_class() -> None:
    """Two consumers call their assignors from two threads."""
    first, second = (parse(group_local_assignors=Even).local_assignors.assignors[0] for _ in range(2))
    assert first is not second


def test_without_the_key_the_coordinator_assigns() -> None:
    """As in Kafka, a consumer that names no assignor leaves the assignment to the coordinator."""
    nothing: list[object] = [None, "", []]
    for given in nothing:
        assert parse(group_local_assignors=given).local_assignors.assignors == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (42, "42 is int; an assignor is an instance or a subclass of kip848_client.assignors.PartitionAssignor"),
        ([None], "None is NoneType"),
        (dict, "dict is not a subclass of kip848_client.assignors.PartitionAssignor"),
        ("Even", "'Even' is not an import path; write \"package.module:Name\""),
        ("no.such.module:Even", "importing 'no.such.module' raised ModuleNotFoundError"),
        (f"{HERE}:Evne", "'tests.config.test_assignors' has no 'Evne'"),
        (f"{HERE}:HERE", "'tests.config.test_assignors' is str"),
        (NeedsArguments, "NeedsArguments() raised TypeError"),
        (NoAssign, "NoAssign() raised TypeError"),
        (Awaited, "Awaited.assign is an async function, which would never run here"),
        (Nameless, "Nameless has no name; set name to a text"),
        (versions(" ", 0, 0), "Versions has the name ' '"),
        (versions("v", 2, 1), "Versions has minimum_version 2 and maximum_version 1"),
        (versions("v", -2, 1), "-1 <= minimum <= maximum"),
        (versions("v", -1, -1), "0 <= maximum must hold"),
        (versions("v", 0, "1"), "Versions.maximum_version is '1'; it must be an integer"),
        (versions("v", True, 1), "Versions.minimum_version is True"),
        (versions("v", 0, 2**15), "must be an integer of two bytes"),
        ([READY, Even], "Even and Even have the same name 'even'"),
        ([READY, READY], "have the same name 'even'"),
    ],
)
def test_what_is_no_assignor_is_refused_by_name(given: object, said: str) -> None:
    """The alternative is an AttributeError on another thread, minutes later."""
    with pytest.raises(ConfigError) as info:
        parse(group_local_assignors=given)
    assert str(info.value).startswith("group.local.assignors: ")
    assert said in str(info.value)


def test_the_error_of_a_class_is_kept() -> None:
    """The author of the class wants its traceback."""
    with pytest.raises(ConfigError) as info:
        load_assignors(NeedsArguments)
    assert isinstance(info.value.__cause__, TypeError)


def test_local_and_remote_exclude_each_other() -> None:
    """KIP-848: a member has client assignors or a server assignor; the coordinator refuses both."""
    with pytest.raises(ConfigError, match="exclude each other"):
        parse(group_local_assignors=Even, group_remote_assignor="uniform")


def test_the_fallback_is_off_unless_asked_for() -> None:
    """A group must not be assigned by other rules than the configured ones without an error."""
    assert not parse(group_local_assignors=Even).local_assignors.fallback
    assert parse(group_local_assignors=Even, group_local_assignors_fallback="server").local_assignors.fallback
    assert not parse(group_local_assignors=Even, group_local_assignors_fallback="none").local_assignors.fallback
    with pytest.raises(ConfigError, match=r"group\.local\.assignors\.fallback must be one of none, server"):
        parse(group_local_assignors=Even, group_local_assignors_fallback="uniform")


def test_the_limit_is_a_minute_and_never_more_than_the_coordinator_waits() -> None:
    """An assignment that comes after the coordinator's own limit is refused."""
    assert parse(group_local_assignors=Even).local_assignors.timeout_ms == 60_000
    assert parse(group_local_assignors=Even, max_poll_interval_ms=10_000).local_assignors.timeout_ms == 10_000
    assert parse(group_local_assignors=Even, group_local_assignors_timeout_ms=5).local_assignors.timeout_ms == 5
    with pytest.raises(ConfigError, match=r"group\.local\.assignors\.timeout\.ms=0 is outside"):
        parse(group_local_assignors=Even, group_local_assignors_timeout_ms=0)


@pytest.mark.parametrize("key", ["group.local.assignors.fallback", "group.local.assignors.timeout.ms"])
def test_companions_without_assignors_are_a_mistake(key: str) -> None:
    """A misspelled group.local.assignors would otherwise go unnoticed beside them."""
    with pytest.raises(ConfigError, match=f"{key} has no effect without group.local.assignors"):
        parse_consumer_config({**BASE, key: "1"})


def test_the_data_plane_hears_nothing_of_assignors() -> None:
    """librdkafka refuses keys that it does not know."""
    config = parse(
        group_local_assignors=Even, group_local_assignors_fallback="server", group_local_assignors_timeout_ms=5
    )
    assert not [key for key in config.data_plane if "assignor" in key]
