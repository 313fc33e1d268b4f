"""Who may look at the page, and what it answers; without a cluster and without sockets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import pytest
from starlette.types import ASGIApp, Message

from kip848_client.tools.page import web
from kip848_client.tools.page.follower import Board, Status
from kip848_client.tools.page.situation import Situation

STATIC = files("kip848_client.tools.page").joinpath("static")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp, path: str, *, method: str = "GET", host: str = "localhost:9850", body: bytes = b"", **headers: str
) -> Answer:
    """One request; names of headers are written with ``_``."""
    path, _, query = path.partition("?")
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9850),
    }  # fmt: skip
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def answered() -> None:
        await app(scope, receive, send)

    asyncio.run(answered())
    begin, *parts = sent
    return Answer(
        begin["status"],
        {name.decode().lower(): value.decode() for name, value in begin["headers"]},
        b"".join(part.get("body", b"") for part in parts).decode(),
    )


def row(group_id: str, *, level: int = 0, text: str = "") -> Situation:
    return Situation(group_id, group_id, "consumer", "Stable", level, 1, text, 2, 6, 5, 0, None, 0, 2, "two joins")


@pytest.fixture
def board() -> Board:
    made = Board()
    made.say(Status("live", 1, "", 0, 0, "c1", 2))
    made.show([row("orders"), row("bills", level=7, text="no member")], [])
    return made


@pytest.fixture
def app(board: Board) -> ASGIApp:
    return web.Page(board).app()


def test_all_groups_are_told_as_json(app: ASGIApp) -> None:
    """Programs ask, too."""
    told = ask(app, "/api/groups").json()
    assert {one["group_id"]: one["level"] for one in told["groups"]} == {"orders": 0, "bills": 7}
    assert (told["cluster"]["phase"], told["cluster"]["cluster_id"]) == ("live", "c1")


def test_a_page_elsewhere_cannot_read_the_groups(app: ASGIApp) -> None:
    """By a name that leads to this machine, or by a request from its own origin."""
    for host in ("localhost:9850", "127.0.0.1:9850", "[::1]:9850", "localhost"):
        assert ask(app, "/api/groups", host=host).status == 200
    assert ask(app, "/api/groups", host="evil.example:9850").status == 403
    assert ask(app, "/api/groups", host="").status == 403
    assert ask(app, "/api/groups", origin="http://evil.example").status == 403
    assert ask(app, "/api/groups", origin="http://localhost:9850").status == 200
    assert ask(app, "/events", sec_fetch_site="cross-site", sec_fetch_mode="cors").status == 403


def test_a_proxy_may_have_another_name(board: Board) -> None:
    """`--allow-host` names it."""
    app = web.Page(board).app(hosts=["Groups.example"])
    assert ask(app, "/api/groups", host="groups.example").status == 200
    assert ask(app, "/api/groups", host="other.example").status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(app: ASGIApp, method: str) -> None:
    """It is a page to look at."""
    assert ask(app, "/api/groups", method=method).status == 405


def test_a_token_opens_the_page(board: Board) -> None:
    """As a bearer for programs, and by a form for people; a wrong one opens nothing."""
    app = web.Page(board).app(token="secret", hosts=None)
    assert ask(app, "/api/groups", host="any.example").status == 401
    assert ask(app, "/metrics", authorization="Bearer wrong").status == 401
    assert ask(app, "/api/groups", authorization="Bearer secret").status == 200
    assert ask(app, "/", accept="text/html").headers["location"] == "/login"
    assert "password" in ask(app, "/login").body
    opened = ask(app, "/login", method="POST", body=b"token=secret")
    assert opened.status == 303
    cookie = opened.headers["set-cookie"]
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
    assert "secret" not in cookie
    assert ask(app, "/api/groups", cookie=cookie.partition(";")[0]).status == 200
    assert ask(app, "/api/groups", cookie="kip848_page=guessed").status == 401


def test_a_wrong_token_is_answered_late(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guessing takes time; what was guessed is not shown again."""
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("kip848_client.tools.page.web.asyncio.sleep", sleep)
    answer = ask(web.Page(board).app(token="secret"), "/login", method="POST", body=b"token=<b>")
    assert (answer.status, slept) == (401, [1.0])
    assert "<b>" not in answer.body
    assert ask(web.Page(board).app(token="secret"), "/login", method="POST", body=b"x" * 5_000).status == 413


