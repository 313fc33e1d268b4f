"""How tests are shared out between processes (tests/support/distribution.py)."""

from __future__ import annotations

from pathlib import Path

from tests.support.distribution import LONG, share_of

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_is_one_share_and_so_is_the_whole_folder_of_spark() -> None:
    """A second process with tests on Spark starts a second Java machine, and both take twice as long."""
    assert share_of("tests/spark/test_stream.py::test_a[x@y]") == share_of("tests/spark/test_batch.py::test_b")
    assert share_of("tests/member/test_membership.py::Class::test_a[b::c]") == "tests/member/test_membership.py"


def test_what_is_begun_first_is_there() -> None:
    """A file under a new name would be begun in its turn again, and the other processes wait for it at the end."""
    assert [share for share in LONG if not (ROOT / share).exists()] == []
