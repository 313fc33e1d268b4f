"""Addresses of brokers and of what listens, as text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kip848_client.errors import ConfigError

_ADDRESS: Final = re.compile(r"(?:\[(?P<ipv6>[^\[\]\s]+)\]|(?P<host>[^\[\]:\s]*))(?::(?P<port>[0-9]{0,5}))?")
_KAFKA_PORT: Final = 9092


class BootstrapServer(msgspec.Struct, frozen=True):
    """Where a broker may be reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{in_url(self.host)}:{self.port}"


def parse_bootstrap(text: str, *, protocol: str = "plaintext") -> tuple[BootstrapServer, ...]:
    """Read ``bootstrap.servers``: addresses as of `parse_address`, separated by commas.

    Args:
        protocol: the only scheme that may stand before an address (``PLAINTEXT://localhost:9092``), in lower case.

    Raises:
        ConfigError: there is none, or one is wrong.
    """
    servers = []
    for entry in filter(None, map(str.strip, text.split(","))):
        scheme, separator, rest = entry.partition("://")
        if separator and scheme.lower() != protocol:
            raise ConfigError(
                f"bootstrap.servers entry {entry!r} does not fit security.protocol={protocol}; write {rest}"
            )
        servers.append(parse_address(rest if separator else entry, what="bootstrap.servers entry"))
    if not servers:
        raise ConfigError("bootstrap.servers is blank; give host:port, separated by commas")
    return tuple(servers)


def parse_address(text: str, *, what: str, default_port: int = _KAFKA_PORT) -> BootstrapServer:
    """Read ``HOST:PORT``, ``[IPV6]:PORT`` or ``HOST`` of what is connected to.

    Args:
        what: the name of the value, for errors.
        default_port: the port of an address that names none; with 0 such an address is refused.

    Raises:
        ConfigError: no host, or not a port.
    """
    if text.count(":") > 1 and not text.startswith("["):
        raise ConfigError(
            f"{what} {text!r} is not host:port; separate several with commas, and write an IPv6 address as "
            "[address]:port"
        )
    found = _ADDRESS.fullmatch(text)
    host = found and (found["ipv6"] or found["host"])
    port = int(found["port"] or default_port) if found else 0
    if not host or not 0 < port < 65536:
        raise ConfigError(f"{what} {text!r} is not host:port with a port of 1 to 65535; separate several with commas")
    return BootstrapServer(host, port)


def parse_listen_address(text: str, *, option: str = "--listen") -> tuple[str, int]:
    """Read ``HOST:PORT`` or ``[IPV6]:PORT`` of something that listens: no host is every address, port 0 a free one.

    Args:
        option: name of the argument in errors.

    Raises:
        ConfigError: no port, or not a port.
    """
    found = _ADDRESS.fullmatch(text)
    if not found or not found["port"] or int(found["port"]) > 65535:
        raise ConfigError(f"{option} {text!r} is not HOST:PORT or [IPV6]:PORT with a port of 0 to 65535")
    return found["ipv6"] or found["host"], int(found["port"])


def host_in(address: str) -> str:
    """The host of ``host:port``, ``[address]:port`` or ``host``, whatever else is wrong with it."""
    _, _, address = address.rpartition("://")
    host, colon, port = address.rpartition(":")
    return (host if colon and port.isdecimal() else address).strip("[]")


def in_url(host: str) -> str:
    """*host* as it stands before a colon and a port: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether *host* is certainly this machine; other names may resolve to anything."""
    import ipaddress  # here: few ask

    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