def test_every_answer_forbids_foreign_scripts(app: ASGIApp) -> None:
    """Even if a name of a group got into a page as HTML, it would run nothing."""
    for path in ("/", "/groups/orders", "/api/groups", "/nothing", "/static/live.css"):
        headers = ask(app, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\"'><img src=x onerror=y>", "__SCRIPTS__", "a/b", ".."])
def test_a_name_stays_text(app: ASGIApp, board: Board, name: str) -> None:
    """Names of groups are strangers' text, in the address, too."""
    board.show([row(name)], [])
    page = ask(app, f"/groups/{name}").body
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("</title>") == 1
    assert ask(app, f"/api/groups/{name}").json()["group"]["group_id"] == name


def test_what_is_not_there_is_said_in_json(app: ASGIApp) -> None:
    """A page can show the sentence."""
    assert ask(app, "/api/groups/none").json() == {"error": "there is no group 'none'"}
    assert ask(app, "/api/timeline/orders?from=x").status == 400
    assert ask(app, "/api/timeline/orders?from=5&to=5").json()["error"].startswith("from= is not before to=")
    assert ask(app, "/api/timeline/orders").status == 503
    assert ask(app, "/api/findings").json()["findings"] == []
    assert ask(app, "/metrics").status == 503


def test_the_address_of_a_group_may_hold_its_name_behind_a_question_mark(app: ASGIApp, board: Board) -> None:
    """Browsers take ``..`` for a folder, and an empty name for none."""
    board.show([row("..")], [])
    assert ask(app, "/api/groups/?id=..").json()["group"]["group_id"] == ".."
    assert ask(app, "/groups/?id=..").status == 200


def test_the_cluster_that_is_away_is_told(app: ASGIApp, board: Board) -> None:
    """What is shown is the last known state, and says so; a probe hears it by its status."""
    assert ask(app, "/health").status == 200
    board.say(Status("away", 5, "no broker answers"))
    answer = ask(app, "/health")
    assert (answer.status, answer.json()["cluster"]["text"]) == (503, "no broker answers")
    assert {one["group_id"] for one in ask(app, "/api/groups").json()["groups"]} == {"orders", "bills"}


def test_news_are_the_rows_that_changed(board: Board) -> None:
    """Ten thousand groups are told once, and then only what is new."""
    page = web.Page(board)
    version = board.version
    board.show([row("orders"), row("bills", level=0)], ["orders"])
    news = page._news(version, board.version, None)
    assert [one.group_id for one in news["groups"]] == ["bills"]
    assert news["gone"] == ["orders"]
    assert page._news(board.version, board.version, None).keys() == {
        "version", "now_ms", "cluster", "findings_version"
    }  # fmt: skip
    assert page._news(0, board.version, None)["again"]
    assert page._news(version, board.version, "bills")["changed"]
    version = board.version
    board.show([row("third")], [])
    assert not page._news(version, board.version, "bills")["changed"]


def test_a_page_that_was_away_for_long_asks_for_everything(board: Board) -> None:
    """Not every group that is gone is remembered."""
    version = board.version
    board.show([row(f"g{number}") for number in range(11_000)], [])
    board.show([], [f"g{number}" for number in range(11_000)])
    assert web.Page(board)._news(version, board.version, None)["again"]


def test_the_page_needs_nothing_but_itself() -> None:
    """It is looked at where there is no internet, and strangers' text must never become HTML."""
    for one in STATIC.iterdir():
        text = one.read_text(encoding="utf-8")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]", text), one.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), (
            one.name
        )
        assert not re.search(r"<script>|style=|\son\w+=\"", text), f"{one.name}: the policy forbids what stands inline"
