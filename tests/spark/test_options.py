"""The source's options: defaults, meanings, and what is said when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.errors import ConfigError
from kip848_client.spark.values.options import KNOWN, SourceOptions, parse_options
from kip848_client.spark.values.starting import AtOffsets, AtTime, AtTimes, Edge, NoMatch

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
    """username='alice' password="se\\"cret\""""
)
STREAM = {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.group.id": "g", "subscribe": "orders"}
BATCH = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def stream(**changed: str) -> SourceOptions:
    return parse_options({**STREAM, **changed}, streaming=True)


def batch(**changed: str) -> SourceOptions:
    return parse_options({**BATCH, **changed}, streaming=False)


def test_defaults_of_a_stream() -> None:
    """Without further options the group's offsets decide where to begin, and every batch is committed."""
    options = stream()

    assert options.subscription == Subscription(topics=frozenset({"orders"}))
    assert options.starting is Edge.COMMITTED
    assert options.streaming
    assert options.commit
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert (options.rows_max, options.rows_min, options.tasks_min, options.tasks_max) == (None, None, None, None)
    assert options.trigger_delay_ms_max == 15 * 60_000
    assert options.client["auto.offset.reset"] == "latest"


def test_defaults_of_a_batch() -> None:
    """Everything that is there; no group is needed."""
    options = batch()

    assert (options.starting, options.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert not options.commit
    assert options.group_id is None


def test_letter_case_does_not_matter() -> None:
    """Spark passes option names in lower case; ``maxOffsetsPerTrigger`` must still be found."""
    assert stream(maxoffsetspertrigger="5").rows_max == 5
    assert stream(MAXOFFSETSPERTRIGGER="6").rows_max == 6


def test_several_topics_a_pattern_or_fixed_partitions() -> None:
    """Queries written for Spark's own source subscribe in one of these three ways."""
    assert stream(subscribe="a, b").subscription == Subscription(topics=frozenset({"a", "b"}))
    without = {name: text for name, text in STREAM.items() if name != "subscribe"}
    assert parse_options({**without, "subscribePattern": "a.*"}, streaming=True).subscription == Subscription(
        pattern="a.*"
    )
    fixed = parse_options({**without, "assign": '{"a":[0,2]}'}, streaming=True)
    assert fixed.assigned == {NamedPartition("a", 0), NamedPartition("a", 2)}
    assert not fixed.commit, "fixed partitions have no group to tell, unless asked"


def test_the_first_of_time_times_and_offsets_wins() -> None:
    """As in Spark: startingTimestamp, then startingOffsetsByTimestamp, then startingOffsets."""
    offsets = {"startingOffsets": '{"orders":{"0":7}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":1000}}'}

    assert stream(**offsets).starting == AtOffsets({NamedPartition("orders", 0): 7})
    assert stream(**offsets, **times).starting == AtTimes({NamedPartition("orders", 0): 1000}, NoMatch.ERROR)
    assert stream(**offsets, **times, startingTimestamp="5").starting == AtTime(5, NoMatch.ERROR)
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").starting == AtTime(
        5, NoMatch.LATEST
    )


def test_options_of_kafka_reach_the_client_under_its_names() -> None:
    """Settings of the JVM source work where librdkafka has the same thing under another name."""
    options = parse_options({**STREAM, "kafka.fetch.max.wait.ms": "7", "kafka.client.id": "me"}, streaming=True)

    assert options.client["fetch.wait.max.ms"] == "7"
    assert options.client["client.id"] == "me"
    assert options.client["enable.auto.commit"] == "false"


