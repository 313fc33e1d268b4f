"""What importing a consumer and starting a command load: only what they use. How long: benchmarks/imports.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kip848_client import EmbeddedBroker

WHEN_NEEDED = {
    "kip848_client.aio",
    "kip848_client.testing.broker",
    "kip848_client.network.credentials",
    "kip848_client.testing.coordinator",
    "kip848_client.member.classic.classic_protocol",
    "kip848_client.testing.simulation",
    "kip848_client.wire.sasl",
    "kip848_client.wire.sasl.authentication",
    "kip848_client.wire.compiler.explain",
    "kip848_client.wire.sasl.scram",
    "kip848_client.wire.sasl.session",
    "kip848_client.wire.tls",
    "anyio.lowlevel",
    "anyio.streams.tls",
    "ctypes",
    "importlib.metadata",
    "json",
    "kip848_client.member.processing.core",
    "kip848_client.wire.record_batch",
    "opentelemetry",
    "pkgutil",
    "tempfile",
    "tenacity",
}
"""Modules for a first login, encrypted connection, retry, wrong value, event loop, broker or classic group."""

PROGRAM = """
import sys
import confluent_kafka
theirs = set(sys.modules)
import kip848_client
kip848_client.Consumer
print("\\n".join(set(sys.modules) - theirs))
"""


def test_a_consumer_loads_nothing_that_a_plain_one_does_not_need() -> None:
    """Command lines and workers start with this import; whatever slips into it is paid for by every one of them."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "kip848_client.consumer.consumer" in loaded
    assert not loaded & WHEN_NEEDED


INTERRUPTED = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "datetime":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
try:
    from kip848_client import Consumer
except KeyboardInterrupt:
    print("raised")
"""


def test_a_key_press_during_the_import_is_not_lost() -> None:
    """msgspec's C code swallows it there: the program went on until it was killed."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout == "raised\n"


COMMAND = """
import atexit
import sys
from kip848_client.cli import main
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("command", "not_needed"),
    [
        ("", {"asyncio", "importlib.metadata", "msgspec", "kip848_client.tools.commands.groups"}),
        ("groups list", {"confluent_kafka", "kip848_client.consumer.consumer", "kip848_client.tools.recorder"}),
        ("topics list", {"confluent_kafka", "kip848_client.consumer.consumer", "kip848_client.testing.broker.broker"}),
        ("report", {"confluent_kafka", "kip848_client.consumer.consumer", "kip848_client.testing.simulation"}),
        (
            "sweep",
            {"confluent_kafka", "kip848_client.consumer.consumer", "kip848_client.testing.simulation", "pyspark"},
        ),
        ("broker", {"asyncio", "kip848_client.testing.broker.broker", "kip848_client.testing.coordinator"}),
    ],
)
def test_a_command_starts_without_what_others_need(command: str, not_needed: set[str]) -> None:
    """A person would wait for a second at every --help, completion or typing error."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *command.split(), "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("usage: kip848")
    loaded = set(done.stderr.split())
    assert "kip848_client.cli" in loaded
    assert not loaded & not_needed


POLLING = """
import sys
import threading
from kip848_client import Consumer

found = []

class Noting:
    def find_spec(name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            found.append(name)

with Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": sys.argv[2]}) as consumer:
    consumer.subscribe(["orders"])
    sys.meta_path.insert(0, Noting)
    while (message := consumer.poll(0.05)) is None or message.value() != b"tea":
        pass
print(found, {"encodings.idna"} & set(sys.modules))
"""


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_poll_imports_nothing_on_the_thread_of_the_application(protocol: str) -> None:
    """Python may lose a Ctrl-C that comes during an import: the program would go on as if it had not been pressed.

    What the other thread imports delays the first record, so that is nothing that takes long.
    """
    with EmbeddedBroker({"orders": 1}) as broker:
        command = [sys.executable, "-c", POLLING, broker.bootstrap_servers, protocol]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            broker.requests.wait_for("Fetch")
            broker.produce("orders", b"tea")
            assert process.communicate()[0] == "[] set()\n"
