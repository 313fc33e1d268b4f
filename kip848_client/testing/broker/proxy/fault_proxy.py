"""`FaultProxy`: injects faults of `kip848_client.testing.faults` into requests to a real Kafka cluster.

Owns the listeners: one for each broker that clients learn of, so that they stay behind the proxy. `relay` handles the
frames, `stand_ins` replaces the addresses.
"""

from __future__ import annotations

import itertools
import socket
from functools import partial
from types import TracebackType
from typing import Final, Self

from kip848_client.common.addresses import parse_bootstrap
from kip848_client.common.clock import SystemClock
from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.faults import Faults
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.broker.net.request_log import RequestLog
from kip848_client.testing.broker.net.server import Server
from kip848_client.testing.broker.proxy.relay import Relay
from kip848_client.testing.broker.topics.topic_names import KnownTopics
from kip848_client.testing.faults import Action, Subject

_LOOPBACK: Final = "127.0.0.1"

_Address = tuple[str, int]


class FaultProxy:
    """Relays requests from clients to a Kafka cluster, on loopback, and applies fault rules to them.

    Requests and answers without a matching rule pass unchanged, except that the addresses of brokers are replaced and
    API versions that we cannot read are not offered to clients. Requests of an unknown API can be dropped, delayed,
    held and closed, but not answered with an error.

    Plain TCP on both sides; SASL passes through, TLS does not.

    Args:
        bootstrap_servers: ``host:port`` of the cluster, several with commas between.
        port: where the proxy stands in for the first of them; 0 takes a free one, as it does for all others.

    Attributes:
        faults: see `EmbeddedBroker.faults`; here ``node_id=`` says which broker a request goes to.
        requests: see `EmbeddedBroker.requests`.

    Raises:
        ConfigError: no such address; from `start`: the port is taken.

    Example::

        with FaultProxy("localhost:9092") as proxy:
            proxy.faults.on("OffsetCommit", lose_reply(), group="billing")
            run_my_service(proxy.bootstrap_servers)
    """

    def __init__(self, bootstrap_servers: str, *, port: int = 0) -> None:
        self._port: Final = port
        self._numbers: Final = itertools.count(1)
        self._bootstrap: Final = [(each.host, each.port) for each in parse_bootstrap(bootstrap_servers)]
        self._config: Final = BrokerConfig()
        self._clock: Final = SystemClock()
        self._topics: Final = KnownTopics()
        self._thread: LoopThread | None = None
        self._servers: Final[dict[_Address, Server]] = {}
        self._relays: Final[dict[_Address, Relay]] = {}
        self._ports: Final[dict[_Address, int]] = {}
        self.requests: Final = RequestLog(
            entries_max=self._config.request_log_entries_max,
            bytes_max=self._config.request_log_bytes_max,
            clock=self._clock,
            topic_name=self._topics,
        )
        self.faults: Final = Faults(clock=self._clock, topic_name=self._topics, on_fault=self._fault_injected)

    def start(self) -> Self:
        """Listen. The cluster need not be there yet.

        Raises:
            IllegalStateError: it is already running.
        """
        if self._thread is not None:
            raise IllegalStateError("the proxy is already running")
        thread = LoopThread("kip848-proxy")
        self._thread = thread
        self.faults._attach(thread.loop)
        try:
            for address in self._bootstrap:
                thread.call(partial(self._listen_for, address))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Close every connection and listener. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.refuse_own_thread()
        try:
            thread.call(self.faults._detach)
            for server in self._servers.values():
                thread.run(server.stop())
            for relay in self._relays.values():
                thread.call(relay.close)
        finally:
            thread.stop()
            self._servers.clear()
            self._relays.clear()
            self._ports.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the proxy; it must run."""
        if self._thread is None:
            raise IllegalStateError("the proxy is not running; call start() or use it in a with statement")
        return ",".join(f"{_LOOPBACK}:{self._ports[address]}" for address in self._bootstrap)

    def disconnect(self) -> None:
        """Close all connections at once, also in the middle of a frame. Clients may connect again."""
        if self._thread is not None:
            for server in tuple(self._servers.values()):
                self._thread.call(server.disconnect)

    # --- internals, on the proxy's thread

    def _stand_in(self, node_id: int, host: str, port: int) -> _Address:
        address = (host, port)
        stand_in = self._listen_for(address)
        self._relays[address].node_id = node_id
        return _LOOPBACK, stand_in

    def _listen_for(self, address: _Address) -> int:
        """The port on which the proxy stands in for the broker at *address*."""
        known = self._ports.get(address)
        if known is not None:
            return known
        thread = self._thread
        assert thread is not None
        relay = Relay(
            *address,
            clock=self._clock,
            faults=self.faults,
            requests=self.requests,
            topics=self._topics,
            stand_in=self._stand_in,
        )
        server = Server(
            self._config,
            open_request=relay.open_request,
            encode=relay.encode,
            on_refused=lambda _: None,
            on_gone=relay.gone,
            numbers=self._numbers,
        )
        # It listens from here on, and is served one turn of the loop later; no client is refused meanwhile.
        port = self._port if address == self._bootstrap[0] else 0
        try:
            listening = socket.create_server((_LOOPBACK, port), backlog=512)
        except OSError as error:
            raise ConfigError(f"the proxy cannot listen on {_LOOPBACK}:{port}: {error.strerror}") from error
        self._relays[address], self._servers[address] = relay, server
        bound: int = listening.getsockname()[1]
        self._ports[address] = bound
        thread.loop.create_task(server.start(listening))
        return bound

    def _fault_injected(self, context: RequestContext, _subject: Subject, action: Action) -> None:
        self.requests._faulted(context, str(action))
