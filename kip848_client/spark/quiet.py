"""PySpark warns of pandas 3 whenever Arrow is used; nothing of pandas is used here, and it need not be installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Let PySpark keep its warning of pandas to itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield
