"""The control port: an HTTP server whose every call is ``POST /room/method`` with a JSON object. No meaning of calls.

::

    curl -d '{"name": "orders", "partitions": 6}' http://127.0.0.1:9640/topics/create

``GET /`` lists the calls, ``GET /openapi.json`` describes them, and ``GET /health`` tells whether the broker serves.

A body is read only after all that stands before it was found right. Connections that ask for nothing that they may
have hold a thread and a few kilobytes, and give way to others.
"""

from __future__ import annotations

import difflib
import hmac
import io
import json
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from kip848_client.common.addresses import host_in, in_url, is_loopback
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    Kip848Error,
    RequestTimeoutError,
    error_name,
)
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.serving.control_calls import Call, Controls, calls
from kip848_client.testing.serving.openapi import description

_CONNECTIONS_MAX: Final = 256
_HEAD_MAX: Final = 2**15
"""Bytes of the request line and all headers."""
_BODY_MAX: Final = 16 * 2**20
_LENGTH_DIGITS: Final = 19
_LARGE_BODY: Final = 2**18
_LARGE_BODIES_MAX: Final = 4
"""So many bodies of more than `_LARGE_BODY` bytes are read at once."""
_CHUNK: Final = 2**16
_GIVE_WAY_S: Final = 1.0
"""How long a connection that gives way may take to end."""
_UNREAD_S: Final = 1.0
"""How long a body that is not wanted may still arrive. Closing the connection before would destroy the answer."""
_READ: Final = ("/", "/health", "/openapi.json")
_END_SEEN_S: Final = 0.1
"""The server looks so often whether it should end."""
_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (RequestTimeoutError, 504),
    (IllegalStateError, 409),
    (BrokerError, 409),
    (Kip848Error, 400),
    (ValueError, 400),
    (TypeError, 400),
)
"""Class of an error -> HTTP status; the first that fits."""


class ControlPort:
    """Serves the calls of a broker, on threads of its own, until it is left.

    Args:
        host, port: where to listen; port 0 takes a free one.
        token: if given, every request must have ``Authorization: Bearer TOKEN``.

    Raises:
        ConfigError: *host* is not loopback and there is no token, or the address cannot be taken.
    """

    def __init__(self, broker: EmbeddedBroker, host: str, port: int, *, token: str | None = None) -> None:
        if token is None and not is_loopback(host):
            raise ConfigError(
                f"--control {host}: this port rules the broker; on an address that is not loopback it needs "
                "--control-token-file"
            )
        controls, table = Controls(broker), calls()

        handler = type("Handler", (_Handler,), {"controls": controls, "calls": table, "token": token})
        server_class = type("Server", (_Server,), {"address_family": socket.AF_INET6}) if ":" in host else _Server
        try:
            self._server = server_class((host, port), handler)
        except OSError as error:
            raise ConfigError(f"--control {host}:{port}: {error.strerror or error}") from error
        self._host: Final = in_url(host)
        self._thread: Final = daemon_thread(self._server.serve_forever, "kip848-control", _END_SEEN_S)

    @property
    def url(self) -> str:
        """Where it serves: ``http://host:port``."""
        return f"http://{self._host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a call that waits for a group must not hold up the end of the broker
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots: Final = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        self._large_bodies: Final = threading.BoundedSemaphore(_LARGE_BODIES_MAX)
        self._lock: Final = threading.Lock()
        self._idle: Final[dict[socket.socket, None]] = {}
        """Connections without a request that is served, in the order in which they became idle."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve one more connection; if there are too many, in place of the one that has been idle for longest."""
        if not self._slots.acquire(blocking=False) and not (
            self._end_an_idle_one() and self._slots.acquire(timeout=_GIVE_WAY_S)
        ):
            with suppress(OSError):
                request.settimeout(_END_SEEN_S)
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.begins(request)
            self._slots.release()

    def awaits(self, connection: socket.socket) -> None:
        """The connection has no request from now on."""
        with self._lock:
            self._idle[connection] = None

    def begins(self, connection: socket.socket) -> bool:
        """A request of the connection is served from now on; returns False if the connection had to give way."""
        with self._lock:
            return self._idle.pop(connection, self) is None

    def _end_an_idle_one(self) -> bool:
        with self._lock:
            idle = next(iter(self._idle), None)
            if idle is None:
                return False
            del self._idle[idle]
            with suppress(OSError):  # its other side has ended it already
                idle.shutdown(socket.SHUT_RDWR)
        return True

    @contextmanager
    def room_for(self, body_bytes: int) -> Iterator[bool]:
        """Whether a body of that size may be read now."""
        if body_bytes <= _LARGE_BODY:
            yield True
        elif self._large_bodies.acquire(blocking=False):
            try:
                yield True
            finally:
                self._large_bodies.release()
        else:
            yield False

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away, as one does whose time for a wait is over."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # a socket, as it came