def test_the_prefix_may_be_left_out_where_it_is_unambiguous() -> None:
    """Users type ``group.id`` and ``bootstrap.servers`` without Spark's ``kafka.`` before them."""
    options = parse_options(
        {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g", "subscribe": "orders"}, streaming=True
    )
    assert options.group_id == "g"


def test_waits_and_retries_of_sparks_source_are_accepted() -> None:
    """Users keep the settings that they had there; retries end with the time of the look-up."""
    names = {"kafkaConsumer.pollTimeoutMs": "500", "fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "70"}
    chosen, default = stream(**names), stream()

    assert (chosen.poll_timeout_ms, default.poll_timeout_ms) == (500, 120_000)


def test_secrets_are_not_shown() -> None:
    """Spark prints objects into its logs, where a password must not appear."""
    options = parse_options({**STREAM, "kafka.sasl.password": "hunter2"}, streaming=True)
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("250", 250), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 h", 7_200_000)]
)
def test_durations(text: str, expected_ms: int) -> None:
    """Users write durations as in Spark, such as "500ms", "15m" or "2 h", or as milliseconds."""
    assert stream(maxTriggerDelay=text).trigger_delay_ms_max == expected_ms


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"maxOffsetPerTrigger": "5"}, "maxOffsetPerTrigger is not .*; did you mean maxOffsetsPerTrigger"),
        ({"startingCheckpoint": "/c", "startingOffsets": "latest"}, "exclude each other"),
        ({"xyzzy": "1"}, "options of Kafka begin with kafka"),
        ({"subscribePattern": "a"}, "exclude each other"),
        ({"subscribe": " "}, "subscribe is blank"),
        ({"subscribe": ","}, "topics separated by commas"),
        ({"kafka.group.id": " "}, "kafka.group.id is blank"),
        ({"group.id": "other"}, "group.id and kafka.group.id differ"),
        ({"groupIdPrefix": "p"}, "the group is real"),
        ({"path": "/x"}, "takes no path"),
        ({"endingOffsets": "latest"}, "not valid in streaming queries"),
        ({"startingOffsets": "sometime"}, "expected a word or JSON"),
        ({"startingOffsets": "{}"}, "names no partition"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "-1 .latest. or -2 .earliest."),
        ({"startingOffsets": '{"orders":{"x":1}}'}, "expected JSON such as"),
        ({"startingOffsets": '{"orders":[1]}'}, "expected JSON such as"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "below 1"),
        ({"maxOffsetsPerTrigger": "many"}, "must be an integer"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger=6 is above"),
        ({"minPartitions": "6", "maxTasks": "5"}, "minPartitions=6 is above maxTasks=5"),
        ({"maxTriggerDelay": "soon"}, "a duration such as"),
        ({"failOnDataLoss": "perhaps"}, "must be true or false"),
        ({"commit": "always"}, "must be group or off"),
        ({"kafka.enable.auto.commit": "true"}, "turn that off with commit=off"),
        ({"auto.offset.reset": "by_duration:1h"}, "by_duration:PT1H .an hour."),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"kafka.key.deserializer": "X"}, "keys are bytes"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.username and kafka.sasl.password"),
        ({"kafka.sasl.jaas.config": JAAS + " serviceName=x;"}, "cannot be translated: set kafka.sasl.mechanism"),
        ({"kafka.sasl.jaas.config": JAAS + ";", "kafka.sasl.username": "bob"}, "sasl.username and Java's .* differ"),
        ({"kafka.ssl.truststore.location": "/x.jks"}, "/x.jks is a store .*keytool .*kafka.ssl.ca.location=ca.pem"),
        ({"kafka.ssl.keystore.location": "/x.jks"}, "kafka.ssl.keystore.location=keystore.p12"),
        ({"kafka.ssl.truststore.password": "hunter2"}, "^kafka.ssl.truststore.password is a store"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(changed: dict[str, str], told: str) -> None:
    """A query that ignores a misspelt limit reads everything at once."""
    with pytest.raises(ConfigError, match=told):
        parse_options({**STREAM, **changed}, streaming=True)


def test_javas_login_and_pem_stores_are_translated() -> None:
    """Settings are copied from a job that used Spark's own source, and mean the same here."""
    java = {
        "kafka.sasl.jaas.config": JAAS + ";",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "/client.pem",
    }
    client = parse_options({**STREAM, **java}, streaming=True).client

    assert {name: text for name, text in client.items() if name.startswith(("sasl.", "ssl."))} == {
        "sasl.username": "alice",
        "sasl.password": 'se"cret',
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/client.pem",
        "ssl.key.location": "/client.pem",
    }


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("kafka.bootstrap.servers", "kafka.bootstrap.servers is missing"),
        ("kafka.group.id", "kafka.group.id is missing"),
        ("subscribe", "one of assign, subscribe, subscribePattern"),
    ],
)
def test_what_is_missing_is_named(missing: str, told: str) -> None:
    """The error names which of the three options without a default is missing."""
    with pytest.raises(ConfigError, match=told):
        parse_options({name: text for name, text in STREAM.items() if name != missing}, streaming=True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"startingOffsets": "latest"}, "can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "can't be earliest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "can't be -1 .latest."),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "can't be -2 .earliest."),
        ({"maxOffsetsPerTrigger": "5"}, "streams only"),
        ({"startingOffsets": "committed"}, "committed offsets belong to a group"),
        ({"assign": '{"orders":[]}', "subscribe": ""}, "exclude each other"),
    ],
)
def test_a_batch_refuses_what_only_streams_have(changed: dict[str, str], told: str) -> None:
    """An option that a batch would ignore is refused, so that the user does not rely on it."""
    with pytest.raises(ConfigError, match=told):
        batch(**changed)


@pytest.mark.parametrize("text", ["{}", "[]", '{"a":0}', '{"a":[-1]}', '{"a":[true]}', "a"])
def test_assign_wants_partitions(text: str) -> None:
    """JSON of topics with lists of numbers, and nothing else."""
    with pytest.raises(ConfigError, match="assign: "):
        parse_options({"bootstrap.servers": "h:1", "assign": text}, streaming=True)


def test_offsets_and_assign_name_the_same_partitions() -> None:
    """Spark demands it too: a partition without an offset would begin somewhere by accident."""
    chosen = {"bootstrap.servers": "h:1", "assign": '{"a":[0,1]}', "startingOffsets": '{"a":{"0":5}}'}
    with pytest.raises(ConfigError, match=r"name other partitions than assign: a-1"):
        parse_options(chosen, streaming=True)


def test_the_guide_names_every_option() -> None:
    """Users find options in docs/spark.md; one that is missing there does not exist for them."""
    guide = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    known = set(KNOWN.values()) - {"path", "group.id", "bootstrap.servers"}

    assert sorted(name for name in known if f"`{name}`" not in guide) == []


def test_an_event_log_needs_a_member_that_writes_it() -> None:
    """A file that stays empty would be looked for in the wrong place."""
    with pytest.raises(ConfigError, match="eventLog applies to streams only"):
        parse_options({"bootstrap.servers": "h:1", "subscribe": "a", "eventLog": "log"}, streaming=False)
    with pytest.raises(ConfigError, match="eventLog does not go with assign"):
        parse_options({"bootstrap.servers": "h:1", "assign": '{"a":[0]}', "eventLog": "log"}, streaming=True)
