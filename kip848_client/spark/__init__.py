"""Spark: a streaming and batch source that is a member of a consumer group, and the session to run it in.

PySpark is an extra (``pip install 'kip848_client[spark]'``). Importing this package loads none of it; the names below
load what they need when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kip848_client.spark.session.session import JavaMissingError, SparkMissingError, spark_session
    from kip848_client.spark.source.source import FORMAT, register
    from kip848_client.spark.source.stopping import stop_gracefully

__all__ = ["register", "spark_session", "stop_gracefully", "FORMAT", "JavaMissingError", "SparkMissingError"]

_HOMES: Final = {
    "register": "source.source",
    "FORMAT": "source.source",
    "spark_session": "session.session",
    "stop_gracefully": "source.stopping",
    "JavaMissingError": "session.session",
    "SparkMissingError": "session.session",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "source.source":
        from kip848_client.spark.session.session import require_pyspark  # says how to install what is missing

        require_pyspark()
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