class _Reader(io.BufferedReader):
    """What a connection sends; `head_left` bytes may come as lines."""

    head_left = _HEAD_MAX

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read one line, as the base class of the handler does for the request line and each header."""
        if self.head_left <= 0:
            raise LineTooLong("header")
        line = super().readline(min(size, self.head_left) if size is not None and size >= 0 else self.head_left)
        self.head_left -= len(line)
        return line


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 300
    disable_nagle_algorithm = True
    rbufsize = 0  # `setup` adds a buffer
    wbufsize = -1  # an answer is one packet

    server: _Server
    rfile: _Reader
    controls: Controls
    calls: dict[str, Call]
    token: str | None

    def setup(self) -> None:
        """Read with a bound on lines."""
        super().setup()
        self.rfile = _Reader(self.rfile)

    def handle_one_request(self) -> None:
        """Wait for the next request, and answer it."""
        self.server.awaits(self.connection)
        self.rfile.head_left = _HEAD_MAX
        self._unread = math.inf  # until its headers say how many bytes its body has
        super().handle_one_request()

    def handle_expect_100(self) -> bool:
        """Go on; the client is told so when its body is wanted."""
        return True

    def parse_request(self) -> bool:
        """Read the headers."""
        readable = super().parse_request()
        if readable:
            lengths = self.headers.get_all("Content-Length", ["0"])
            self._unread = math.inf if "Transfer-Encoding" in self.headers else max(map(_as_length, lengths))
        return readable

    def do_GET(self) -> None:
        """Answer what the port says of itself."""
        if self.path == "/health":
            running = self.controls.broker.running
            self._answer(200 if running else 503, {"serving": running})
        elif self._allowed():
            if self.path == "/":
                self._answer(200, {path: call.text.partition("\n")[0] for path, call in self.calls.items()})
            elif self.path == "/openapi.json":
                self._answer(200, description(self.calls, with_token=self.token is not None))
            elif self._call() is not None:
                self._wrong_method("POST")
            else:
                self._refuse(404, "NotFound", f"there is no {self.path}; GET / lists all calls")

    do_HEAD = do_GET  # noqa: N815  # the base class's name

    def do_POST(self) -> None:
        """Perform a call."""
        if not self._allowed():
            return
        call = self._call()
        if call is None:
            if self.path in _READ:
                self._wrong_method("GET, HEAD")
            else:
                near = difflib.get_close_matches(self.path.strip("/"), self.calls, n=1)
                hint = f"did you mean /{near[0]}?" if near else "GET / lists all calls"
                self._refuse(404, "NotFound", f"there is no call {self.path}; {hint}")
            return
        length = self._length()
        if length is None:
            return
        with self.server.room_for(length) as there_is_room:
            if not there_is_room:
                self._refuse(503, "Busy", f"{_LARGE_BODIES_MAX} large bodies are being read; send it again later")
                return
            body = self._read(length)
            if body is not None:
                self._perform(call, body)

    def _perform(self, call: Call, body: bytes) -> None:
        try:
            result = call.run(self.controls, body)
        except Exception as error:  # noqa: BLE001  # a connection that breaks would say nothing
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            code = error_name(error.code).partition("(")[0] if isinstance(error, BrokerError) else None
            self._refuse(status, type(error).__name__, str(error), code)
        else:
            self._answer(200, result)

    def _call(self) -> Call | None:
        return self.calls.get(self.path.strip("/"))

    def _wrong_method(self, allowed: str) -> None:
        self._refuse(405, "MethodNotAllowed", f"{self.command} {self.path}: use {allowed}", Allow=allowed)

    def _length(self) -> int | None:
        given = self.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in self.headers:
            self._refuse(411, "BadRequest", "the body must have a Content-Length; it is not read in chunks")
        elif len(given) > 1 or not (given[0].isascii() and given[0].isdecimal()):
            self._refuse(400, "BadRequest", f"Content-Length: {', '.join(given)[:100]!r} is not a number of bytes")
        elif self._unread > _BODY_MAX:
            self._refuse(413, "BadRequest", f"the body has {given[0][:100]} bytes; at most {_BODY_MAX} are read")
        else:
            return int(given[0])
        return None

    def _read(self, length: int) -> bytes | None:
        self._unread = 0
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
            self.wfile.flush()
        body = bytearray()
        while len(body) < length and (chunk := self.rfile.read1(min(_CHUNK, length - len(body)))):
            body += chunk
        if len(body) == length:
            return bytes(body)
        self.close_connection = True
        self._refuse(400, "BadRequest", f"the body ended after {len(body)} of {length} bytes")
        return None

    def _allowed(self) -> bool:
        """Refuse callers without the token; if there is none, web pages, which name another host or their origin."""
        if self.token is not None:
            scheme, _, given = self.headers.get("Authorization", "").partition(" ")
            as_sent = given.strip().encode("latin-1", "replace")  # the base class decoded it so
            if not (hmac.compare_digest(as_sent, self.token.encode()) and scheme.lower() == "bearer"):
                self._refuse(
                    401, "Unauthorized", "give the token: Authorization: Bearer TOKEN", **{"WWW-Authenticate": "Bearer"}
                )
                return False
        else:
            host = self.headers.get("Host", "")
            if "Origin" in self.headers or not is_loopback(host_in(host)):
                self._refuse(
                    403, "Forbidden", "without a token only programs on this machine may call, under a loopback name"
                )
                return False
        if not self.server.begins(self.connection):
            self.close_connection = True
            return False
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the base class cannot read, or has no method for."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._wrong_method("GET, HEAD" if self.path in _READ else "POST")
        else:
            self._refuse(code, "BadRequest", message or HTTPStatus(code).phrase)

    def _refuse(self, status: int, error: str, message: str, code: str | None = None, **headers: str) -> None:
        said = {"error": error, "message": message} | ({} if code is None else {"code": code})
        self._answer(status, said, headers)

    def _answer(self, status: int, value: object, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.close_connection |= self._unread > 0
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        self._skip_body()

    def _skip_body(self) -> None:
        ends_s = time.monotonic() + _UNREAD_S
        with suppress(OSError):
            while self._unread > 0 and (left_s := ends_s - time.monotonic()) > 0:
                self.connection.settimeout(left_s)
                chunk = self.rfile.read1(_CHUNK)
                self._unread = self._unread - len(chunk) if chunk else 0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Stay silent: standard error belongs to the command."""


def _as_length(text: str) -> float:
    """A Content-Length; infinity if it is none, or so long that nothing is read of it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LENGTH_DIGITS else math.inf
