"""The end of a request, the reason why a connection ended, and the network's words about it."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from typing import Final, TypeAlias

from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error, ProtocolError
from kip848_client.wire.schema import Response

if sys.platform == "win32":
    import ctypes

Answer: TypeAlias = Response | Kip848Error
"""The end of a request: the answer, with or without error codes, or the reason why there is none."""

_WINSOCK_ERRORS: Final = 10_000
"""The numbers of errors of Windows' sockets begin here."""


class ConnectionEnd:
    """Why a connection ended; makes a new exception for each caller."""

    __slots__ = ("cause", "reason", "refused", "violation")

    def __init__(
        self, reason: str, *, violation: bool = False, refused: bool = False, cause: BaseException | None = None
    ) -> None:
        self.reason: str = reason
        self.refused: bool = refused
        """The peer refused our certificate or credentials, or we refused its."""
        self.violation: bool = violation
        """The peer broke the protocol, not the network, and not we by closing."""
        self.cause: BaseException | None = cause

    def failure(self) -> AuthenticationError | ProtocolError | ConnectionLostError:
        """The exception for a caller; new each time, because several tasks may catch it."""
        kind = AuthenticationError if self.refused else ProtocolError if self.violation else ConnectionLostError
        failure = kind(self.reason)
        failure.__cause__ = self.cause
        return failure


def told(failure: BaseException) -> str:
    """The text of *failure*; asyncio hides "Connection refused" behind "Connect call failed"."""
    text = str(failure)
    if isinstance(failure, OSError) and not isinstance(failure, (ssl.SSLError, socket.gaierror)) and failure.errno:
        return _words_of(failure, failure.errno)
    return text or type(failure).__name__


def _words_of(failure: OSError, number: int) -> str:
    if sys.platform == "win32" and (failure.winerror or number >= _WINSOCK_ERRORS):
        return ctypes.FormatError(failure.winerror or number)
    return os.strerror(number)
