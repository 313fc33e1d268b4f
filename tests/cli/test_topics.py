"""``kip848 topics`` and ``kip848 produce`` against the embedded broker: from an empty broker to records and back."""

from __future__ import annotations

import io
import json
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker
from kip848_client.cli import main

EVERYTHING = ("--from", "beginning", "--until", "end")


def run(broker: EmbeddedBroker, *arguments: str) -> int:
    return main([*arguments, "--bootstrap", broker.bootstrap_servers])


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let standard input hold *text*."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def records(broker: EmbeddedBroker, topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, object]]:
    """What is in the topic, by partition."""
    capfdbinary.readouterr()
    assert run(broker, "consume", topic, *EVERYTHING, "--json") == 0
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))


def test_topics_are_created_listed_and_deleted(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing that a test script needs is a topic, and then to be rid of it."""
    assert run(kip848_broker, "topics", "list") == 0
    assert run(kip848_broker, "topics", "create", "orders:3", "users", "--config", "retention.ms=5") == 0
    assert run(kip848_broker, "topics", "list") == 0
    assert run(kip848_broker, "topics", "delete", "users") == 0
    assert run(kip848_broker, "topics", "list", "--json") == 0
    assert capsys.readouterr().out.splitlines() == [
        "no topics",
        "created orders",
        "created users",
        "TOPIC   PARTITIONS",
        "orders           3",
        "users            1",
        "deleted users",
        '{"topics":[{"topic":"orders","partitions":3}]}',
    ]


def test_the_number_of_partitions_may_be_an_option(kip848_broker: EmbeddedBroker) -> None:
    """As Kafka's own tool, rpk and `kip848 topics alter` take it; replicas, too."""
    options = ("--partitions", "3", "--replication-factor", "1")
    assert run(kip848_broker, "topics", "create", "orders", "users:2", *options) == 0
    assert kip848_broker.topics == {"orders": 3, "users": 2}


def test_a_refusal_for_one_topic_does_not_hide_what_was_done_with_the_others(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """All are asked for at once: those after the first refusal were deleted too, and not named."""
    kip848_broker.topics.create("orders", 1)
    assert run(kip848_broker, "topics", "describe", "missing", "orders") == 1
    assert "topic orders" in capsys.readouterr().out
    assert run(kip848_broker, "topics", "delete", "missing", "orders", "gone") == 1
    told = capsys.readouterr()
    assert told.out == "deleted orders\n"
    assert "'missing' was not deleted" in told.err
    assert "'gone' was not deleted" in told.err


def test_a_topic_is_described_with_its_offsets_and_its_own_configuration(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is there anything in it, and what was it told to do?"""
    assert run(kip848_broker, "topics", "create", "orders:2", "--config", "flush.messages=1") == 0
    assert run(kip848_broker, "produce", "orders", "a", "b", "--partition", "1") == 0
    capsys.readouterr()

    assert run(kip848_broker, "topics", "describe", "orders") == 0
    assert capsys.readouterr().out.splitlines() == [
        "topic orders",
        "  flush.messages=1",
        "",
        "PARTITION  LEADER  REPLICAS  START  END",
        "        0       1         1      0    0",
        "        1       1         1      0    2",
    ]
    assert run(kip848_broker, "topics", "describe", "orders", "--json") == 0
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    assert topic["configs"] == {"flush.messages": "1"}
    assert [(item["start"], item["end"]) for item in topic["partitions"]] == [(0, 0), (0, 2)]


def test_lines_become_records_with_keys(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A pipe into a topic is how test data gets there."""
    kip848_broker.topics.create("orders")
    give(monkeypatch, "a\t1\nb\t2:3\n")

    assert run(kip848_broker, "produce", "orders", "--key-separator", r"\t") == 0  # shells pass it on like this

    assert [(one["key"], one["value"]) for one in records(kip848_broker, "orders", capfdbinary)] == [
        ("a", "1"),
        ("b", "2:3"),
    ]


def test_a_setting_of_a_producer_brings_no_warning(
    kip848_broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """The look whether a broker answers is a consumer's; librdkafka said that it ignores what `--timeout` sets."""
    kip848_broker.topics.create("orders")
    assert run(kip848_broker, "produce", "orders", "x", "--timeout", "9") == 0
    assert capfd.readouterr().err == "1 record written\n"


def test_what_records_prints_produce_takes(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Topics are copied, kept in a file and played again."""
    for name in ("orders", "copy"):
        kip848_broker.topics.create(name, partitions=2)
    given = [
        {"value": "text", "key": "k", "headers": [["h", "v"], ["n", None]], "partition": 1, "timestamp_ms": 1234},
        {"value": {"base64": "/w=="}, "partition": 0, "timestamp_ms": 5678},
        {"value": None, "key": "gone", "partition": 0, "timestamp_ms": 9},
    ]
    assert run(kip848_broker, "produce", "orders", *map(json.dumps, given), "--json") == 0
    first = records(kip848_broker, "orders", capfdbinary)
    give(monkeypatch, "".join(json.dumps(one) + "\n" for one in first))

    assert run(kip848_broker, "produce", "copy", "--json") == 0

    assert records(kip848_broker, "copy", capfdbinary) == [one | {"topic": "copy"} for one in first]
    assert [(one["partition"], one["timestamp_ms"], one["value"]) for one in first] == [
        (0, 5678, {"base64": "/w=="}),
        (0, 9, None),
        (1, 1234, "text"),
    ]


def test_records_of_an_open_transaction_are_not_waited_for(
    kip848_broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The command failed behind the last record, as long as any transaction was open."""
    kip848_broker.topics.create("orders", 1)
    kip848_broker.produce_many("orders", ["a"])
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"b")
    producer.flush(10)
    assert [record["value"] for record in records(kip848_broker, "orders", capfdbinary)] == ["a"]
    uncommitted = ("consume", "orders", *EVERYTHING, "-X", "isolation.level=read_uncommitted")
    assert run(kip848_broker, *uncommitted) == 0
    assert capfdbinary.readouterr().out.split() == [b"a", b"b"]
    producer.abort_transaction(10)


def test_records_end_after_as_many_as_were_asked_for(
    kip848_broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A look at the first few of a million."""
    kip848_broker.topics.create("orders", partitions=2)
    assert run(kip848_broker, "produce", "orders", *map(str, range(9)), "--partition", "1") == 0
    capfdbinary.readouterr()

    assert run(kip848_broker, "consume", "orders", *EVERYTHING, "--max", "2") == 0
    assert capfdbinary.readouterr().out == b"0\n1\n"
    assert run(kip848_broker, "consume", "orders", *EVERYTHING, "--partition", "0") == 0
    assert capfdbinary.readouterr().out == b""
    assert not kip848_broker.requests.of("OffsetCommit"), "a look leaves no group behind"


@pytest.mark.parametrize(
    ("where", "values"),
    [
        (("--from", "-2", "--until", "end"), "7 8"),
        (("--from", "3", "--until", "5"), "3 4"),
        (("--from", "1970-01-01T00:00:05+00:00", "--until", "1970-01-01T00:00:07Z"), "4 5"),
        (("--from", "PT1H", "--until", "end"), ""),
        (("--from", "beginning", "--until", "-7"), "0 1"),
    ],
)
def test_records_are_read_from_and_until_any_place(
    kip848_broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes], where: tuple[str, ...], values: str
) -> None:
    """What happened at noon, and the last few: without a group, and without counting records by hand."""
    assert run(kip848_broker, "topics", "create", "orders:1", "--config", "retention.ms=-1") == 0  # they are of 1970
    lines = [json.dumps({"value": str(number), "timestamp_ms": (number + 1) * 1000}) for number in range(9)]
    assert run(kip848_broker, "produce", "orders", *lines, "--json") == 0
    capfdbinary.readouterr()
    assert run(kip848_broker, "consume", "orders", *where, "--format", "%s ") == 0
    assert capfdbinary.readouterr().out.decode().split() == values.split()


def test_keys_and_headers_are_given_and_printed_without_json(
    kip848_broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """One record by hand is the first thing that anybody writes."""
    assert run(kip848_broker, "topics", "create", "orders") == 0
    given = ("--key", "ann", "--header", "trace=17", "--header", "empty=")
    assert run(kip848_broker, "produce", "orders", "tea", *given) == 0
    capfdbinary.readouterr()
    wanted = r"%t-%p@%o %k(%K)=%s(%S) %h 100%%\n"
    assert run(kip848_broker, "consume", "orders", *EVERYTHING, "--format", wanted, "-q") == 0
    assert capfdbinary.readouterr() == (b"orders-0@0 ann(3)=tea(3) trace=17,empty= 100%\n", b"")


def test_a_topic_grows_and_gets_other_settings(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the tools of Kafka, which need Java."""
    assert run(kip848_broker, "topics", "create", "orders:2", "--config", "retention.ms=1000") == 0
    change = ("--partitions", "3", "--config", "cleanup.policy=compact", "--unset", "retention.ms")
    assert run(kip848_broker, "topics", "alter", "orders", *change) == 0
    assert "orders: cleanup.policy=compact, retention.ms unset, 3 partitions" in capsys.readouterr().out
    assert kip848_broker.topics == {"orders": 3}
    assert run(kip848_broker, "topics", "describe", "orders", "--json") == 0
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    assert topic["configs"] == {"cleanup.policy": "compact"}


class Registry(BaseHTTPRequestHandler):
    """A schema registry with one schema."""

    def do_GET(self) -> None:
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        known = self.path.startswith("/schemas/ids/1")
        answer = {"schema": json.dumps(schema), "schemaType": "AVRO"} if known else {"error_code": 40401, "message": ""}
        body = json.dumps(answer).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_values_of_a_schema_registry_are_shown_as_json(
    kip848_broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Avro on a terminal is noise."""
    kip848_broker.topics.create("orders")
    kip848_broker.produce_many("orders", [b"\x00\x00\x00\x00\x01\x2a"])  # schema 1, and 21 as a zigzag number
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        avro = ("--value-as", "avro", "--registry", f"http://127.0.0.1:{server.server_port}")
        assert run(kip848_broker, "consume", "orders", *EVERYTHING, *avro, "-q") == 0
        assert run(kip848_broker, "consume", "orders", *EVERYTHING, *avro, "-q", "--json") == 0
        server.shutdown()
    plain, as_json = capfdbinary.readouterr().out.splitlines()
    assert plain == b'{"id":21}'
    assert json.loads(as_json)["value"] == {"id": 21}


@pytest.mark.parametrize("command", ["topics", "groups"])
def test_the_file_of_a_java_application_is_taken(kip848_broker: EmbeddedBroker, tmp_path: Path, command: str) -> None:
    """It is what an operator has; how an application writes and reads its records is nothing to a command."""
    file = tmp_path / "application.properties"
    file.write_text(
        "# of the billing service\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor\n"
        "interceptor.classes=com.example.Tracing\nmax.poll.records=100\nlinger.ms=5\nacks=all\n"
        "security.protocol=PLAINTEXT\nclient.dns.lookup=use_all_dns_ips\n"
        "buffer.memory=33554432\nmax.block.ms=60000\ndefault.api.timeout.ms=60000\nfetch.max.wait.ms=500\n"
        "exclude.internal.topics=true\nreceive.buffer.bytes=65536\nmetrics.recording.level=INFO\n"
        "schema.registry.url=http://registry:8081\n"
    )
    assert run(kip848_broker, command, "list", "-F", str(file)) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topics", "create", "o", "--config", "a"), "argument --config: 'a' is not KEY=VALUE"),
        (("topics", "create", "o", "--config", "=a"), "argument --config: '=a' is not KEY=VALUE"),
        (("broker", "--set", "a"), "argument --set: 'a' is not KEY=VALUE"),
        *(
            (
                (*command, "--timeout", text),
                f"argument --timeout: '{text}' is not a number of seconds above 0, up to 3600",
            )
            for command in (("topics", "list"), ("groups", "list"), ("produce", "orders", "x"))
            for text in ("0", "3601", "nan", "soon")
        ),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_before_a_request(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """The sentence names the option; a timeout of 0 would otherwise look like a broker that does not answer."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)

    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topics", "create", "orders"), "TOPIC_ALREADY_EXISTS(36): topic 'orders' was not created"),
        (("topics", "create", "o:0"), "topic 'o:0' is not NAME:PARTITIONS"),
        (("topics", "delete", "nope"), "UNKNOWN_TOPIC_OR_PARTITION(3): topic 'nope' was not deleted"),
        (("topics", "describe", "nope"), "there is no topic 'nope'"),
        (("topics", "alter", "nope", "--partitions", "3"), "UNKNOWN_TOPIC_OR_PARTITION(3)"),
        (("topics", "alter", "orders"), "nothing to change"),
        (("consume", "nope", "--from", "beginning"), "there is no topic 'nope'"),
        (("consume", "^nothing-.*"), "no topic matches ^nothing-.*"),
        (("consume", "orders", "--partition", "7"), "topic 'orders' has the partitions 0 to 0"),
        (("consume", "orders", "--max", "0"), "at least one record is needed"),
        (("consume", "orders", "--group", "g", "--until", "end"), "--until is for reading without a group"),
        (("consume", "orders", "--group", "g", "--from", "7"), "kip848 groups reset-offsets g --help"),
        (("consume", "orders", "--format", "%x"), "'%x' is no field; there are %t"),
        (("consume", "orders", "--value-as", "avro"), "name the schema registry with --registry"),
        (("consume", "orders", "--value-as", "thrift"), "there are avro"),
        (("produce", "orders", "x", "--key", "k", "--key-separator", ":"), "give one of them"),
        (("topics", "list", "-X", "nonsense=1"), "nonsense"),
        (("topics", "list", "-X", "security.protocl=ssl"), "security.protocl is not a property; did you mean security"),
        (("topics", "list", "-X", "security.protocol=ssl"), "TLS"),
        (("produce", "orders", "x", "-X", "sasl.username=alice"), "security.protocol is not; set it"),
        (("produce", "nope", "x", "--timeout", "1"), "there is no such topic; see kip848 topics create"),
        (("produce", "orders", "x", "--partition", "-1"), "0 or more"),
        (("produce", "orders", "x", "--key-separator", ":"), "record 1 has no ':'"),
        (("produce", "orders", '{"value": 5}', "--json"), "record 1 is not what --json takes"),
        (("produce", "orders", '{"value": {"base64": "?"}}', "--json"), "record 1 is not what --json takes"),
        (("produce", "orders", "[" * 9000, "--json"), "record 1 is not what --json takes"),
        (("produce", "orders", "{}", "--json", "--key-separator", ":"), "--key-separator is for lines"),
    ],
)
def test_a_mistake_gets_a_sentence(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """With the name of what is wrong, and without a traceback."""
    kip848_broker.topics.create("orders")

    assert run(kip848_broker, *arguments) == 1

    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


@pytest.mark.kip848_broker(topics={"orders": 1}, acls=True)
def test_a_user_without_write_is_told_so(kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """librdkafka gives up for good, and confluent-kafka raised that inside a callback, which ended in a traceback."""
    kip848_broker.acls.allow("ANONYMOUS", "READ", topic="orders")
    assert run(kip848_broker, "produce", "orders", "x", "y") == 1
    assert capsys.readouterr().err.splitlines() == [
        "0 records written",
        "kip848 produce: CLUSTER_AUTHORIZATION_FAILED(31): records not written to 'orders'; this user needs WRITE on "
        "the topic, and has it on none",
    ]


@pytest.mark.parametrize(
    "command",
    [("topics", "list"), ("topics", "create", "x"), ("produce", "x", "y"), ("groups", "record"), ("report",)],
)
def test_a_broker_that_does_not_answer_is_named(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """librdkafka says only that a time is over, and a reader looks for the mistake in the topic."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert main([*command, "--bootstrap", address]) == 1
    assert f"no connection to {address}: Connection refused" in capsys.readouterr().err
