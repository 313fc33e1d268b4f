"""Lets Spark's Python processes import PySpark as it is installed, and not from the zip file that comes with it.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` before everything else on the path of the Python processes that it
starts, four for the first query and one for each further one. Nothing in a zip file is compiled, so that each of them
compiles all that it imports: more than a second of work, out of the ten that Spark gives it to start. A home without
that folder leaves them the installed package, which is the same one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

_PYTHON_FOLDER = "python"
"""The only folder of Spark's home that a session on this machine reads; it holds the zip file."""


def workers_have_pyspark(settings: Mapping[str, str]) -> bool:
    """Whether Spark's Python processes run this Python, and find PySpark where this one has it installed.

    Args:
        settings: of the session, which may name another Python for them.
    """
    if os.environ.get("PYSPARK_PYTHON") != sys.executable or "spark.pyspark.python" in settings:
        return False
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    return str(_package().parent) in installed


def unzipped_home() -> Path | None:
    """A folder to be Spark's home until this process ends; None where PySpark is laid out in another way."""
    package = _package()
    if not (package / "jars").is_dir() or not (package / _PYTHON_FOLDER).is_dir():
        return None
    home = Path(tempfile.mkdtemp(prefix="kip848-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    try:
        for entry in package.iterdir():
            if entry.is_dir() and entry.name != _PYTHON_FOLDER and not (entry / "__init__.py").exists():
                (home / entry.name).symlink_to(entry, target_is_directory=True)
    except OSError:  # a file system, or an account, that may not have links
        return None
    return home


def _package() -> Path:
    import pyspark  # takes a second

    return Path(pyspark.__file__).parent
