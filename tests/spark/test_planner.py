"""How batches are limited and cut: by example, and for all inputs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.spark.source.planner import cut_range, cut_tasks, plan_ranges, share_rows

P = [NamedPartition("orders", number) for number in range(8)]

volumes = st.dictionaries(st.sampled_from(P), st.integers(1, 10_000), max_size=8)


def test_rows_are_shared_by_volume() -> None:
    """A partition with nine tenths of the backlog gets about nine tenths of the batch."""
    assert share_rows({P[0]: 900, P[1]: 100}, rows_max=100) == {P[0]: 89, P[1]: 11}


def test_everything_fits() -> None:
    """No limit, or one that is not reached, changes nothing."""
    assert share_rows({P[0]: 3, P[1]: 4}, rows_max=7) == {P[0]: 3, P[1]: 4}
    assert share_rows({P[0]: 3, P[1]: 4}, rows_max=None) == {P[0]: 3, P[1]: 4}


@given(volumes, st.integers(1, 2_000), st.integers(0, 50))
def test_a_limit_is_met_exactly_and_no_partition_gets_more_than_it_has(
    waiting: dict[NamedPartition, int], rows_max: int, turn: int
) -> None:
    """``maxOffsetsPerTrigger`` is a promise about memory: a batch must not be larger."""
    shares = share_rows(waiting, rows_max=rows_max, turn=turn)

    assert sum(shares.values()) == min(rows_max, sum(waiting.values()))
    assert all(0 <= count <= waiting[partition] for partition, count in shares.items())


@given(volumes.filter(bool), st.integers(1, 100))
def test_no_partition_starves(waiting: dict[NamedPartition, int], rows_max: int) -> None:
    """Within as many batches as there are partitions each was served, however small its backlog is."""
    served: Counter[NamedPartition] = Counter()
    for turn in range(len(waiting)):
        served.update(share_rows(waiting, rows_max=rows_max, turn=turn))

    assert all(served[partition] > 0 for partition in waiting)


def test_partitions_without_an_end_or_without_news_are_left_out() -> None:
    """A partition that does not exist any more, and one that has been read."""
    ranges = plan_ranges(positions={P[0]: 5, P[1]: 7, P[2]: 0}, ends={P[0]: 9, P[1]: 7}, rows_max=None)
    assert ranges == (OffsetRange(P[0], 5, 9),)


ranges = st.lists(
    st.builds(lambda p, start, rows: OffsetRange(p, start, start + rows), st.sampled_from(P), st.integers(0, 100),
              st.integers(1, 60)),
    max_size=6,
    unique_by=lambda each: each.partition,
)  # fmt: skip


@given(ranges, st.none() | st.integers(1, 12), st.none() | st.integers(1, 12), st.none() | st.integers(1, 40))
def test_every_offset_is_in_exactly_one_task(
    whole: list[OffsetRange], tasks_min: int | None, tasks_max: int | None, task_rows_max: int | None
) -> None:
    """Whatever the options are, a batch reads what was planned."""
    tasks = cut_tasks(whole, tasks_min=tasks_min, tasks_max=tasks_max, task_rows_max=task_rows_max)
    read = Counter(
        (each.partition, offset) for task in tasks for each in task for offset in range(each.start, each.end)
    )

    assert read == Counter((each.partition, offset) for each in whole for offset in range(each.start, each.end))
    assert all(task and all(each.rows > 0 for each in task) for task in tasks)
    if tasks_max is not None:
        assert len(tasks) <= tasks_max
    elif tasks_min is not None:
        assert len(tasks) >= min(tasks_min, sum(each.rows for each in whole))
    if task_rows_max is not None and tasks_max is None:
        assert all(each.rows <= task_rows_max for task in tasks for each in task)


def test_ranges_are_cut_evenly() -> None:
    """The slowest task decides how long a batch takes."""
    assert [piece.rows for piece in cut_range(OffsetRange(P[0], 10, 20), parts=3)] == [3, 3, 4]
    assert cut_range(OffsetRange(P[0], 0, 2), parts=5) == [OffsetRange(P[0], 0, 1), OffsetRange(P[0], 1, 2)]


def test_packing_balances() -> None:
    """maxTasks puts a long range beside nothing, and short ones together."""
    whole = [OffsetRange(P[0], 0, 100), OffsetRange(P[1], 0, 40), OffsetRange(P[2], 0, 60)]
    tasks = cut_tasks(whole, tasks_max=2)

    assert sorted(sum(each.rows for each in task) for task in tasks) == [100, 100]
