"""The exception for a refused request. It becomes an error code in the answer and never leaves the coordinator."""

from __future__ import annotations

from kip848_client.errors import ErrorCode, Kip848Error


class Refused(Kip848Error):
    """A request is refused. Nothing was changed.

    Args:
        code: Kafka's error code.
        message: the cause and the way out, for the client if the API has a field for it.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid_request(message: str) -> Refused:
    """INVALID_REQUEST: the client sent what the protocol does not allow."""
    return Refused(ErrorCode.INVALID_REQUEST, message)
