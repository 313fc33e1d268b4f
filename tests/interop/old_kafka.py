"""An Apache Kafka of the time of ZooKeeper, for the classic protocol on clusters that are not upgraded."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.kafka_broker import PROBE_GROUP, KafkaBroker
from tests.interop.kafka_libs import KAFKA_FOLDER
from tests.interop.kafka_wire import Json, WireConnection

OLDEST_VERSION: Final = "2.4.1"
"""The ZooKeeper client of older ones resolves no address under Java 14 and later."""
_NOT_THERE_YET: Final = ("process.roles", "node.id", "controller.", "share.", "group.consumer.")
"""Settings of server.properties that belong to KRaft, or to groups of Kafka 4."""


class OldKafka(KafkaBroker):
    """One broker with its ZooKeeper, in one process group: whatever ends the broker ends both."""

    def __init__(self) -> None:
        super().__init__(version=OLDEST_VERSION)

    def _write_properties(self, ports: Mapping[str, int]) -> None:
        shared = [
            line
            for line in (KAFKA_FOLDER / "server.properties").read_text().splitlines()
            if not line.startswith(_NOT_THERE_YET)
        ]
        own = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']}",
            "zookeeper.connect": f"127.0.0.1:{ports['CONTROLLER']}",
            "log.dirs": str(self._folder / "data"),
        }
        self._properties_path.write_text("\n".join([*shared, *(f"{key}={value}" for key, value in own.items()), ""]))
        keeper = {
            "dataDir": str(self._folder / "zookeeper"),
            "clientPort": str(ports["CONTROLLER"]),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
        self._keeper_path.write_text("".join(f"{key}={value}\n" for key, value in keeper.items()))

    def _format(self) -> None:
        """Nothing is formatted: the broker registers itself."""

    def _java_call(self, main_class: str, *arguments: str) -> list[str]:
        keeper = super()._java_call("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._keeper_path))
        keeper.insert(1, "-Dzookeeper.jmx.log4j.disable=true")
        broker = super()._java_call(main_class, *arguments)
        return ["/bin/sh", "-c", f"{shlex.join(keeper)} & exec {shlex.join(broker)}"]

    def _why_not_ready(self, connection: WireConnection) -> str | None:
        asked: dict[str, Json] = {"key": PROBE_GROUP, "key_type": 0}
        code = connection.exchange("find_coordinator", 1, asked).response["error_code"]
        return None if not code else f"FindCoordinator answers with error code {code}"

    @property
    def _keeper_path(self) -> Path:
        return self._folder / "zookeeper.properties"
