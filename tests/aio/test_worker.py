"""AsyncWorker on asyncio and trio."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from kip848_client import AsyncWorker, EmbeddedBroker, OwnedUnit, Unit

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def test_runners_are_tasks_of_the_loop_and_units_move_between_workers(backend: str) -> None:
    """An application on asyncio or trio needs no threads of its own for its units."""
    log: list[str] = []

    async def main(bootstrap: str) -> None:
        def make(name: str) -> AsyncWorker:
            worker = AsyncWorker(
                {"bootstrap.servers": bootstrap, "group.id": "feeds", "worker.id": name}, units=["a", "b", "bad"]
            )

            @worker.runner
            async def run(owned: OwnedUnit, stop: anyio.Event) -> None:
                if owned.name == "bad":
                    raise ValueError("no such feed")
                log.append(f"{name} starts {owned.unit}")
                await stop.wait()
                log.append(f"{name} stops {owned.unit}")

            return worker

        with anyio.fail_after(30):
            async with make("w1") as first:
                assert await first.wait_for(lambda worker: len(worker.assignment()) == 3)
                async with make("w2") as second:
                    assert await second.wait_for(lambda worker: len(worker.assignment()) == 1)
                    assert await first.wait_for(lambda worker: len(worker.assignment()) == 2)
                assert await first.wait_for(lambda worker: Unit("bad") in worker.errors)
                assert await first.wait_for(lambda worker: len(worker.assignment()) == 3)

    with EmbeddedBroker(connect_groups=True) as broker:
        anyio.run(main, broker.bootstrap_servers, backend=backend)

    running: set[str] = set()
    for line in log:
        _, verb, unit = line.split()
        assert (unit in running) == (verb == "stops"), log
        running ^= {unit}
    assert not running


def test_callbacks_are_awaited(backend: str) -> None:
    """A service passes coroutine functions for start, stop and lost; each is awaited, with its units."""
    calls: list[tuple[str, list[str]]] = []

    async def start(worker: AsyncWorker, units: list[OwnedUnit]) -> None:
        await anyio.lowlevel.checkpoint()
        calls.append(("start", [str(owned.unit) for owned in units]))

    async def stop(worker: AsyncWorker, units: list[OwnedUnit]) -> None:
        await anyio.lowlevel.checkpoint()
        calls.append(("stop", [str(owned.unit) for owned in units]))

    async def main(bootstrap: str) -> None:
        conf = {"bootstrap.servers": bootstrap, "group.id": "feeds"}
        with anyio.fail_after(30):
            async with AsyncWorker(conf, units=["a", "b"], on_assigned=start, on_revoked=stop) as worker:
                assert await worker.wait_for(lambda worker: len(calls) == 1)

    with EmbeddedBroker(connect_groups=True) as broker:
        anyio.run(main, broker.bootstrap_servers, backend=backend)

    assert calls == [("start", ["a", "b"]), ("stop", ["a", "b"])]
