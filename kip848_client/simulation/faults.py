"""What can go wrong in a simulated network, as plain numbers.

Does not own what is done to a chosen request (`kip848_client.faults`, by `refusals`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """Probabilities per message, and delays.

    Args:
        loss: a request, or an answer, disappears; the sender waits for its time-out.
        duplicate: a request arrives a second time, later; what it answers is dropped.
        break_connection: the connection breaks after the request was written, so nobody knows whether it was applied.
        delay_ms: (least, most) of one way, drawn evenly.
        slow: this part of the messages takes ten times as long.
        stuck: this part of the messages takes up to ten heartbeat intervals.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    break_connection: float = 0.0
    delay_ms: tuple[int, int] = (0, 2)
    slow: float = 0.0
    stuck: float = 0.0


HEALTHY = NetworkFaults()
"""Nothing goes wrong."""
