"""The Java programme behind the test broker: its version, its jars in a cache, and the `java` that runs them.

Owns where the jars come from. Does not start anything (kafka_broker.py) and decides nothing about tests (conftest.py).

Environment:
    KIP848_KAFKA_CACHE: folder for the jars; default `~/.cache/kip848_client`.
    KIP848_KAFKA_VERSION: another broker version than the one pinned in kafka/pom.xml.
    JAVA_HOME: which Java runs the broker; default the `java` of PATH.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KAFKA_FOLDER: Final = Path(__file__).parent / "kafka"
POM: Final = KAFKA_FOLDER / "pom.xml"

JAVA_MAJOR_MIN: Final = 17
"""Brokers of Kafka 4.x run on Java 17 and later (KIP-1013)."""

MAVEN_TIMEOUT_S: Final = 600

HOW_TO_ENABLE: Final = (
    "To run these tests, install a Java runtime (17 or later) and Maven, then run pytest again (the first run "
    "downloads the broker, about 45 MB); or start a broker yourself, for example with "
    "`docker compose --profile kafka up -d kafka`, "
    "and set KIP848_BOOTSTRAP=localhost:9092."
)


class KafkaUnavailableError(Exception):
    """No broker can be started on this machine; the message says what is missing and what to do."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"{missing} {HOW_TO_ENABLE}")


def kafka_version() -> str:
    """The broker version to run, such as `4.4.0`: KIP848_KAFKA_VERSION, else what kafka/pom.xml pins."""
    return os.environ.get("KIP848_KAFKA_VERSION") or pinned_kafka_version()


def pinned_kafka_version() -> str:
    """The broker version that kafka/pom.xml pins."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text())
    if found is None:
        raise ValueError(f"{POM} names no kafka.version")
    return found[1]


def java_command() -> str:
    """Path of a `java` that can run the broker.

    Raises:
        KafkaUnavailableError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise KafkaUnavailableError("No `java` on PATH and JAVA_HOME is not set.")
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise KafkaUnavailableError(f"`{java} -version` failed: {error}.") from error
    major = _java_major(shown)
    if major < JAVA_MAJOR_MIN:
        raise KafkaUnavailableError(f"{java} is Java {major}, the broker needs {JAVA_MAJOR_MIN} or later.")
    return java


def kafka_libs(version: str | None = None) -> Path:
    """Folder of all jars of the broker; downloads them on first use.

    Several processes may ask at once: one downloads under a file lock, into a folder that is renamed when complete.

    Args:
        version: of the broker; by default `kafka_version`.

    Raises:
        KafkaUnavailableError: the jars are not cached and Maven is missing or failed.
    """
    version = version or kafka_version()
    home = _cache_root() / f"kafka-{version}"
    libs, stamp = home / "libs", home / "pom.sha256"
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    with _locked(_cache_root() / f"kafka-{version}.lock"):
        if libs.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
            return libs
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix="partial-") as partial:
            fetched = Path(partial, "libs")
            _run_maven(version, destination=fetched)
            if libs.is_dir():  # a running broker keeps its open jars; only the names go
                libs.rename(Path(partial, "old"))
            fetched.rename(libs)
        stamp.write_text(wanted)
    return libs


def _run_maven(version: str, *, destination: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"The jars of Kafka {version} are not cached and there is no `mvn` on PATH.")
    command = [
        maven,
        *("-q", "-B", "-f", str(POM), f"-Dkafka.version={version}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={destination}"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"Maven did not finish in {MAVEN_TIMEOUT_S} s: {' '.join(command)}.") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise KafkaUnavailableError(f"Maven could not fetch Kafka {version}: {said}\n")


def _java_major(version_text: str) -> int:
    found = re.search(r'version "(\d+)', version_text)  # `1.8.0_292` counts as 1, which is too old as well
    return int(found[1]) if found else 0


def _cache_root() -> Path:
    chosen = os.environ.get("KIP848_KAFKA_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "kip848_client"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, also when the process dies
