"""``kip848 acls`` and ``kip848 cluster``, against the embedded broker."""

from __future__ import annotations

import json

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main


@pytest.mark.kip848_broker(acls=True, config={"allow.everyone.if.no.acl.found": "true"})
def test_rules_are_created_listed_and_deleted(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new service needs three rules, and Kafka's own tool needs Java."""
    to = ("--bootstrap", kip848_broker.bootstrap_servers)
    assert main(["acls", "create", "User:alice", "read", "describe", "--topic", "orders", *to]) == 0
    assert main(["acls", "create", "User:alice", "READ", "--group", "billing-", "--prefixed", *to]) == 0
    assert main(["acls", "create", "User:bob", "WRITE", "--topic", "*", "--deny", "--host", "10.0.0.7", *to]) == 0
    capsys.readouterr()

    assert main(["acls", "list", *to]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "PRINCIPAL   OPERATION  RESOURCE  NAME         PERMISSION  HOST",
        "User:alice  DESCRIBE   topic     orders       allow       *",
        "User:alice  READ       group     billing-...  allow       *",
        "User:alice  READ       topic     orders       allow       *",
        "User:bob    WRITE      topic     *            deny        10.0.0.7",
    ]
    assert main(["acls", "delete", "User:alice", "--topic", "orders", *to]) == 0
    assert "2 rules deleted" in capsys.readouterr().out
    assert main(["acls", "list", "User:alice", "--json", *to]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert (rule["operation"], rule["name"]) == ("READ", "billing-...")

    assert main(["acls", "create", "User:alice", "DESCRIBE", "--cluster", *to]) == 0  # from now on she alone may
    assert main(["acls", "list", *to]) == 0
    assert "this user may not see them" in capsys.readouterr().err


def test_a_rule_without_a_user_is_refused(kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka keeps a rule for a principal that no login ever has."""
    to = ("--bootstrap", kip848_broker.bootstrap_servers)
    assert main(["acls", "create", "alice", "READ", "--topic", "orders", *to]) == 1
    assert "'alice' is not a principal such as User:alice" in capsys.readouterr().err


def test_the_cluster_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    """Which broker is that, and is the new protocol on?"""
    with EmbeddedBroker(nodes=3) as broker:
        assert main(["cluster", "--bootstrap", broker.bootstrap_servers]) == 0
        shown = capsys.readouterr().out
        assert main(["cluster", "--json", "--bootstrap", broker.bootstrap_servers]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [node["node"] for node in found["nodes"]] == [1, 2, 3]
    assert found["features"]["finalized"]["group.version"] == 1
    assert f"cluster {found['cluster_id']}" in shown
    assert "group.version" in shown
    assert shown.count("controller") == 1
