"""``-F``, ``-X`` and the options of commands: which files are read, and which source wins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kip848_client.cli.shared.properties import Role, add_client_arguments, read_properties
from kip848_client.cli.shared.property_file import read_property_file
from kip848_client.config.assignors import OWN_ASSIGNOR_KEYS
from kip848_client.config.consumer import ONLY_OWN_KEYS
from kip848_client.errors import ConfigError
from kip848_client.tools.commands import consume, produce
from kip848_client.tools.shared.admin_client import client_conf

JAAS = "org.apache.kafka.common.security.{}LoginModule required"


@pytest.fixture(autouse=True)
def no_other_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The person who runs the tests may have a file of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("KIP848_BOOTSTRAP", "KIP848_CONFIG"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def read(*arguments: str, role: Role = "client") -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_client_arguments(parser)
    return read_properties(parser.parse_args(arguments), role=role)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("\ufeffbootstrap.servers=a:1", {"bootstrap.servers": "a:1"}),
        ("bootstrap.servers: a:1\nclient.rack = r=1", {"bootstrap.servers": "a:1", "client.rack": "r=1"}),
        ("! not\n  # these\nbootstrap.servers=a:1", {"bootstrap.servers": "a:1"}),
        ("bootstrap.servers=a:1,\\\n   b:2\nclient.id=x", {"bootstrap.servers": "a:1,b:2", "client.id": "x"}),
        (
            "bootstrap.servers=a:1\r\nsasl.password=a\\\\b\\u00e9\\ ",
            {"bootstrap.servers": "a:1", "sasl.password": "a\\bé "},
        ),
        ("bootstrap.servers=a:1\nsasl.password=x\\\\", {"bootstrap.servers": "a:1", "sasl.password": "x\\"}),
    ],
    ids=["byte order mark", "colon", "comments", "continued", "escapes", "backslash at the end"],
)
def test_a_file_is_read_as_java_reads_it(file: Path, text: str, properties: dict[str, str]) -> None:
    """It is the file that an operator has for Kafka's own tools."""
    file.write_bytes(text.encode())
    assert read("-F", str(file)) == properties


def test_a_file_with_sections_is_read_as_in_confluents_examples(file: Path) -> None:
    """The getting-started pages of confluent-kafka begin with a file with sections."""
    file.write_text(
        "[default]\nbootstrap.servers=a:1\nsasl.password=a\\b\n\n[consumer]\ngroup.id=python_example_group_1\n\n"
        "# 'auto.offset.reset=earliest' to start reading from the beginning\nauto.offset.reset=earliest\n"
        "[producer]\ncompression.type=lz4\n"
    )
    default = {"bootstrap.servers": "a:1", "sasl.password": "a\\b"}
    assert read("-F", str(file)) == default
    assert read("-F", str(file), role="producer") == default | {"compression.codec": "lz4"}
    member = default | {"group.id": "python_example_group_1", "auto.offset.reset": "earliest"}
    assert read("-F", str(file), role="member") == member


@pytest.mark.parametrize("role", ["client", "producer"])
def test_a_file_of_a_consumer_is_for_every_command(file: Path, role: Role) -> None:
    """`kip848 produce` was refused by librdkafka for a file with ``auto.offset.reset.new.partitions``."""
    file.write_text("".join(f"{key}=1\n" for key in ("bootstrap.servers", *ONLY_OWN_KEYS, *OWN_ASSIGNOR_KEYS)))
    of_topics = "request.timeout.ms"  # librdkafka has it as a setting of a topic
    assert read("-F", str(file), role=role).keys() == {"bootstrap.servers", of_topics}


def test_a_space_may_part_key_and_value(file: Path) -> None:
    """Java reads such lines, and files of Kafka's own tools have them."""
    file.write_text("bootstrap.servers a:1\nsasl.password \t se = cret\ngroup.id\\ x=1\n")
    assert read_property_file(file, source="-F", sections=()) == {
        "bootstrap.servers": "a:1",
        "sasl.password": "se = cret",
        "group.id x": "1",
    }


@pytest.mark.parametrize("text", ["[default]\nhunter2", "hunter2", "a=1\nhunter2\n"])
def test_a_line_that_is_no_property_is_named_by_its_number(file: Path, text: str) -> None:
    """The error has the number of the line and not its text, which may be a secret."""
    file.write_text(text)
    number = text.splitlines().index("hunter2") + 1
    with pytest.raises(ConfigError, match=rf"client\.properties, line {number}: not KEY=VALUE") as raised:
        read("-F", str(file))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("module", ["plain.Plain", "scram.Scram"])
def test_the_login_of_a_java_application_is_translated(file: Path, module: str) -> None:
    """Nearly every file for a cluster with logins has one."""
    login = JAAS.format(module) + ' \\\n  username="alice" \\\n  password="se;cret";\n'
    file.write_text(f"bootstrap.servers=a:1\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}")
    expected = {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "se;cret"}
    assert read("-F", str(file)) == {"bootstrap.servers": "a:1", **expected}
    assert read("-F", str(file), "-X", "sasl.username=bob")["sasl.username"] == "bob"


