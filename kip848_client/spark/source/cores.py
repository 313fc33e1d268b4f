"""How many tasks a session can run at once, according to its settings. Reads nothing else of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(-cluster)?\[.*\]|local")
_UNBOUNDED: Final = 2**31 - 1


def session_cores(spark: SparkSession) -> int | None:
    """How many tasks can run at once; None if only the cluster knows.

    On this machine that is what ``local[n]`` says. On a cluster executors come and go, so only the configuration
    counts: executors and their cores, or the cores that an application may have.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # a remote session (Spark Connect)
        return None
    if _LOCAL.fullmatch(context.master):
        return int(context.defaultParallelism)
    return configured_cores(lambda name: context.getConf().get(name))


def configured_cores(setting: Callable[[str], str | None]) -> int | None:
    """The same for a cluster, from its settings.

    Args:
        setting: a Spark property, or None if it is not set.
    """

    def number(name: str) -> int | None:
        text = setting(name)
        return int(text) if text is not None and text.isdecimal() else None

    cores_max = number("spark.cores.max")
    each = number("spark.executor.cores")
    if setting("spark.dynamicAllocation.enabled") == "true":
        executors = number("spark.dynamicAllocation.maxExecutors")
        if executors == _UNBOUNDED:
            executors = None
    else:
        executors = number("spark.executor.instances")
    limits = [cores_max] if cores_max is not None else []
    if executors is not None and each is not None:
        limits.append(executors * each)
    if not limits:
        return None
    return max(1, min(limits) // (number("spark.task.cpus") or 1))
