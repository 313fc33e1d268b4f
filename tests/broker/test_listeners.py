"""Several listeners: each tells its clients addresses that they can reach."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing import EmbeddedBroker, Listener
from kip848_client.testing.commands.broker import parse_listener


def test_clients_are_told_the_addresses_of_the_listener_that_they_came_to() -> None:
    """In a compose file, containers reach the broker by its name, and the host by a published port."""
    inside, outside = Listener(), Listener(advertised_host="localhost")
    with EmbeddedBroker({"orders": 4}, nodes=2, listeners=[inside, outside]) as broker:
        ports = broker.nodes[1].port, broker.nodes[2].port
        assert _told(broker.bootstrap_servers) == {("127.0.0.1", port) for port in ports}
        assert _told(f"localhost:{_port_of(broker, 1)}") == {
            ("localhost", _port_of(broker, 1)),
            ("localhost", _port_of(broker, 2)),
        }
        broker.nodes.stop(2)
        broker.nodes.start(2)
        assert len(_told(f"localhost:{_port_of(broker, 2)}")) == 2


def test_the_published_port_is_told_where_it_differs() -> None:
    """``docker run -p 19092:9092``: clients of the host connect to 19092."""
    with EmbeddedBroker(listeners=[Listener(advertised_host="kafka", advertised_port=19092)]) as broker:
        assert broker.bootstrap_servers == "kafka:19092"
        assert _told(f"127.0.0.1:{broker.port}") == {("kafka", 19092)}
    assert parse_listener("0.0.0.0:9092=localhost:19092") == Listener("0.0.0.0", 9092, "localhost", 19092)
    with pytest.raises(ConfigError, match="the advertised address ':19092' is not host:port"):
        parse_listener("0.0.0.0:9092=:19092")
    with pytest.raises(ConfigError, match="the advertised address 'localhost' is not host:port"):
        parse_listener("0.0.0.0:19092=localhost")


def test_the_free_port_of_a_further_listener_can_be_learned_and_is_kept() -> None:
    """A port that no client can know of serves none; and after a restart it would be another one, or refused."""
    broker = EmbeddedBroker(listeners=[Listener(), Listener(advertised_host="localhost")])
    with pytest.raises(IllegalStateError, match=r"call that first"):
        _ = broker.bootstrap_servers
    with broker:
        _, second = told = broker.all_bootstrap_servers
        assert second == f"localhost:{_port_of(broker, 1)}"
        broker.stop()
        broker.start()
        assert broker.all_bootstrap_servers == told
        assert _told(second) == {("localhost", _port_of(broker, 1))}


def test_a_network_is_trusted_only_on_demand() -> None:
    """A broker that everybody reaches without a login is never a default."""
    with pytest.raises(ConfigError, match="--allow-anonymous"):
        EmbeddedBroker(listeners=[Listener("0.0.0.0", advertised_host="kafka")], allow_remote=True)
    EmbeddedBroker(listeners=[Listener("0.0.0.0", advertised_host="kafka")], allow_remote="anonymous")


def _told(bootstrap_servers: str) -> set[tuple[str, int]]:
    metadata = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=10)
    return {(str(broker.host), broker.port) for broker in metadata.brokers.values()}


def _port_of(broker: EmbeddedBroker, node_id: int) -> int:
    return broker._on_loop(lambda state: state.nodes[node_id].endpoint(1).port)
