"""The library's own assignors pass the suite that it offers to authors."""

from __future__ import annotations

import pytest

from kip848_client.assignors.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.suite import assert_sound, report_lines, run_suite
from tests.assignors.library.test_all import ALL


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_assignor_of_the_library_is_sound(name: str) -> None:
    """What is recommended to others holds here first."""
    report = assert_sound(ALL[name], groups=40)
    assert [result.name for result in report.results if result.required and not result.passed] == []
    assert len(report.results) == 9


@pytest.mark.parametrize("name", ["lag-aware", "rack-aware", "sticky-standby", "uniform", "weighted"])
def test_those_that_promise_it_pass_the_measured_checks_too(name: str) -> None:
    """Even and sticky, as their pages say."""
    make = next(make for make in ALL.values() if make().name == name)
    report = run_suite(make, groups=40, members=300)
    assert all(result.passed for result in report.results), "\n".join(report_lines(report))


def test_a_failing_suite_is_an_assertion_with_the_report() -> None:
    """In a user's test the report is the message."""

    class Hoarder(PartitionAssignor):
        name = "hoarder"

        def assign(self, spec: AssignmentSpec) -> GroupAssignment:
            return GroupAssignment.of({next(iter(spec.members)): spec.partitions})

    with pytest.raises(AssertionError, match=r"FAIL  extreme groups are served: .*does not subscribe"):
        assert_sound(Hoarder, groups=5)


def test_the_same_seed_tries_the_same_groups() -> None:
    """A failure in CI can be repeated at home."""
    assert run_suite(ALL["range"], seed=3, groups=30, members=0) == run_suite(
        ALL["range"], seed=3, groups=30, members=0
    )
