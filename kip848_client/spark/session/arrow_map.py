"""`DataFrame.mapInArrow` where pandas is missing, too old or too new: pandas is not used here.

PySpark 4 asks for pandas before it looks at what kind of function it is given, and warns of pandas 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def map_in_arrow(
    table: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """*table* through *function*, a task's record batches at a time.

    Args:
        schema: of what *function* yields, as DDL.
    """
    with without_pandas_warning():
        try:
            return table.mapInArrow(function, schema)
        except ImportError:
            return _without_pandas(table, function, schema)


def _without_pandas(
    table: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Do the same as `DataFrame.mapInArrow` of PySpark 4 once it has found its pandas."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    mapped = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = mapped(*(table[name] for name in table.columns))
    java_table = table._jdf.mapInArrow(column._jc, False, None)
    return ClassicDataFrame(java_table, table.sparkSession)


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Let PySpark keep its warning of pandas to itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield
