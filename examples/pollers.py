"""A fleet of pollers: each feed is polled by one of the processes, however many there are.

    python examples/pollers.py BOOTSTRAP FEED,FEED,... [SECONDS]

Start it several times. Stop one with Ctrl-C, or kill it: its feeds go on elsewhere. The price is made up; the store
below rejects what comes from a stale owner, as yours should.
"""

from __future__ import annotations

import random
import sys
import threading

from kip848_client import OwnedUnit, Worker


class Store:
    """Keeps one price per feed; a write with an older token than the last one is refused."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._lock = threading.Lock()  # each feed has a thread

    def write(self, feed: str, price: float, *, token: int) -> bool:
        """Whether the price was taken."""
        with self._lock:
            if token < self._tokens.get(feed, 0):
                return False
            self._tokens[feed] = token
            print(f"{feed} {price:.4f} token {token}", flush=True)
            return True


def main(bootstrap: str, feeds: str, pause: str = "1") -> None:
    store = Store()
    worker = Worker({"bootstrap.servers": bootstrap, "group.id": "feeds"}, units=feeds.split(","))

    @worker.runner
    def poll(owned: OwnedUnit, stop: threading.Event) -> None:
        while not stop.is_set():
            store.write(owned.name, 1 + random.random(), token=owned.token)
            stop.wait(float(pause))

    with worker:
        try:
            worker.wait()
        except KeyboardInterrupt:
            print("leaving; the others take over", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
