"""One blocking connection to a broker that speaks our own codec: requests out, answers in. No rule of any protocol."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kip848_client.common.addresses import parse_bootstrap
from kip848_client.testing.judge.broker.messages import message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, encode_request, frame
from kip848_client.wire.schema import Request, Response

TIMEOUT_S: Final = 120.0
"""How long an answer may take. Only what fails takes as long."""
ResponseT = TypeVar("ResponseT", bound=Response)


class RawConnection:
    """Sends requests one by one, or several before the first answer is read."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str | None = "raw",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        address, *_ = parse_bootstrap(bootstrap_servers)
        plain = socket.create_connection((address.host, address.port), timeout=timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket: Final = plain if tls is None else tls.wrap_socket(plain, server_hostname=address.host)
        self._client_id: Final = client_id
        self._sent: list[tuple[type[Request[Response]], int]] = []
        self._next_correlation_id = 0
        self._next_answer = 0

    def ask(self, request: Request[ResponseT], *, version: int) -> ResponseT:
        """Send one request and read its answer."""
        self.send(request, version=version)
        return self.read(request)

    def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Send the request of *api* with these *fields*, and read its answer; see `messages.message`."""
        return self.ask(message(api, fields), version=version)

    def send(self, request: Request[ResponseT], *, version: int) -> None:
        """Send one request; its answer is read later."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._sent.append((type(request), version))
        self.socket.sendall(
            frame(
                encode_request(request, api_version=version, correlation_id=correlation_id, client_id=self._client_id)
            )
        )

    def read(self, of: Request[ResponseT]) -> ResponseT:
        """Read the next answer, which must be the one to a request of the class of *of*.

        Raises:
            EOFError: the broker closed the connection.
        """
        cls, version = self._sent[self._next_answer]
        assert cls is type(of), f"the next answer belongs to a {cls.__name__}"
        correlation_id, response = decode_response(cls.WIRE.api_key, self.read_frame(), api_version=version)
        assert correlation_id == self._next_answer, "answers out of order"
        self._next_answer += 1
        return response  # type: ignore[return-value]  # the class that belongs to the request

    def read_frame(self) -> bytes:
        """Read one frame, without its length."""
        return self._read_exactly(int.from_bytes(self._read_exactly(4)))

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to close the connection without having sent anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return bytes(data)
