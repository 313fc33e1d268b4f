"""The proxy's own connection to a real broker: frames out, answers in. Knows of them nothing but correlation ids."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

_INT32: Final = struct.Struct(">i")
_CORRELATION_ID_AT: Final = 4
"""Place of the correlation id in a request, behind the API key and version."""
_CORRELATION_ID_MAX: Final = 2**31 - 1
_LENGTH_BYTES: Final = 4

OnAnswer = Callable[[bytes], None]


class Upstream(asyncio.Protocol):
    """One connection to *host*:*port*, opened when first needed. Lives on the proxy's loop.

    Args:
        on_lost: called once when it ends, or could not be opened.
    """

    def __init__(self, host: str, port: int, *, on_lost: Callable[[], None]) -> None:
        self._address: Final = (host, port)
        self._on_lost: Final = on_lost
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        self._waiting: Final[dict[int, OnAnswer]] = {}
        self._buffer = bytearray()
        self._correlation_id = 0
        self._ended = False

    def send(self, request: bytes, on_answer: OnAnswer | None) -> None:
        """Send the frame of a request, without its length, under a correlation id of ours.

        Args:
            on_answer: gets the frame of the answer, with that id; None for a request that has no answer.
        """
        if self._ended:
            return
        self._correlation_id = self._correlation_id + 1 if self._correlation_id < _CORRELATION_ID_MAX else 0
        if on_answer is not None:
            self._waiting[self._correlation_id] = on_answer
        start, rest = request[:_CORRELATION_ID_AT], request[_CORRELATION_ID_AT + 4 :]
        data = b"".join((_INT32.pack(len(request)), start, _INT32.pack(self._correlation_id), rest))
        if self._transport is not None:
            self._transport.write(data)
            return
        self._unsent.append(data)
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def close(self) -> None:
        """Close it; nothing is called any more."""
        self._ended = True
        self._waiting.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    @property
    def idle(self) -> bool:
        """Whether no answer is awaited."""
        return not self._waiting

    async def _open(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError:
            self._end()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is there: send what waits."""
        self._transport = cast("asyncio.Transport", transport)
        if self._ended:
            self._transport.abort()
            return
        self._transport.writelines(self._unsent)
        self._unsent.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker is gone."""
        self._end()

    def data_received(self, data: bytes) -> None:
        """Cut answers from what arrives."""
        buffer = self._buffer
        buffer += data
        start = 0
        while not self._ended and len(buffer) - start >= _LENGTH_BYTES:
            stop = start + _LENGTH_BYTES + _INT32.unpack_from(buffer, start)[0]
            if len(buffer) < stop:
                break
            answer = bytes(buffer[start + _LENGTH_BYTES : stop])
            start = stop
            on_answer = self._waiting.pop(_INT32.unpack_from(answer, 0)[0], None)
            if on_answer is not None:
                on_answer(answer)
        del buffer[:start]

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._waiting.clear()
            self._on_lost()
