"""The figures of groups, members and partitions, in Spark's SQL. `kip848_client.report.figures` says what each one is.

Every function takes tables and returns one; nothing is computed here. Windows are over one group, or one partition of
it, and are sorted on disk where they are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sf

from kip848_client.report.lanes import AT_REST, COMMIT_ENDS, MARKS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUMP: Final = 0
_REST: Final = 1


def percentiles_of(column: str, where: str = "true") -> Column:
    """A struct of count, p50_ms, p90_ms, p99_ms, max_ms; nearest rank, so that each is a duration that was seen."""
    shares = ", ".join(
        f"'{name}', percentile_disc({share}) within group (order by {column}) filter (where {where})"
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99))
    )
    return sf.expr(
        f"named_struct('count', count({column}) filter (where {where}), {shares}, "
        f"'max_ms', max({column}) filter (where {where}))"
    )


def cause_of(reasons: str) -> Column:
    """Why a rebalance began, by the name of its column of reasons, as `kip848_client.report.periods.cause_of`."""
    cause = sf.regexp_replace(sf.substring_index(sf.get(sf.col(reasons), sf.lit(0)), " (", 1), "_", " ")
    return sf.when(sf.length(cause) > 0, cause).otherwise("unknown")


def rebalances(pieces: DataFrame) -> DataFrame:
    """group_id, start_ms, end_ms (null if the log does not see the end), ms, first_epoch, last_epoch, reasons."""
    rests = ", ".join(f"'{state}'" for state in sorted(AT_REST))
    points = pieces.where(f"kind = 'epoch' or (kind = 'group_state' and text in ({rests}))").select(
        "group_id",
        "seq",
        "start_ms",
        "number",
        "text",
        sf.when(sf.col("kind") == "epoch", sf.lit(_BUMP)).otherwise(sf.lit(_REST)).alias("point"),
    )
    # A bump belongs to the first rest at its time or after it. From the end backwards, because Spark computes a frame
    # that grows once, and one that shrinks anew for every row.
    onwards = (
        Window.partitionBy("group_id")
        .orderBy(sf.desc("start_ms"), sf.desc("point"), sf.desc("seq"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    rest = sf.min(sf.when(sf.col("point") == _REST, sf.col("start_ms"))).over(onwards)
    return (
        points.withColumn("end_ms", rest)
        .where(sf.col("point") == _BUMP)
        .groupBy("group_id", "end_ms")
        .agg(sf.sort_array(sf.collect_list(sf.struct("start_ms", "seq", "number", "text"))).alias("bumps"))
        .selectExpr(
            "group_id",
            "bumps[0].start_ms as start_ms",
            "end_ms",
            "end_ms - bumps[0].start_ms as ms",
            "bumps[0].number as first_epoch",
            "bumps[size(bumps) - 1].number as last_epoch",
            "transform(bumps, bump -> bump.text) as reasons",
        )
    )


def with_costs(rebalanced: DataFrame, owned: DataFrame) -> DataFrame:
    """*rebalanced*, with moved and without_reader_ms: of partitions that left an owner while the rebalance lasted."""
    left = owned.where("next_owner is not null").select(
        "group_id", sf.col("end_ms").alias("left_ms"), "gap_ms", (sf.expr("next_owner <> owner")).alias("moves")
    )
    lasts = sf.expr("left_ms >= rebalance.start_ms and left_ms <= coalesce(rebalance.end_ms, left_ms)")
    costs = (
        rebalanced.alias("rebalance")
        .join(left.alias("span"), (sf.col("rebalance.group_id") == sf.col("span.group_id")) & lasts)
        .groupBy(sf.col("rebalance.group_id").alias("group_id"), sf.col("rebalance.start_ms").alias("start_ms"))
        .agg(sf.count_if("moves").alias("moved"), sf.sum("gap_ms").alias("without_reader_ms"))
    )
    joined = rebalanced.join(costs, ["group_id", "start_ms"], "left")
    return joined.na.fill({"moved": 0, "without_reader_ms": 0.0})


def states(pieces: DataFrame) -> DataFrame:
    """group_id, state, start_ms, end_ms."""
    return pieces.where("kind = 'group_state'").selectExpr("group_id", "text as state", "start_ms", "end_ms")


def revocations(named: DataFrame) -> DataFrame:
    """group_id, member, took: from the request to revoke until its acknowledgement, or until the member left."""
    of_member = Window.partitionBy("group_id", "who").orderBy("ts_ms", "file", "block", "line")
    told = sf.col("state") == "UNREVOKED_PARTITIONS"
    return (
        named.where("event in ('member_assignment_changed', 'member_left')")
        .withColumn("state", sf.get_json_object("fields", "$.state"))
        .withColumn("before", sf.lag("state").over(of_member))
        .withColumn("begins", told & sf.coalesce(sf.col("before") != sf.col("state"), sf.lit(True)))
        .where("begins or before = 'UNREVOKED_PARTITIONS' and not coalesce(state = before, false)")
        .withColumn("ms", (sf.lead("ts_ms").over(of_member) - sf.col("ts_ms")).cast("double"))
        .where("begins and ms is not null")
        .groupBy("group_id", sf.col("who").alias("member"))
        .agg(percentiles_of("ms").alias("took"))
    )


def changes(pieces: DataFrame) -> DataFrame:
    """group_id, start_ms, end_ms (null if the log does not see the end), ms, epoch, reason."""
    return pieces.where("kind = 'change'").selectExpr(
        "group_id", "start_ms", "end_ms", "end_ms - start_ms as ms", "number as epoch", "text as reason"
    )


def ownership(pieces: DataFrame, named: DataFrame) -> DataFrame:
    """group_id, partition, owner, start_ms, end_ms, next_owner, gap_ms, overlaps.

    Reading, of members that wrote logs, else what the coordinator counts. `overlaps`: another member read the
    partition at the same time, since before.
    """
    writers = named.where("source = 'client'").selectExpr("group_id", "who as text", "true as writes").distinct()
    lane = Window.partitionBy("group_id", "lane")
    in_order = lane.orderBy("start_ms", "end_ms", "text")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        pieces.where("kind in ('held', 'read')")
        .withColumn("any_read", sf.max(sf.col("kind") == "read").over(lane))
        .join(sf.broadcast(writers), ["group_id", "text"], "left")
        .where("kind = 'read' or not any_read or writes is null")
        .withColumn("place", sf.row_number().over(in_order))
        .withColumn("next_start_ms", sf.lead("start_ms").over(in_order))
        .withColumn("next_owner", sf.lead("text").over(in_order))
        # Of the spans before, the one that lasts longest; of several the first.
        .withColumn(
            "longest",
            sf.max(sf.when(sf.col("kind") == "read", sf.struct("end_ms", -sf.col("place"), "text"))).over(before),
        )
        .selectExpr(
            "group_id",
            "lane as partition",
            "text as owner",
            "start_ms",
            "end_ms",
            "next_owner",
            "if(next_owner is null, null, greatest(next_start_ms - end_ms, 0d)) as gap_ms",
            "coalesce(kind = 'read' and start_ms < longest.end_ms and text <> longest.text, false) as overlaps",
        )
    )


def partitions(pieces: DataFrame, owned: DataFrame) -> DataFrame:
    """group_id, partition, moves, returned, without_reader_ms, without_reader_max_ms, two_readers."""
    counted = owned.groupBy("group_id", "partition").agg(
        sf.count_if(sf.expr("next_owner <> owner")).alias("moves"),
        sf.count_if(sf.expr("next_owner = owner")).alias("returned"),
        sf.sum("gap_ms").alias("without_reader_ms"),
        sf.max("gap_ms").alias("without_reader_max_ms"),
        sf.max("overlaps").alias("two_readers"),
    )
    return (
        pieces.where("kind = 'partition'")
        .select("group_id", sf.col("lane").alias("partition"))
        .join(counted, ["group_id", "partition"], "left")
        .na.fill({"moves": 0, "returned": 0, "without_reader_ms": 0.0, "two_readers": False})
    )


def heartbeats(named: DataFrame) -> DataFrame:
    """group_id, member, sent_ms, late_ms (null for joins and leaves)."""
    return named.where("event = 'heartbeat_sent'").selectExpr(
        "group_id",
        "who as member",
        "coalesce(sent_ms, double(ts_ms)) as sent_ms",
        "if(due_ms is null, null, greatest(coalesce(sent_ms, double(ts_ms)) - due_ms, 0d)) as late_ms",
    )


def _commits(named: DataFrame) -> DataFrame:
    end = sf.create_map(*(sf.lit(text) for pair in COMMIT_ENDS.items() for text in pair))
    return (
        named.where(sf.col("event").isin(*COMMIT_ENDS))
        .withColumn("end", end[sf.col("event")])
        .select("group_id", sf.col("who").alias("member"), "end", "error")
    )


_COMMITS: Final = tuple(COMMIT_ENDS.values())


def members(named: DataFrame, owned: DataFrame) -> DataFrame:
    """group_id, member, heartbeats, late, done, failed, accepted, refused, gained, given, returned, owned_ms."""
    there = named.where("member_id <> '' or client_id <> ''").select("group_id", sf.col("who").alias("member"))
    beats = heartbeats(named).groupBy("group_id", "member").agg(
        sf.count("*").alias("heartbeats"), percentiles_of("late_ms").alias("late")
    )  # fmt: skip
    ends = (
        _commits(named)
        .groupBy("group_id", "member")
        .agg(*(sf.count_if(sf.col("end") == end).alias(end) for end in _COMMITS))
    )
    taken = owned.where("next_owner is not null").groupBy("group_id", sf.col("next_owner").alias("member")).agg(
        sf.count_if(sf.expr("next_owner <> owner")).alias("gained"),
        sf.count_if(sf.expr("next_owner = owner")).alias("returned"),
    )  # fmt: skip
    had = owned.groupBy("group_id", sf.col("owner").alias("member")).agg(
        sf.count_if(sf.expr("next_owner <> owner")).alias("given"),
        sf.sum(sf.expr("end_ms - start_ms")).alias("owned_ms"),
    )
    key = ["group_id", "member"]
    joined = there.distinct().join(beats, key, "left").join(ends, key, "left").join(taken, key, "left")
    return (
        joined.join(had, key, "left")
        .na.fill(0, ["heartbeats", *_COMMITS, "gained", "returned", "given"])
        .na.fill(0.0, ["owned_ms"])
        .select(*key, "heartbeats", "late", *_COMMITS, "gained", "given", "returned", "owned_ms")
    )


def listener_calls(pieces: DataFrame) -> DataFrame:
    """group_id, callback, took."""
    calls = pieces.where("kind = 'call'").withColumn("ms", sf.expr("end_ms - start_ms"))
    callback = sf.substring_index("text", "(", 1).alias("callback")
    return calls.groupBy("group_id", callback).agg(percentiles_of("ms").alias("took"))


def commit_errors(named: DataFrame) -> DataFrame:
    """group_id, member, end, error, count."""
    failed = _commits(named).where("error <> ''")
    return failed.groupBy("group_id", "member", "end", "error").agg(sf.count("*").alias("count"))


def marks(pieces: DataFrame, no_group: DataFrame) -> DataFrame:
    """group_id (null where an event belongs to none), ts_ms, who, kind, text."""
    of_groups = pieces.where("kind = 'mark'").selectExpr(
        "group_id", "start_ms as ts_ms", "lane as who", "mark as kind", "text"
    )
    kind = sf.create_map(*(sf.lit(text) for name, (kind, _) in MARKS.items() for text in (name, kind)))
    others = no_group.where(sf.col("event").isin(*MARKS)).select(
        sf.lit(None).cast("string").alias("group_id"),
        sf.col("ts_ms").cast("double").alias("ts_ms"),
        sf.col("source").alias("who"),
        kind[sf.col("event")].alias("kind"),
        sf.replace(sf.col("event"), sf.lit("_"), sf.lit(" ")).alias("text"),
    )
    return of_groups.unionByName(others)


def stayed(rebalanced: DataFrame, owned: DataFrame) -> DataFrame:
    """group_id, stayed: of the ownerships at the beginnings of rebalances, the share that outlasted them."""
    none = sf.lit(None).cast("double")
    begins = rebalanced.where("end_ms is not null").select(
        "group_id", sf.col("start_ms").alias("at_ms"), sf.lit(1).alias("point"), sf.lit(0).alias("sign"),
        sf.struct("start_ms", "end_ms").alias("period"), none.alias("span_start_ms"),
    )  # fmt: skip
    no_period = sf.lit(None).cast("struct<start_ms: double, end_ms: double>").alias("period")
    # At one moment ends and beginnings of spans come first: a rebalance counts for what it finds.
    edges = [
        owned.select(
            "group_id", sf.col(edge).alias("at_ms"), sf.lit(0).alias("point"), sf.lit(sign).alias("sign"),
            no_period, sf.col("start_ms").alias("span_start_ms"),
        )
        for edge, sign in (("start_ms", -1), ("end_ms", 1))
    ]  # fmt: skip
    so_far = (
        Window.partitionBy("group_id")
        .orderBy("at_ms", "point")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        begins.unionByName(edges[0])
        .unionByName(edges[1])
        .withColumn("begun", sf.sum("point").over(so_far))
        .withColumn("last", sf.last("period", ignorenulls=True).over(so_far))
        .groupBy("group_id")
        .agg(
            sf.sum(sf.expr("sign * begun")).alias("chances"),
            sf.count_if(sf.expr("sign = 1 and span_start_ms <= last.start_ms and at_ms <= last.end_ms")).alias("ended"),
        )
        .selectExpr("group_id", "if(chances > 0, 1 - ended / chances, null) as stayed")
    )


def groups(
    *,
    named: DataFrame,
    rebalances: DataFrame,
    changes: DataFrame,
    ownership: DataFrame,
    partitions: DataFrame,
    marks: DataFrame,
    log_ms: int,
) -> DataFrame:
    """One row a group, with the names of `kip848_client.report.figures.Figures`."""
    there = named.groupBy("group_id").agg(
        sf.count_distinct(sf.when(sf.expr("member_id <> '' or client_id <> ''"), sf.col("who"))).alias("members"),
        sf.lit(float(log_ms)).alias("log_ms"),
    )
    rebalanced = rebalances.groupBy("group_id").agg(
        percentiles_of("ms").alias("rebalance"),
        sf.count_if(sf.col("end_ms").isNull()).alias("rebalances_open"),
    )
    changed = changes.groupBy("group_id").agg(percentiles_of("ms").alias("change"))
    gaps = ownership.groupBy("group_id").agg(percentiles_of("gap_ms", "gap_ms > 0").alias("without_reader"))
    moved = partitions.groupBy("group_id").agg(
        sf.count("*").alias("partitions"),
        sf.sum("moves").alias("moves"),
        sf.sum("returned").alias("bounces"),
        sf.sort_array(sf.collect_list(sf.when(sf.col("two_readers"), sf.col("partition")))).alias("two_readers"),
    )
    beats = (
        heartbeats(named)
        .groupBy("group_id")
        .agg(sf.count("*").alias("heartbeats"), percentiles_of("late_ms").alias("late"))
    )
    commits = (
        _commits(named).groupBy("group_id").agg(*(sf.count_if(sf.col("end") == end).alias(end) for end in _COMMITS))
    )
    kinds = ("fault", "refusal", "failure", "life")
    counted = [sf.count_if(sf.col("kind") == kind).alias(f"{kind}_marks") for kind in kinds]
    marked = marks.where("group_id is not null").groupBy("group_id").agg(*counted)
    of_all = marks.where("group_id is null").agg(
        *(each.alias(f"all_{k}") for each, k in zip(counted, kinds, strict=True))
    )
    joined = there
    for table in (rebalanced, changed, gaps, moved, stayed(rebalances, ownership), beats, commits, marked):
        joined = joined.join(table, "group_id", "left")
    zero = [
        "partitions",
        "moves",
        "bounces",
        "heartbeats",
        "rebalances_open",
        *_COMMITS,
        *(f"{k}_marks" for k in kinds),
    ]
    # Events of no group, such as a broker's start, are shown with every group.
    return (
        joined.na.fill(0, zero)
        .crossJoin(sf.broadcast(of_all))
        .select(
            *(
                "group_id",
                "log_ms",
                "members",
                "partitions",
                "rebalance",
                "rebalances_open",
                "change",
                "without_reader",
            ),
            *("moves", "bounces", "stayed", "two_readers", "heartbeats", "late", *_COMMITS),
            *((sf.col(f"{kind}_marks") + sf.col(f"all_{kind}")).alias(f"{kind}_marks") for kind in kinds),
        )
    )
