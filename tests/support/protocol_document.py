"""docs/protocol.md as data: its rules, and the parts of it that are made from the code.

``python -m tests.support.protocol_document`` (``make docs``) rewrites the generated parts in place. A test fails while
they differ from the code, and while a rule has no test (`tests/source/test_rules.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import error_name
from kip848_client.member.core.error_tables import (
    COMMIT_CODES,
    HEARTBEAT_CODES,
    ROUND_CODES,
    CommitErrorClass,
    FetchErrorClass,
    HeartbeatErrorClass,
    RoundErrorClass,
    fetch_error_class,
    partition_fetch_error_class,
)
from tests.support.state_diagram import (
    classic_diagram,
    docstrings,
    membership_diagram,
    reconciliation_diagram,
    state_diagram,
    state_table,
)
from tests.transcripts.diagram import sequence_diagram

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"

_BLOCK: Final = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(text: str) -> str:
    """A page with its generated parts as they should be.

    Raises:
        KeyError: a part is marked as generated, and nothing generates it.
    """
    return _BLOCK.sub(lambda match: f"{match[1]}{GENERATED[match['name']]()}\n{match[3]}", text)


def blocks(text: str) -> list[str]:
    """Names of the generated parts."""
    return [match["name"] for match in _BLOCK.finditer(text)]


# --- the parts


def heartbeat_codes() -> str:
    """Codes of a heartbeat's answer by class."""
    texts = docstrings(HeartbeatErrorClass)
    codes = {name: _names(its_codes) for name, its_codes in _by_class(HEARTBEAT_CODES).items()}
    codes["RETRY"] += ", and any other that Kafka marks retriable"
    codes["FATAL"] += ", and any other"
    return _table(["class", "code", "what it does to the member"], [[name, codes[name], texts[name]] for name in codes])


_COMMIT_OUTCOMES: Final[dict[CommitErrorClass, tuple[str, str, str, str]]] = {
    CommitErrorClass.RETRY: ("retried", "RetriableCommitFailedError", "soon again", "retried"),
    CommitErrorClass.RETRY_UNLESS_REVOKING: ("retried", "RetriableCommitFailedError", "soon again", "given up"),
    CommitErrorClass.NOT_A_MEMBER: ("CommitFailedError", "CommitFailedError", "next interval", "given up"),
    CommitErrorClass.STALE: ("retried with the next epoch", "the error", "next interval", "retried"),
    CommitErrorClass.OLD_GENERATION: (
        "retried with the next generation",
        "CommitFailedError",
        "next interval",
        "given up",
    ),
    CommitErrorClass.FENCED_INSTANCE: ("CommitFailedError", "the error, and poll() too", "next interval", "given up"),
    CommitErrorClass.RAISE: ("the error", "the error", "next interval", "given up"),
    CommitErrorClass.OTHER: ("the error", "the error", "next interval", "given up"),
}
"""Per class: synchronous commit (and close), asynchronous, on the interval, before a revocation."""


def commit_codes() -> str:
    """Codes of OffsetCommit by class, and what each kind of commit does about them."""
    by_class = _by_class(COMMIT_CODES)
    rows = []
    for error_class, outcomes in _COMMIT_OUTCOMES.items():
        codes = by_class.get(error_class.name)
        rows.append([_names(codes) if codes else "any other", *outcomes])
    return _table(["code", "synchronous, or close()", "asynchronous", "interval", "before a revocation"], rows)


def fetch_codes() -> str:
    """Codes of OffsetFetch."""
    texts = docstrings(FetchErrorClass)
    everything = [code for code in ErrorCode if code is not ErrorCode.NONE]
    stale = [code for code in everything if fetch_error_class(code) is FetchErrorClass.STALE]
    unstable = [code for code in everything if partition_fetch_error_class(code) is FetchErrorClass.RETRY]
    assert {code for code in everything if fetch_error_class(code) is FetchErrorClass.RETRY} == RETRIABLE
    return _table(
        ["where", "code", "what happens"],
        [
            ["group", _names(stale), texts["STALE"]],
            ["group", "any that Kafka marks retriable", texts["RETRY"]],
            ["group", "any other", texts["FAIL"]],
            ["partition", _names(unstable), f"The whole request: {texts['RETRY'][0].lower()}{texts['RETRY'][1:]}"],
            ["partition", "any other", texts["FAIL"]],
        ],
    )


def round_codes() -> str:
    """Codes of Prepare and Install by class."""
    texts = docstrings(RoundErrorClass)
    codes = {name: _names(its_codes) for name, its_codes in _by_class(ROUND_CODES).items()}
    codes["GIVE_UP"] += ", and any other that Kafka marks retriable"
    codes["REPORT"] += ", and any other"
    return _table(["class", "code", "what it does to the round"], [[name, codes[name], texts[name]] for name in codes])


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "state table": state_table,
    "state diagram": state_diagram,
    "phases of membership": membership_diagram,
    "phases of reconciliation": reconciliation_diagram,
    "phases of the classic protocol": classic_diagram,
    "heartbeat codes": heartbeat_codes,
    "commit codes": commit_codes,
    "fetch codes": fetch_codes,
    "round codes": round_codes,
    "a revocation": lambda: sequence_diagram(
        "revocation", first_command="b subscribes to orders", last_text="on_partitions_assigned(orders-1)"
    ),
    "a fencing": lambda: sequence_diagram(
        "session_expires",
        first_command="a is cut off",
        last_text="heartbeat: epoch 0 (join), subscribed to orders, owns nothing",
    ),
    "a client side round": lambda: sequence_diagram(
        "client_side_round",
        first_command="b subscribes to orders with a client-side assignor",
        last_text="installed",
    ),
    "an upgrade": lambda: sequence_diagram(
        "migration",
        first_command="x subscribes to orders",
        last_text="on_partitions_assigned(orders-2, orders-3)",
    ),
}


def _by_class(
    codes: Mapping[int, HeartbeatErrorClass] | Mapping[int, CommitErrorClass] | Mapping[int, RoundErrorClass],
) -> dict[str, list[int]]:
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for code, error_class in codes.items():
        grouped[error_class.name].append(code)
    return dict(grouped)


def _names(codes: Iterable[int]) -> str:
    return ", ".join(error_name(code) for code in codes)


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Rewrite the page in place."""
    DOCUMENT.write_text(rewrite(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
