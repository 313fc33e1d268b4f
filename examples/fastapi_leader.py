"""A FastAPI service of which exactly one replica does the background work.

    python examples/fastapi_leader.py BOOTSTRAP PORT

Start it several times, each on a port of its own, and ask each of them for ``/leader``. SIGTERM or Ctrl-C hands the
work over: another replica goes on a tenth of a second after this one has stopped.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import uvicorn
from fastapi import FastAPI, Response

from kip848_client import AsyncLeaderElection


def make_app(bootstrap: str) -> FastAPI:
    """The application of one replica."""
    rounds: list[int] = []
    election = AsyncLeaderElection({"bootstrap.servers": bootstrap, "group.id": "shop"}, name="expiry of carts")

    @election.runner
    async def expire_carts(token: int, stop: anyio.Event) -> None:  # a task of the application's loop
        while not stop.is_set():
            rounds.append(token)  # the work; hand the token to the store, which refuses one that is smaller
            with anyio.move_on_after(1):
                await stop.wait()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with election:
            yield
            await election.hand_over(10)

    app = FastAPI(lifespan=lifespan)

    @app.get("/leader")
    async def leader() -> dict[str, bool | int | None]:
        return {"leads": election.is_leader, "token": election.token, "rounds": len(rounds)}

    @app.get("/live")
    async def live() -> Response:
        return Response(status_code=200 if election.health().live else 503)

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