def test_another_login_is_answered_with_what_to_write(file: Path) -> None:
    """Kerberos, for example; the text names the two keys and the file, and no password."""
    file.write_text('bootstrap.servers=a:1\nsasl.jaas.config=com.example.Login required password="hunter2";\n')
    with pytest.raises(ConfigError, match=r"client\.properties: .*sasl\.username and sasl\.password") as raised:
        read("-F", str(file))
    assert "hunter2" not in str(raised.value)


def test_the_nearest_source_of_a_property_wins(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if each source has another name for it."""
    usual = tmp_path / "usual.properties"
    usual.write_text("bootstrap.servers=usual:1\nsasl.mechanisms=PLAIN\n")
    monkeypatch.setenv("KIP848_CONFIG", str(usual))
    assert read()["bootstrap.servers"] == "usual:1"
    monkeypatch.setenv("KIP848_BOOTSTRAP", "variable:1")
    assert read()["bootstrap.servers"] == "variable:1"
    file.write_text("metadata.broker.list=file:1\nsasl.mechanism=SCRAM-SHA-256\n")
    assert read("-F", str(file)) == {"bootstrap.servers": "file:1", "sasl.mechanisms": "SCRAM-SHA-256"}
    given = ("-F", str(file), "--bootstrap", "option:1")
    assert read(*given)["bootstrap.servers"] == "option:1"
    assert read(*given, "-X", "metadata.broker.list=x:1")["bootstrap.servers"] == "x:1"
    assert read(*given, "-X", "sasl.mechanism=OAUTHBEARER")["sasl.mechanisms"] == "OAUTHBEARER"


def test_the_options_of_consume_win_over_a_file(file: Path) -> None:
    """A look at a topic joined the group of production, and began where production would."""
    file.write_text(
        "bootstrap.servers=a:1\ngroup.id=production\ngroup.instance.id=worker-1\nauto.offset.reset=latest\n"
        "enable.auto.offset.store=false\nenable.partition.eof=true\nclient.id=app\nenable.auto.commit=false\n"
    )
    parser = argparse.ArgumentParser()
    consume.add_arguments(parser)
    given = ["orders", "--group", "mine", "-F", str(file)]
    conf = consume.consumer_conf(parser.parse_args([*given, "--from-beginning"]))
    assert conf == {
        "bootstrap.servers": "a:1",
        "group.id": "mine",
        "auto.offset.reset": "earliest",
        "client.id": "app",
        "enable.auto.commit": "false",
        "log_level": "2",
    }
    assert consume.consumer_conf(parser.parse_args(given))["auto.offset.reset"] == "latest"
    chosen = [*given, "--from-beginning", "-X", "auto.offset.reset=none"]
    assert consume.consumer_conf(parser.parse_args(chosen))["auto.offset.reset"] == "none"


@pytest.mark.parametrize(
    ("options", "timeout_ms"),
    [((), "300000"), (("--timeout", "5"), "5000"), (("--timeout", "5", "-X", "delivery.timeout.ms=7"), "7")],
)
def test_the_timeout_of_produce_wins_over_a_file(
    file: Path, options: tuple[str, ...], timeout_ms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option must also replace Java's name for the setting, ``delivery.timeout.ms``."""
    import confluent_kafka

    file.write_text("bootstrap.servers=a:1\ndelivery.timeout.ms=300000\n")
    made: list[dict[str, object]] = []

    class Producer:
        def __init__(self, conf: dict[str, object]) -> None:
            made.append(conf)

        def flush(self) -> None: ...

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    monkeypatch.setattr(produce, "reach", lambda *_, **__: None)
    monkeypatch.setattr(produce, "_records", lambda _: [])
    parser = argparse.ArgumentParser()
    produce.add_arguments(parser)
    parser.set_defaults(command="produce")
    assert produce.run(parser.parse_args(["orders", "x", "-F", str(file), *options])) == 0
    assert made[0]["message.timeout.ms"] == timeout_ms


def test_a_command_without_a_group_has_no_use_for_what_members_do(file: Path) -> None:
    """A group of production would be asked for, and a strategy of its own refused."""
    file.write_text(
        "bootstrap.servers=a:1\ngroup.id=production\ngroup.protocol=consumer\nsession.timeout.ms=6000\n"
        "partition.assignment.strategy=com.example.Ours\nauto.offset.reset=none\nisolation.level=read_uncommitted\n"
    )
    assert read("-F", str(file)) == {"bootstrap.servers": "a:1", "isolation.level": "read_uncommitted"}


def test_the_permission_to_send_a_secret_in_the_clear_is_not_given_to_librdkafka() -> None:
    """It does not know the key, and every command with it failed."""
    parser = argparse.ArgumentParser()
    add_client_arguments(parser)
    parser.set_defaults(command="topics")
    allowed = parser.parse_args(["--bootstrap", "a:1", "-X", "kip848.allow.unencrypted.credentials=true"])
    assert client_conf(allowed).keys() == {"bootstrap.servers", "client.id", "log_level"}
