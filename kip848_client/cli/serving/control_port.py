"""The control port: an HTTP server whose every call is ``POST /room/method`` with a JSON object. No meaning of calls.

::

    curl -d '{"name": "orders", "partitions": 6}' http://127.0.0.1:9640/topics/create

``GET /`` lists the calls, ``GET /openapi.json`` describes them, and ``GET /health`` tells whether the broker serves.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from kip848_client.broker.broker import EmbeddedBroker
from kip848_client.cli.serving.control_calls import Call, Controls, calls
from kip848_client.cli.serving.openapi import description
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    Kip848Error,
    RequestTimeoutError,
    error_name,
)

__all__ = ["ControlPort"]

_BODY_MAX: Final = 16 * 2**20
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
                f"--control {host}: whoever reaches this port rules the broker; on an address that is not loopback it "
                "needs --control-token-file"
            )
        controls, table = Controls(broker), calls()

        handler = type("Handler", (_Handler,), {"controls": controls, "calls": table, "token": token})
        server_class = type("Server", (_Server,), {"address_family": socket.AF_INET6}) if ":" in host else _Server
        try:
            self._server = server_class((host, port), handler)
        except OSError as error:
            raise ConfigError(f"--control {host}:{port}: {error.strerror or error}") from error
        self._host: Final = f"[{host}]" if ":" in host else host
        self._thread: Final = threading.Thread(
            target=self._server.serve_forever, args=(_END_SEEN_S,), name="kip848-control", daemon=True
        )

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
        if self.path == "/health":
            running = self.controls.broker.running
            self._answer(200 if running else 503, {"serving": running})
        elif self._allowed():
            if self.path == "/":
                self._answer(200, {path: call.text.partition("\n")[0] for path, call in self.calls.items()})
            elif self.path == "/openapi.json":
                self._answer(200, description(self.calls, with_token=self.token is not None))
            else:
                self._refuse(404, "NotFound", f"GET {self.path}: there is /, /health and /openapi.json; calls are POST")

    def do_POST(self) -> None:
        """Perform a call."""
        body = self._body()
        if body is None or not self._allowed():
            return
        call = self.calls.get(self.path.strip("/"))
        if call is None:
            self._refuse(404, "NotFound", f"there is no call {self.path}; GET / lists them")
            return
        try:
            result = call.run(self.controls, body)
        except (Kip848Error, ValueError, TypeError) as error:
            status = next(status for kind, status in _STATUS if isinstance(error, kind))
            code = error_name(error.code).partition("(")[0] if isinstance(error, BrokerError) else None
            self._refuse(status, type(error).__name__, str(error), code)
        else:
            self._answer(200, result)

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _BODY_MAX or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self._refuse(411, "BadRequest", f"a request has a Content-Length of at most {_BODY_MAX} bytes")
            return None
        return self.rfile.read(int(length))

    def _allowed(self) -> bool:
        """Refuse who has no token; without one, pages of a browser, which name another host or their origin."""
        if self.token is not None:
            given = self.headers.get("Authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                return True
            self._refuse(401, "Unauthorized", "give the token: Authorization: Bearer TOKEN")
            return False
        host = self.headers.get("Host", "")
        if "Origin" in self.headers or not _is_loopback(host.rpartition(":")[0].strip("[]") or host):
            self._refuse(
                403, "Forbidden", "without a token only programs on this machine may call, under a loopback name"
            )
            return False
        return True

    def _refuse(self, status: int, error: str, message: str, code: str | None = None) -> None:
        self._answer(status, {"error": error, "message": message} | ({} if code is None else {"code": code}))

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
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
