"""The table of clients in docs/testing.md: each *yes* is a test of that client."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED = "tests/interop/embedded"
OURS = "tests/interop/client/test_consuming.py"
TRANSACTIONS = f"{EMBEDDED}/test_transactions.py"
KAFKA_PYTHON = f"{EMBEDDED}/test_kafka_python.py"
JAVA = f"{EMBEDDED}/test_java_clients.py"
PEERS = f"{EMBEDDED}/test_peers.py"
FRANZ_GO = "test_franz_go_shares_a_group_dies_and_meets_a_member_of_the_new_protocol"
FRANZ_GO_TRANSACTIONS = "test_franz_go_copies_records_in_transactions_of_a_member_of_the_new_protocol"
SARAMA = "test_sarama_writes_a_transaction_and_reads_it_in_a_group"
CLASSIC = f"{EMBEDDED}/test_classic_groups.py::test_a_member_reads_everything_commits_and_leaves"
COLUMNS = ("records", "classic groups", "KIP-848 groups", "transactions", "administration")
PROOFS: dict[str, dict[str, str]] = {
    "kip848_client": {
        "records": f"{OURS}::test_one_consumer_reads_every_record_in_order",
        "classic groups": "tests/interop/classic/test_our_members.py"
        "::test_members_share_the_partitions_and_take_over_from_one_that_leaves",
        "KIP-848 groups": "tests/interop/real/test_rebalancing.py"
        "::test_many_members_that_come_at_once_share_everything",
        "transactions": "tests/interop/real/test_exactly_once.py"
        "::test_a_transaction_of_a_member_thrown_out_meanwhile_is_refused_and_its_records_are_not_lost",
    },
    "librdkafka (confluent-kafka)": {
        "records": f"{EMBEDDED}/test_librdkafka_records.py",
        "classic groups": CLASSIC,
        "KIP-848 groups": f"{EMBEDDED}/test_librdkafka_groups.py",
        "transactions": f"{TRANSACTIONS}::test_a_zombie_is_fenced_and_its_records_are_not_seen",
        "administration": f"{EMBEDDED}/test_librdkafka_admin.py",
    },
    "Java (kafka-clients 4.4.0)": {
        "records": f"{JAVA}::test_the_idempotent_producer_writes_and_a_member_reads_commits_and_leaves",
        "classic groups": f"{JAVA}::test_classic_java_members_share_a_group_and_take_over_from_one_that_dies",
        "KIP-848 groups": f"{JAVA}::test_a_java_member_and_a_librdkafka_member_share_a_group",
        "transactions": f"{JAVA}::test_java_producers_commit_abort_and_are_fenced_in_both_versions_of_transactions",
        "administration": f"{JAVA}::test_the_administrator_does_its_daily_work",
    },
    "kafka-python 3.0": {
        "records": f"{KAFKA_PYTHON}::test_an_idempotent_producer_writes_what_an_assigned_consumer_reads",
        "classic groups": CLASSIC,
        "administration": f"{KAFKA_PYTHON}::test_topics_are_created_grown_listed_and_deleted",
    },
    "kafka-python 2.0": {
        "records": f"{EMBEDDED}/test_peers.py::test_a_client_of_another_make_reads_everything",
    },
    "aiokafka": {
        "records": f"{EMBEDDED}/test_peers.py::test_aiokafka_reads_by_manual_assignment",
        "classic groups": CLASSIC,
        "transactions": f"{TRANSACTIONS}::test_transactions_of_aiokafka",
    },
    "kafkajs": {
        "records": f"{EMBEDDED}/test_peers.py::test_a_client_of_another_make_reads_everything",
        "classic groups": f"{EMBEDDED}/test_peers.py::test_a_client_of_another_make_reads_everything",
    },
    "kafka-go": {"records": f"{EMBEDDED}/test_peers.py::test_a_client_of_another_make_reads_everything"},
    "franz-go": {
        **dict.fromkeys(("records", "classic groups"), f"{PEERS}::{FRANZ_GO}"),
        **dict.fromkeys(("KIP-848 groups", "transactions"), f"{PEERS}::{FRANZ_GO_TRANSACTIONS}"),
    },
    "Sarama": dict.fromkeys(("records", "classic groups", "transactions", "administration"), f"{PEERS}::{SARAMA}"),
}
"""Client -> column -> the file, or the test, that decides the cell."""


def test_each_yes_of_the_table_is_a_test() -> None:
    """A user chooses this broker by the table."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    section = page.partition("## Which clients")[2].partition("\n## ")[0]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert table[0] == ["client", *COLUMNS]
    told = {client: dict(zip(COLUMNS, cells, strict=True)) for client, *cells in table[2:]}
    assert told == {
        client: {column: "yes" if column in proofs else "" for column in COLUMNS} for client, proofs in PROOFS.items()
    }


def test_the_tests_behind_the_table_are_there() -> None:
    """One that is renamed or deleted would leave a claim behind."""
    for proofs in PROOFS.values():
        for proof in proofs.values():
            path, _, name = proof.partition("::")
            code = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {name or 'test_'}", code, re.MULTILINE), proof
