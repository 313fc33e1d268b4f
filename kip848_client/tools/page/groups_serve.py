"""``kip848 groups serve``: a page that shows all groups of a cluster, live, and what went wrong with them.

It listens on this machine only, unless callers must give a token. It opens at once, also while the groups' history is
read and while the cluster is away, and says which of these it is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kip848_client.cli.shared.properties import read_properties
from kip848_client.common.addresses import in_url, is_loopback, parse_listen_address
from kip848_client.errors import ConfigError
from kip848_client.tools.groups.export import require_prometheus
from kip848_client.tools.page.follower import Board, Following, PageFollower
from kip848_client.tools.page.history import held

_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_KEEP: Final = re.compile(r"(\d{1,6})([mhd])")
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - for --listen :PORT only
_WITHOUT_FILE: Final = 500 * 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this action has."""
    parser.add_argument(
        "--listen", metavar="[HOST]:PORT", default="127.0.0.1:9850", help="where to serve the page (127.0.0.1:9850)"
    )
    parser.add_argument(
        "--group", metavar="PATTERN", action="append", default=[], help="these only: orders-*; may be repeated (all)"
    )
    parser.add_argument(
        "--groups-max", metavar="N", type=int, default=10_000, help="more groups are only counted (10000)"
    )
    parser.add_argument("--file", metavar="FILE", type=Path, help="keep what happened there (in a temporary file)")
    parser.add_argument("--keep", metavar="7d", default="7d", help="for how long: 90m, 12h, 7d (7d)")
    parser.add_argument(
        "--file-max",
        metavar="MB",
        type=int,
        help="delete the oldest when the file is larger (2000, or 500 without one)",
    )
    parser.add_argument(
        "--lag-every", metavar="SECONDS", type=float, default=3.0, help="how often to ask for the ends of topics (3)"
    )
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="callers must give the token in this file")
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="serve on an address that is not loopback without a token: everybody there sees all groups",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="also answer under this name, that of a proxy before it; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: an option is out of range, the address is taken, the file cannot be used, or the extra ``page`` is
            not installed.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"kip848 groups serve needs {package}: pip install 'kip848_client[page]'")
    require_prometheus("serve", "page")
    from kip848_client.tools.page.server import PageServer  # here: it needs the extra

    conf = read_properties(arguments)
    host, port = parse_listen_address(arguments.listen)
    if arguments.groups_max < 1 or not arguments.lag_every > 0 or not (arguments.file_max or 1) > 0:
        raise ConfigError("--groups-max, --lag-every and --file-max are above 0")
    token = None if arguments.token_file is None else _token(arguments.token_file)
    if not is_loopback(host) and token is None and not arguments.allow_anonymous:
        raise ConfigError(
            f"--listen {arguments.listen} is not loopback: give --token-file FILE, or let everybody there see all "
            "groups (--allow-anonymous)"
        )
    keep_ms = _keep_ms(arguments.keep)
    with _file(arguments.file) as file:

        def make() -> PageFollower:
            return PageFollower(
                conf,
                board,
                file=file,
                size_max=_size_max(arguments),
                keep_ms=keep_ms,
                groups=arguments.group,
                groups_max=arguments.groups_max,
                lag_every_s=arguments.lag_every,
                timeout_s=arguments.timeout,
            )

        board = Board()
        following = Following(board, make)
        with PageServer(board, host=host or _EVERY_ADDRESS, port=port) as server:
            hosts = arguments.allow_host if is_loopback(host) else None
            print(f"http://{in_url(host or 'localhost')}:{server.port}/", file=sys.stderr, flush=True)
            try:
                following.start(ended=server.stop, told=_tell)
                server.run(token=token, hosts=hosts)
            finally:
                following.stop()
    if following.refused is not None:
        raise following.refused
    return 0


def _keep_ms(text: str) -> int:
    found = _KEEP.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ConfigError(f"--keep {text}: a number with m, h or d, such as 7d")
    return int(found[1]) * _MS[found[2]]


def _size_max(arguments: argparse.Namespace) -> int:
    if arguments.file_max is not None:
        return int(arguments.file_max) * 10**6
    return 2 * 10**9 if arguments.file is not None else _WITHOUT_FILE


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path}: {error}") from error
    if not token:
        raise ConfigError(f"--token-file {path}: it is empty")
    return token


def _tell(text: str) -> None:
    print(f"kip848 groups serve: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _file(path: Path | None) -> Iterator[Path]:
    if path is not None:
        with held(path):
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="kip848-page-") as folder:
        yield Path(folder) / "groups.sqlite"
