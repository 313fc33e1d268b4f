"""A real Apache Kafka broker for tests: one Java process on loopback, no Docker.

Owns the process, its ports, its configuration and its data folder. Does not fetch jars (kafka_libs.py) and decides
nothing about skipping tests (conftest.py).

    with KafkaBroker() as broker:
        Consumer({"bootstrap.servers": broker.bootstrap_servers, ...})
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tests.interop.kafka_libs import KAFKA_FOLDER, java_command, kafka_libs, kafka_version
from tests.interop.kafka_wire import Json, WireConnection
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
LOG_TAIL_LINES: Final = 60
PORT_ATTEMPTS: Final = 3
PROBE_GROUP: Final = "kip848-start-probe"

JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",  # fewer threads, and the heap is small
    "-XX:TieredStopAtLevel=1",  # halves the start-up time; throughput is not what these tests measure
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={KAFKA_FOLDER / 'log4j2.properties'}",
)


class KafkaBrokerError(Exception):
    """The broker did not do as told; the message ends with the last lines of its log."""


class ExternalKafka(msgspec.Struct, frozen=True):
    """A broker that another member runs (KIP848_BOOTSTRAP): it can be used, but not restarted or configured."""

    bootstrap_servers: str


class KafkaBroker:
    """One Apache Kafka node, broker and controller in one process, that a test can stop, kill and start again.

    Args:
        properties: broker properties that override kafka/server.properties, Kafka's names and spelling.
        listeners: more client listeners, name -> security protocol, for example `{"SASL": "SASL_PLAINTEXT"}`;
            each gets a free loopback port, see `endpoint`.
        format_arguments: more arguments of `StorageTool format`, for example `("--add-scram", "SCRAM-SHA-256=[...]")`.
        version: of the broker; by default `kafka_version`.
        jvm_options: more options of its Java machine.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
        version: str | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.version = version or kafka_version()
        self.start_duration_s = 0.0
        """How long the last start took, until the group coordinator answered."""
        self._java: Final = java_command()
        self._libs = kafka_libs(self.version)
        self._properties: Final = dict(properties or {})
        self._protocols: Final = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._format_arguments: Final = tuple(format_arguments)
        self._jvm_options: Final = tuple(jvm_options)
        self._folder: Final = Path(tempfile.mkdtemp(prefix="kip848-kafka-"))
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the PLAINTEXT listener; the same for the whole life of this object."""
        return self.endpoint("PLAINTEXT")

    def endpoint(self, listener: str) -> str:
        """`host:port` of a listener by its name; known once the broker was started."""
        if listener not in self._ports:
            raise KafkaBrokerError(f"no port for listener {listener!r} yet: start the broker first")
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def is_running(self) -> bool:
        """Whether the Java process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the Java process."""
        if self._process is None:
            raise KafkaBrokerError("the broker does not run: start it first")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """What the broker wrote, over all its starts; goes away with `close`."""
        return self._folder / "broker.log"

    def start(self) -> None:
        """Start, or start again on the same data and ports, and wait until groups are served.

        Raises:
            KafkaBrokerError: it is running already, or did not serve within START_TIMEOUT_S.
        """
        if self.is_running:
            raise KafkaBrokerError("the broker is running already")
        began = time.monotonic()
        deadline = began + START_TIMEOUT_S
        if not self._ports:
            self._first_start(deadline)
        else:
            self._launch()
            self._await_service(deadline)
        self.start_duration_s = time.monotonic() - began

    def stop(self) -> None:
        """Shut down in good order (SIGTERM) and wait for the end of the process; data and ports are kept.

        Raises:
            KafkaBrokerError: it did not end within STOP_TIMEOUT_S; it has been killed then.
        """
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s and was killed") from error
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would; data and ports are kept.

        The next start waits until the controller has given up the dead broker's session: 9 s, or what the property
        `broker.session.timeout.ms` says (shorter values make a busy machine lose a living broker).
        """
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop in good order, then start on the same data and the same ports."""
        self.stop()
        self.start()

    def upgrade(self, version: str) -> None:
        """Stop in good order, then start another version on the same data and the same ports.

        The features of the cluster stay as they are, see `finalize_features`.
        """
        libs = kafka_libs(version)
        self.stop()
        self.version, self._libs = version, libs
        self.start()

    def finalize_features(self, *names: str) -> None:
        """Raise features, such as `group.version`, to the highest level that the broker supports.

        Does what `kafka-features.sh upgrade` does, which is not among the broker's jars.

        Raises:
            KafkaBrokerError: the controller refused.
        """
        software: dict[str, Json] = {"client_software_name": "tests", "client_software_version": "1"}
        with WireConnection(self.bootstrap_servers) as connection:
            # Version 4 is the first to name features whose lowest level is 0, as group.version's is.
            known = connection.exchange("api_versions", 4, software)
            levels = {one["name"]: one["max_version"] for one in _rows(known.response["supported_features"])}
            updates: list[Json] = [
                {"feature": name, "max_version_level": levels[name], "upgrade_type": 1} for name in names
            ]
            answer = connection.exchange(
                "update_features", 1, {"timeout_ms": 30_000, "feature_updates": updates, "validate_only": False}
            ).response
        if answer["error_code"] or any(row["error_code"] for row in _rows(answer["results"])):
            raise KafkaBrokerError(f"the features {names} were not upgraded: {answer}")

    def close(self) -> None:
        """Kill the broker and delete its data; the object is of no more use. May be called twice."""
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines that the broker wrote."""
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first_start(self, deadline: float) -> None:
        # Ports are free when they are chosen, not when they are bound: another process can take one in between.
        # The controller's port is part of what is formatted, so a new port means formatting again.
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            ports = dict(zip(self._protocols, free_ports(len(self._protocols)), strict=True))
            self._write_properties(ports)
            self._format()
            self._ports = ports
            self._launch()
            try:
                self._await_service(deadline)
                break
            except KafkaBrokerError:
                self._ports = {}
                self.kill()
                if attempts_left == 0 or "Address already in use" not in self.log_path.read_text(errors="replace"):
                    raise
                shutil.rmtree(self._folder / "data", ignore_errors=True)
                self.log_path.unlink()

    def _write_properties(self, ports: Mapping[str, int]) -> None:
        written = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in self._protocols.items()),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}",
            "log.dirs": str(self._folder / "data"),
            **self._properties,
        }
        appended = "".join(f"{key}={_escaped(value)}\n" for key, value in written.items())
        self._properties_path.write_text((KAFKA_FOLDER / "server.properties").read_text() + "\n" + appended)

    def _format(self) -> None:
        # Kafka spells ids in URL-safe base64, which may begin with `-` and would then be read as an option.
        cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        arguments = ("format", "--standalone", "-t", cluster_id, "-c", str(self._properties_path))
        done = subprocess.run(
            self._java_call("kafka.tools.StorageTool", *arguments, *self._format_arguments),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise KafkaBrokerError(f"formatting the data folder failed: {done.stdout}{done.stderr}")

    def _launch(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._java_call("kafka.Kafka", str(self._properties_path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its own process group, killed as a whole; Ctrl-C is for pytest
            )
        # atexit does not run when a test's time limit ends the process. The watcher's standard input is a pipe that
        # we alone hold: when we die in whatever way, `read` sees its end, the broker is killed and its folder removed.
        self._watcher = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                'read -r _; kill -9 "-$1"; rm -rf "$2"',
                "watcher",
                str(self._process.pid),
                str(self._folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _await_service(self, deadline: float) -> None:
        unready: str | None = "it was not asked yet"

        def serves() -> bool:
            # Asked in raw requests: librdkafka's admin client crashes the process when a coordinator that is still
            # loading answers NOT_COORDINATOR to its question for offsets.
            nonlocal unready
            try:
                with WireConnection(self.bootstrap_servers) as connection:
                    unready = self._why_not_ready(connection)
            except OSError as error:
                unready = f"connection to {self.bootstrap_servers}: {error}"
            if unready is not None and not self.is_running:
                raise self._failure(f"the broker ended while starting ({unready})")
            return unready is None

        try:
            wait_until(serves, deadline - time.monotonic())
        except AssertionError:
            message = f"the broker did not serve groups within {START_TIMEOUT_S:.0f} s ({unready})"
            raise self._failure(message) from None

    def _why_not_ready(self, connection: WireConnection) -> str | None:
        """None once the broker counts as alive in its own metadata and the coordinator of a new group answers."""
        cluster = connection.exchange("describe_cluster", 0, {"include_cluster_authorized_operations": False}).response
        if not cluster["brokers"]:
            return "the cluster has no living broker yet"
        # The first question for a coordinator creates __consumer_offsets; offsets are answered once it is loaded.
        asked: dict[str, Json] = {"key_type": 0, "coordinator_keys": [PROBE_GROUP]}
        found = connection.exchange("find_coordinator", 4, asked).response["coordinators"]
        group: dict[str, Json] = {"group_id": PROBE_GROUP, "topics": []}
        fetched = connection.exchange("offset_fetch", 8, {"groups": [group], "require_stable": False}).response[
            "groups"
        ]
        errors = [answer["error_code"] for answer in _rows(found) + _rows(fetched)]
        return None if errors == [0, 0] else f"FindCoordinator and OffsetFetch answer with error codes {errors}"

    def _java_call(self, main_class: str, *arguments: str) -> list[str]:
        return [self._java, *JVM_OPTIONS, *self._jvm_options, "-cp", f"{self._libs}/*", main_class, *arguments]

    def _failure(self, what: str) -> KafkaBrokerError:
        return KafkaBrokerError(f"Kafka {self.version}: {what}; the end of its log:\n{self.log_tail()}")

    @property
    def _properties_path(self) -> Path:
        return self._folder / "server.properties"


def _rows(value: Json) -> list[dict[str, Json]]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
