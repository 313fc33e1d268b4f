"""Spark: a streaming and batch source that is a member of a consumer group, and the session to run it in.

PySpark is an extra (``pip install 'kip848_client[spark]'``). Importing this package loads none of it; the names in
``__init__.pyi`` load what they need when they are first used.
"""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_WITHOUT_PYSPARK = ("JavaMissingError", "SparkMissingError", "source_progress", "spark_session", "stop_gracefully")


def __getattr__(name: str) -> object:
    if name in __all__ and name not in _WITHOUT_PYSPARK:
        from kip848_client.spark.session.session import require_pyspark  # says how to install what is missing

        require_pyspark()
    return _load(name)
