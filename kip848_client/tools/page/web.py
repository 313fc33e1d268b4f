"""The web application of the page: what it answers, and to whom. Reads the board and the history, and changes nothing.

``/`` and ``/groups/ID`` are for people, ``/api/...`` is the same as JSON, ``/events`` tells of changes as they come,
``/metrics`` is for Prometheus. Names of groups, members and topics are strangers' text: pages get them as JSON and
write them as text.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kip848_client.common.addresses import host_in, is_loopback
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.tools.groups.export import GroupsCollector, metrics_text
from kip848_client.tools.groups.follower import now_ms
from kip848_client.tools.page.analysis import OF_NOW, clipped, outage_now, timeline_of, within
from kip848_client.tools.page.follower import Board, PageFollower
from kip848_client.tools.page.situation import lags
from kip848_client.tools.report.findings import findings_of, how_it_ended, worst_first
from kip848_client.tools.report.pictures.html import asset, fill_page, plain_timelines, render_html

_STREAMS_MAX: Final = 100
_TELL_EVERY_S: Final = 0.25
_ALIVE_EVERY_S: Final = 10.0
_PERIOD_MAX_MS: Final = 31 * 24 * 3_600_000
_HOUR_MS: Final = 3_600_000
_SHOWN_MS_MIN: Final = 60_000
_AFTER_MS: Final = 3_600_000
_PLACES_MAX: Final = 5_000
_MEMBERS_MAX: Final = 2_000
_REBALANCES_SHOWN: Final = 50
_DRAWN_AT_ONCE: Final = 2
"""Timelines that are made at the same time; each may take a second of CPU."""
_QUERY_MAX: Final = 8_192
_LOGIN_BODY_MAX: Final = 4_096
_COOKIE: Final = "kip848_page"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_FILES: Final[Mapping[str, str]] = {
    "live.css": "text/css; charset=utf-8",
    "groups.js": "text/javascript; charset=utf-8",
    "group.js": "text/javascript; charset=utf-8",
    "shared.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_OF_THE_REPORT: Final = frozenset({"page.css", "page.js"})


class Door:
    """Refuses callers that may not look, as ASGI middleware.

    Args:
        token: callers must give it, as a bearer or by the login page; None: nobody needs one.
        hosts: names under which the page may be asked for; any if None. Without a token a web page elsewhere could
            otherwise read the groups, by a name that leads to this machine.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and scope["path"] == "/login" and self._token is not None:
            refusal = await self._login(Request(scope, receive))
        elif refusal is None and not self._is_known(Headers(scope=scope)):
            refusal = self._ask_for_token(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host_in(host)
        if len(headers.getlist("host")) != 1 or (
            self._hosts is not None and not is_loopback(name) and name.lower() not in self._hosts
        ):
            return _said(403, f"this page is not served as {printable(host[:100])!r}: see --allow-host")
        origin = headers.get("origin")
        if (origin is not None and origin.partition("://")[2] != host) or (
            headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        ):
            return _said(403, "other web pages may not ask")
        if scope["method"] not in {"GET", "HEAD"} and scope["path"] != "/login":
            return PlainTextResponse("this page only shows; it changes nothing\n", 405, {"Allow": "GET, HEAD"})
        if len(scope.get("query_string", b"")) > _QUERY_MAX:
            return _said(414, "the address is too long")
        return None

    def _is_known(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        cookies = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
        return any(name == _COOKIE and _same(value, self._session) for name, _, value in cookies)

    def _ask_for_token(self, scope: Scope) -> Response:
        if "text/html" in Headers(scope=scope).get("accept", ""):
            return RedirectResponse("/login", 303)
        return PlainTextResponse("give the token: Authorization: Bearer TOKEN\n", 401, {"WWW-Authenticate": "Bearer"})

    async def _login(self, request: Request) -> Response:
        said = ""
        if request.method == "POST":
            body = b""
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LOGIN_BODY_MAX:
                    return _said(413, "too long")
            given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()
            if _same(given, self._token or ""):
                answer = RedirectResponse("/", 303)
                answer.set_cookie(_COOKIE, self._session, httponly=True, samesite="strict", path="/")
                return answer
            await asyncio.sleep(1.0)  # guessing takes time
            said = "That is not the token."
        page = _static("login.html").replace("__SAID__", html.escape(said), 1)
        return HTMLResponse(page, 401 if said else 200)


class Page:
    """The answers.

    Args:
        board: what the followers know.
        ending: whether the server is about to stop; open streams end then.
    """

    def __init__(self, board: Board, *, ending: Callable[[], bool] = lambda: False) -> None:
        self._board = board
        self._ending = ending
        self._streams = 0
        self._changed: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drawing = asyncio.Semaphore(_DRAWN_AT_ONCE)
        board.tell_changes_to(self._tell)

    def app(self, *, token: str | None = None, hosts: Iterable[str] | None = ()) -> ASGIApp:
        """The application.

        Args:
            token: that callers must give; none if None.
            hosts: further names of this server beside loopback ones; any name if None.
        """
        routes = [
            Route("/", self._index),
            Route("/groups/{group_id:path}", self._group_page),
            Route("/api/groups", self._groups),
            Route("/api/findings", self._findings),
            Route("/api/groups/{group_id:path}", self._group),
            Route("/api/timeline/{group_id:path}", self._timeline),
            Route("/report/{group_id:path}", self._report),
            Route("/events", self._events),
            Route("/metrics", self._metrics),
            Route("/health", self._health),
            *(Route(f"/static/{name}", self._file) for name in _FILES),
        ]
        names = None if hosts is None else frozenset(name.lower() for name in hosts)
        return Starlette(
            routes=routes,
            middleware=[
                Middleware(Door, token=token, hosts=names),
                Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4),
            ],
            exception_handlers={404: _not_found, 503: _not_now, 400: _bad},
        )

    # --- for people

    async def _index(self, request: Request) -> Response:
        del request
        return HTMLResponse(_static("index.html"))

    async def _group_page(self, request: Request) -> Response:
        group_id = _group_of(request)
        return HTMLResponse(
            fill_page(
                title=printable(group_id),
                style='<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/page.css">'
                '<link rel="stylesheet" href="/static/live.css">',
                top=_static("group.html"),
                scripts='<script src="/static/page.js"></script><script src="/static/shared.js"></script>'
                '<script src="/static/group.js"></script>',
            )
        )

    async def _file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        text = asset(name) if name in _OF_THE_REPORT else _static(name)
        return Response(text, media_type=_FILES[name])

    # --- as JSON

    async def _groups(self, request: Request) -> Response:
        """All groups, the cluster's state, and the version of both."""
        del request
        board = self._board
        version = board.version
        return _json({"v": 1, **self._state(version), "groups": await run_in_threadpool(board.rows)})

    def _state(self, version: int) -> dict[str, Any]:
        return {
            "version": version,
            "now_ms": now_ms(),
            "cluster": self._board.status,
            "findings_version": self._board.findings_version,
        }

    async def _group(self, request: Request) -> Response:
        """One group as it is now."""
        group_id = _group_of(request)
        found = await run_in_threadpool(self._describe, group_id)
        if found is None:
            raise HTTPException(404, f"there is no group {printable(group_id)!r}")
        return _json(found)

    def _describe(self, group_id: str) -> dict[str, Any] | None:
        follower = self._board.follower
        row = self._board.row(group_id)
        if follower is None:
            return None if row is None else {"v": 1, **self._state(self._board.version), "group": row}
        with follower.lock:
            track, story = follower.metrics.groups.get(group_id), follower.stories.get(group_id)
            if track is None or story is None:
                return None
            at_ms = now_ms()
            places = lags(track, follower.ends, now_ms=at_ms)
            by_partition = {place.partition: place for place in places}
            names = {member.member_id: member.name for member in track.view.members.values()}
            partitions = sorted({*by_partition, *story.owners, *track.view.free})
            shown = []
            for partition in partitions[:_PLACES_MAX]:
                owner, place = story.owners.get(partition), by_partition.get(partition)
                shown.append(
                    {
                        "partition": printable(str(partition)),
                        "owner": None if owner is None else names.get(owner.member_id),
                        "since_ms": None if owner is None else owner.since_ms,
                        "committed": None if place is None else place.committed,
                        "moved_ms": None if place is None else place.moved_ms,
                        "lag": None if place is None else place.lag,
                        "behind_ms": None if place is None else place.behind_ms,
                        "held_back": partition in track.held,
                    }
                )
            lag_of = {partition: place.lag for partition, place in by_partition.items()}
            members = [
                {
                    "name": member.name,
                    "member_id": printable(member.member_id),
                    "host": printable(member.host),
                    "joined_ms": member.joined_ms,
                    "epoch": member.epoch,
                    "state": printable(member.state),
                    "since_ms": member.since_ms,
                    "owned": len(member.owned),
                    "gives_up": len(member.pending),
                    "waits_for": {wait.owner: len(wait.partitions) for wait in track.view.waits(member)},
                    "lag": sum(lag_of.get(one) or 0 for one in member.owned),
                    "committed_ms": None if member.commits is None else int(member.commits.last_ms),
                }
                for member in track.view.sorted_members()[:_MEMBERS_MAX]
            ]
            return {
                "v": 1,
                **self._state(self._board.version),
                "group": self._board.row(group_id),
                "epoch": track.view.epoch,
                "state_since_ms": track.view.state_since_ms,
                "commits_per_s": story.commits_per_s(now_ms=at_ms),
                "members": members,
                "members_left_out": max(0, len(track.view.members) - _MEMBERS_MAX),
                "partitions": shown,
                "partitions_left_out": max(0, len(partitions) - _PLACES_MAX),
                "lines": [[line.ts_ms, line.text] for line in track.view.lines],
                "rebalances": list(story.rebalances)[-_REBALANCES_SHOWN:],
            }

    async def _findings(self, request: Request) -> Response:
        """What went wrong lately, the latest first."""
        to_ms = now_ms()
        hours = _number(request.query_params.get("hours"), 24.0)
        found = await run_in_threadpool(self._read_findings, int(to_ms - min(hours * _HOUR_MS, _PERIOD_MAX_MS)), to_ms)
        return _json({"v": 1, "version": self._board.findings_version, "findings": found})

    def _read_findings(self, from_ms: int, to_ms: int) -> list[Any]:
        follower = self._board.follower
        if follower is None:
            return []
        with contextlib.closing(follower.history.reader()) as reader:
            return list(reader.findings(from_ms=from_ms, to_ms=to_ms))

    async def _timeline(self, request: Request) -> Response:
        """The lanes of a group in a period, and what went wrong in it."""
        drawn = await self._drawn(request)
        return _json({"v": 1, "now_ms": now_ms(), **drawn})

    async def _report(self, request: Request) -> Response:
        """The same as one page that needs nothing else."""
        drawn = await self._drawn(request, as_page=True)
        group_id = _group_of(request)
        name = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "_" for each in group_id)
        return HTMLResponse(
            drawn["page"], headers={"Content-Disposition": f'attachment; filename="{name[:80] or "group"}.html"'}
        )

    async def _drawn(self, request: Request, *, as_page: bool = False) -> dict[str, Any]:
        group_id = _group_of(request)
        from_ms, to_ms, is_now = _period(request.query_params)
        async with self._drawing:
            drawn = await run_in_threadpool(self.draw, group_id, from_ms, to_ms, is_now=is_now, as_page=as_page)
        if drawn is None:
            raise HTTPException(404, f"nothing is known of {printable(group_id)!r} in that time")
        return drawn

    def draw(
        self, group_id: str, from_ms: int, to_ms: int, *, is_now: bool, as_page: bool = False
    ) -> dict[str, Any] | None:
        """The lanes of a group in a period, and what went wrong in it; None if nothing is known of it.

        Raises:
            HTTPException: the history is not open.
        """
        follower = self._board.follower
        if follower is None:
            raise HTTPException(503, "the history is not open yet")
        # What happened afterwards tells what was wrong in a period that is over, such as an outage that had begun.
        current = now_ms()
        until_ms = to_ms if is_now else min(to_ms + _AFTER_MS, current)
        reaches_now = is_now or until_ms == current
        with contextlib.closing(follower.history.reader()) as reader:
            timeline = timeline_of(
                reader, group_id, follower.untold(group_id), from_ms=from_ms, to_ms=until_ms, is_now=reaches_now
            )
            if timeline is None:
                return None
            held = self._held(follower, group_id) if is_now else {}
            timeline = msgspec.structs.replace(timeline, held=held)
            with_others = reader.findings(from_ms=from_ms, to_ms=to_ms, group_id=group_id)
        from_ms = max(from_ms, min(int(timeline.start_ms), to_ms - _SHOWN_MS_MIN))
        picture = clipped(timeline, from_ms=float(from_ms), to_ms=float(to_ms))
        found = [
            *(each for each in findings_of(timeline) if is_now or each.kind not in OF_NOW),
            *(each for each in with_others if each.kind == "all groups"),
        ]
        row = self._board.row(group_id)
        outage = outage_now(row, how_it_ended(timeline), now_ms=until_ms) if reaches_now and row is not None else None
        if outage is not None:
            found = [outage, *(each for each in found if each.kind != "no members")]
        found = worst_first(within(found, from_ms=from_ms, to_ms=to_ms))
        if as_page:
            return {"page": render_html([picture], found)}
        drawn = plain_timelines([picture])
        if outage is not None:
            figures = drawn[0]["figures"]
            assert isinstance(figures, dict)
            figures["empty_ms"] = max(0.0, figures["empty_ms"] - max(0.0, to_ms - outage.start_ms))
        return {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "known_from_ms": timeline.start_ms,
            "timelines": drawn,
            "findings": found,
        }

    @staticmethod
    def _held(follower: PageFollower, group_id: str) -> dict[str, float]:
        with follower.lock:
            track = follower.metrics.groups.get(group_id)
            if track is None:
                return {}
            return {str(one): float(track.committed[one].at_ms) for one in track.held if one in track.committed}

    # --- changes as they come

    async def _events(self, request: Request) -> Response:
        if self._streams >= _STREAMS_MAX:
            raise HTTPException(503, f"{_STREAMS_MAX} pages are open already")
        given = request.headers.get("last-event-id") or request.query_params.get("version") or ""
        version = int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else 0
        group_id = request.query_params.get("group")
        return StreamingResponse(
            self._stream(request, version, group_id),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(self, request: Request, version: int, group_id: str | None) -> AsyncIterator[str]:
        self._loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        self._streams += 1
        self._changed.add(changed)
        if version > self._board.version:
            version = 0  # of an earlier run of this program
        told_s = 0.0
        try:
            yield "retry: 1000\n\n"
            while not self._ending() and not await request.is_disconnected():
                changed.clear()
                current = self._board.version
                if current != version or time.monotonic() - told_s >= _ALIVE_EVERY_S:
                    yield f"id: {current}\ndata: {to_json(self._news(version, current, group_id))}\n\n"
                    version, told_s = current, time.monotonic()
                await asyncio.sleep(_TELL_EVERY_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 1.0)
        finally:
            self._streams -= 1
            self._changed.discard(changed)

    def _news(self, version: int, current: int, group_id: str | None) -> dict[str, Any]:
        """What changed since a version; ``again`` if a page must ask for everything."""
        news = self._state(current)
        if version == current:
            return news
        changes = self._board.since(version) if version else None
        if group_id is not None:
            row = self._board.row(group_id)
            has_changed = changes is None or row in changes[0] or group_id in changes[1]
            return news | {"group": row, "changed": has_changed}
        if changes is None:
            return news | {"again": True}
        return news | {"groups": changes[0], "gone": changes[1]}

    def _tell(self) -> None:
        """Wake all streams; called on any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self._changed:
            event.set()

    # --- for machines

    async def _metrics(self, request: Request) -> Response:
        del request
        follower = self._board.follower
        if follower is None:
            raise HTTPException(503, self._board.status.text or "the groups are not known yet")
        text = await run_in_threadpool(lambda: metrics_text(GroupsCollector(follower, by_partition=False)))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _health(self, request: Request) -> Response:
        del request
        status = self._board.status
        return _json({"v": 1, "cluster": status}, 200 if status.phase == "live" else 503)


def _group_of(request: Request) -> str:
    """The group in the address; a name that an address cannot hold stands behind ``?id=``."""
    group_id: str = request.path_params["group_id"]
    return group_id or request.query_params.get("id", "")


def _period(query: Mapping[str, str]) -> tuple[int, int, bool]:
    """Begin, end, and whether it ends now; the last hour if nothing is given."""
    current = now_ms()
    to_ms = int(_number(query.get("to"), float(current)))
    is_now = to_ms >= current or "to" not in query
    to_ms = min(to_ms, current)
    from_ms = int(_number(query.get("from"), float(to_ms - _HOUR_MS)))
    if from_ms >= to_ms:
        raise HTTPException(400, "from= is not before to=: both are milliseconds since 1970")
    return max(from_ms, to_ms - _PERIOD_MAX_MS), to_ms, is_now


def _number(text: str | None, otherwise: float) -> float:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise HTTPException(400, f"{printable(text[:50])!r} is not a number")
    return float(text)


def _json(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _said(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)


async def _not_found(request: Request, error: Exception) -> Response:
    return _refused(error, 404, "nothing is here")


async def _not_now(request: Request, error: Exception) -> Response:
    return _refused(error, 503, "not now")


async def _bad(request: Request, error: Exception) -> Response:
    return _refused(error, 400, "the address is wrong")


def _refused(error: Exception, status: int, text: str) -> Response:
    detail = error.detail if isinstance(error, HTTPException) else text
    return _json({"error": detail or text}, status)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _static(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")
