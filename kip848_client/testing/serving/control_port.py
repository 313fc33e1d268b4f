"""The control port: an HTTP server whose every call is ``POST /room/method`` with a JSON object. No meaning of calls.

::

    curl -d '{"name": "orders", "partitions": 6}' http://127.0.0.1:9640/topics/create

``GET /`` lists the calls, ``GET /openapi.json`` describes them, and ``GET /health`` tells whether the broker serves.
"""

from __future__ import annotations

import difflib
import hmac
import ipaddress
import json
import socket
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Final, Self

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

_BODY_MAX: Final = 16 * 2**20
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
        if token is None and not _is_loopback(host):
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
        self._host: Final = f"[{host}]" if ":" in host else host
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

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away, as one does whose time for a wait is over."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # a socket, as it came


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 300
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one packet

    controls: Controls
    calls: dict[str, Call]
    token: str | None

    def do_GET(self) -> None:
        """Answer what the port says of itself."""
        if self._body() is None:
            return
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
        body = self._body()
        if body is None or not self._allowed():
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

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers:
            status, problem = 411, "the body must have a Content-Length; it is not read in chunks"
        elif not (length.isascii() and length.isdecimal()):
            status, problem = 400, f"Content-Length: {length!r} is not a number of bytes"
        elif int(length) > _BODY_MAX:
            status, problem = 413, f"the body has {length} bytes; at most {_BODY_MAX} are read"
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            status, problem = 400, f"the body ended after {len(body)} of {length} bytes"
        self.close_connection = True
        self._refuse(status, "BadRequest", problem)
        return None

    def _allowed(self) -> bool:
        """Refuse callers without the token; if there is none, web pages, which name another host or their origin."""
        if self.token is not None:
            given = self.headers.get("Authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                return True
            self._refuse(
                401, "Unauthorized", "give the token: Authorization: Bearer TOKEN", **{"WWW-Authenticate": "Bearer"}
            )
            return False
        host = self.headers.get("Host", "")
        if "Origin" in self.headers or not _is_loopback(host.rpartition(":")[0].strip("[]") or host):
            self._refuse(
                403, "Forbidden", "without a token only programs on this machine may call, under a loopback name"
            )
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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Stay silent: standard error belongs to the command."""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
