"""The demo's story, act by act: who joins, who leaves, who is killed, and when the next act may begin.

Each act waits for what it set off (every member stable, all partitions owned) and not for a time; then the picture is
left standing for a moment so that a person can read it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Final

from demo.processes import Ended, News, Workers
from demo.producer import FlightProducer
from demo.scene import Fate, Scene
from demo.table import Screen
from kip848_client.errors import Kip848Error
from kip848_client.journal import JournalEvent

ACT_TIMEOUT_S: Final = 30.0
KILL_WAIT_S: Final = 3.0
ACTS: Final = 6
SECONDS_OF_WAITING: Final = 7.0
"""Time of the story besides its pauses: four process starts, the session timeout, four rebalances."""


class StoryStuckError(Kip848Error):
    """An act did not end in time, or a worker ended by itself. The message says what was seen."""


def story_s(dwell_s: float) -> float:
    """How long the story takes, about."""
    return ACTS * dwell_s + SECONDS_OF_WAITING


class Story:
    """Tells the story.

    Args:
        events: the coordinator's events, put there by the broker's thread.
        dwell_s: how long each act is left standing.
    """

    def __init__(
        self,
        scene: Scene,
        screen: Screen,
        workers: Workers,
        producer: FlightProducer,
        events: queue.SimpleQueue[JournalEvent],
        *,
        dwell_s: float,
    ) -> None:
        self._scene = scene
        self._screen = screen
        self._workers = workers
        self._producer = producer
        self._events = events
        self._dwell_s = dwell_s
        self._began_s = time.monotonic()

    @property
    def elapsed_ms(self) -> int:
        """Since the story began."""
        return int((time.monotonic() - self._began_s) * 1000)

    def tell(self) -> None:
        """Tell the story, and wait for the end of each act.

        Raises:
            StoryStuckError: an act did not come to its end.
            ProducerFailedError: a flight could not be produced.
        """
        first, second, third, fourth = (f"counter-{number}" for number in range(1, 5))
        self._act(f"{first} joins and gets every partition")
        self._join(first)
        self._settle(first)
        self._act(f"{second} joins: {first} gives up half and never stops reading")
        self._join(second)
        self._settle(first, second)
        self._act(f"{third} joins: both others give up as little as possible")
        self._join(third)
        self._settle(first, second, third)
        self._act(f"{second} leaves in order: it commits, and its partitions move at once")
        self._leave(second)
        self._settle(first, third)
        self._act(f"{third} is killed: its partitions rest until its session times out")
        self._kill(third)
        self._settle(first)
        self._act(f"{fourth} joins")
        self._join(fourth)
        self._settle(first, fourth)
        self._act("the rest of the flights is counted, then all leave")
        self._finish(first, fourth)
        self._scene.act = "all flights are counted"

    def _act(self, sentence: str) -> None:
        self._scene.act = sentence

    def _join(self, name: str) -> None:
        self._workers.start(name)
        self._scene.start(name, now_ms=_now_ms())

    def _settle(self, *names: str) -> None:
        self._wait(lambda: self._scene.settled(*names), f"{' and '.join(names)} share all partitions")
        until_s = time.monotonic() + self._dwell_s
        self._wait(lambda: time.monotonic() >= until_s, "the moment of showing is over")

    def _leave(self, name: str) -> None:
        self._workers[name].leave()
        self._scene.leave(name, now_ms=_now_ms())
        self._wait(lambda: self._scene.workers[name].fate is Fate.LEFT, f"{name} has left")

    def _kill(self, name: str) -> None:
        # Killed between counting and committing, if possible: that is when records come twice.
        worker = self._scene.workers[name]
        until_s = time.monotonic() + KILL_WAIT_S
        self._wait(lambda: worker.uncommitted or time.monotonic() >= until_s, f"{name} has counted something")
        self._workers[name].kill()
        self._scene.kill(name, now_ms=_now_ms())
        self._wait(lambda: worker.fate is Fate.REMOVED, f"the coordinator has removed {name}")

    def _finish(self, *names: str) -> None:
        self._producer.finish()
        self._wait(lambda: self._producer.done and self._scene.caught_up, "every flight is counted")
        for name in names:
            self._workers[name].leave()
            self._scene.leave(name, now_ms=_now_ms())
        self._wait(
            lambda: all(self._scene.workers[name].fate is Fate.LEFT for name in names),
            f"{' and '.join(names)} have left",
        )

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + ACT_TIMEOUT_S + self._dwell_s
        while True:
            self._listen()
            self._screen.show(self._scene, elapsed_ms=self.elapsed_ms)
            if reached():
                return
            if time.monotonic() >= deadline_s:
                raise StoryStuckError(f"waited {ACT_TIMEOUT_S:.0f} s in vain until {what}\n{self._describe()}")

    def _listen(self) -> None:
        """Handle all reports and events that came; wait a moment if there are none."""
        news = self._next_news()
        while news is not None:
            self._scene.hear(news, now_ms=_now_ms())
            if isinstance(news, Ended) and self._scene.workers[news.worker].fate is Fate.FAILED:
                raise StoryStuckError(f"{news.worker} ended by itself\n{self._describe()}")
            news = self._next_news(wait_s=0)
        while not self._events.empty():
            self._scene.note(self._events.get())
        self._scene.produced = self._producer.delivered

    def _next_news(self, wait_s: float = 0.02) -> News | None:
        try:
            return self._workers.news.get(timeout=wait_s) if wait_s else self._workers.news.get_nowait()
        except queue.Empty:
            return None

    def _describe(self) -> str:
        lines = [f"group: {self._scene.group_state}, epoch {self._scene.group_epoch}"]
        for worker in self._scene.workers.values():
            lines.append(f"{worker.name}: {worker.fate.value} {worker.state} owns {list(worker.owned)}")
            lines += [f"  {line}" for line in worker.stderr]
        return "\n".join(lines)


def _now_ms() -> int:
    return int(time.time() * 1000)
