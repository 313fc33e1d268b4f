"""Why a connection ended, and what the network said about it. Used by `connection` only."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from kip848_client.errors import AuthenticationError, ConnectionLostError, ProtocolError

__all__ = ["ConnectionEnd", "told"]


class ConnectionEnd:
    """Why a connection ended; makes a new exception for each who asks."""

    __slots__ = ("cause", "reason", "refused", "violation")

    def __init__(
        self, reason: str, *, violation: bool = False, refused: bool = False, cause: BaseException | None = None
    ) -> None:
        self.reason = reason
        self.refused = refused
        """The peer refused our certificate or credentials, or we refused its."""
        self.violation = violation
        """The peer broke the protocol, as against the network or us closing."""
        self.cause = cause

    def throw(self) -> NoReturn:
        """Raise what the end means to a caller, new each time: several tasks may catch it."""
        if self.refused:
            raise AuthenticationError(self.reason) from self.cause
        raise (ProtocolError if self.violation else ConnectionLostError)(self.reason) from self.cause


def told(failure: BaseException) -> str:
    """What *failure* says; anyio hides the reason of a refused connection in its cause."""
    cause: Any = failure.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    told: BaseException = cause or failure
    if type(told).__module__ == "builtins" and isinstance(told, OSError) and told.errno:
        return os.strerror(told.errno)  # asyncio's own text hides "Connection refused" behind "Connect call failed"
    return str(told) or type(told).__name__
