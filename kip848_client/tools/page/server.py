"""Serves the page by uvicorn, on sockets that are bound before anything else begins."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

import uvicorn

from kip848_client.errors import ConfigError
from kip848_client.tools.page.follower import Board
from kip848_client.tools.page.web import Page

_HEAD_MAX: Final = 2**15
_REQUESTS_MAX: Final = 256
_BACKLOG: Final = 128


class PageServer:
    """One server; `run` blocks.

    Args:
        port: 0 for a free one.

    Raises:
        ConfigError: the address is taken, or is none.
    """

    def __init__(self, board: Board, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._board = board
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(f"--listen {host}:{port}: {error.strerror or error}") from error
        self.port: Final = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def run(self, *, token: str | None = None, hosts: Iterable[str] | None = ()) -> None:
        """Serve until `stop`, Ctrl-C or SIGTERM; the arguments are those of `Page.app`."""
        page = Page(self._board, ending=lambda: self._is_stopped or server.should_exit)
        config = uvicorn.Config(
            page.app(token=token, hosts=hosts),
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            limit_concurrency=_REQUESTS_MAX,
            h11_max_incomplete_event_size=_HEAD_MAX,
            http="h11",
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
        self._server = server = uvicorn.Server(config)
        server.should_exit = self._is_stopped
        with contextlib.suppress(KeyboardInterrupt):  # it is raised again once all is closed
            server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`; any thread may call this."""
        self._is_stopped = True
        if self._server is not None:
            self._server.should_exit = True
