"""Apache Kafka's own client (Java) in processes of its own, driven by standard input. No expectations here."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.interop.embedded.holding import Member
from tests.interop.kafka_libs import KafkaUnavailableError, java_command, kafka_libs
from tests.support.waiting import TIMEOUT_S

SOURCES: Final = Path(__file__).parent / "java"
LOGGING: Final = Path(__file__).parents[1] / "kafka" / "log4j2.properties"


def java_client(classes: Path) -> list[str]:
    """Compile the programs of `SOURCES` into the folder *classes*; the command line that runs JavaClient.

    Raises:
        KafkaUnavailableError: there is no compiler, or the jars cannot be fetched.
    """
    command, libs = java_command(), kafka_libs()
    compiler = shutil.which("javac", path=str(Path(command).parent) + os.pathsep + os.environ.get("PATH", ""))
    if compiler is None:
        raise KafkaUnavailableError("There is a Java runtime but no `javac`.")
    class_path = f"{libs}/*"
    sources = [str(source) for source in sorted(SOURCES.glob("*.java"))]
    (clients,) = libs.glob("kafka-clients-*.jar")
    quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "-nowarn"]
    subprocess.run([compiler, *quick, "-cp", str(clients), "-d", str(classes), *sources], check=True, timeout=300)
    logging = f"-Dlog4j2.configurationFile={LOGGING}"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", logging]  # most of its life is its start
    return [command, *options, "-cp", f"{classes}{os.pathsep}{class_path}", "JavaClient"]


class JavaMember(Member):
    """A KafkaConsumer in a process of its own; closes in order when `leave` is called.

    Args:
        java: see `java_client`.
        properties: ``name=value``.

    Attributes:
        facts: the lines that it wrote.
    """

    def __init__(
        self, java: Sequence[str], bootstrap_servers: str, group_id: str, topic: str, *properties: str
    ) -> None:
        super().__init__()
        command = [*java, "consume", bootstrap_servers, group_id, topic, *properties]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts: Final[list[str]] = []
        self._topic = topic
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), name="java-output")
        self._reader.start()

    def leave(self) -> None:
        """Let it commit, leave the group and end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)

    def kill(self) -> None:
        """End the process without a farewell."""
        self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self._reader.join(TIMEOUT_S)

    def _read(self, output: IO[str]) -> None:
        with output:
            for line in output:
                fact = line.strip()
                self.facts.append(fact)
                kind, _, rest = fact.partition(" ")
                if kind == "record":
                    partition, offset, _ = rest.split()
                    self.delivered.append((self._topic, int(partition), int(offset)))
                elif kind in {"assigned", "revoked", "lost"}:
                    partitions = [(self._topic, int(index)) for index in rest.strip("[]").split(", ") if index]
                    (self.gain if kind == "assigned" else self.give_up)(partitions)
