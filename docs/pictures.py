"""Draw the pictures of README and of the guides: ``python docs/pictures.py``.

The bars are the results of ``benchmarks/handover.py``. The screen of ``groups watch`` shows a group that runs here.
"""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from kip848_client import Consumer, ConsumerRebalanceListener, EmbeddedBroker
from kip848_client.cli import main as kip848
from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.groups import watch as groups_watch
from kip848_client.tools.groups.watch_screen import draw
from kip848_client.tools.groups.watch_view import GroupView
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.pictures.html import render_html

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "images"
BLUE, ORANGE, GREEN, PINK, GREY, RED = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a9099", "#b00020"
STYLE: Final = (
    "text{font:14px system-ui,sans-serif;fill:#1c2024}.title{font-size:17px;font-weight:600}.head{font-weight:600}"
    ".small{font-size:12px;fill:#555b63}.code{font:13px ui-monospace,monospace}.paper{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.small{fill:#a9b0b8}.paper{fill:#1e2129}}"
    ".on{fill:#fff;font-weight:600}"
)


class Drawing:
    """An SVG on paper of its own, white or dark as the page around it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" class="paper"/>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> None:
        """Write *text* with its base line at *y*."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, line: str = "none", opacity: float = 1
    ) -> None:
        """Draw a rectangle with round corners."""
        pale = f' opacity="{opacity:g}"' if opacity < 1 else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" stroke="{line}"'
            f"{pale}/>"
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, tip: bool = True, dashed: bool = False) -> None:
        """Draw a line from one point to another."""
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{GREY}" stroke-width="1.5"'
            + (' marker-end="url(#tip)"' if tip else "")
            + (' stroke-dasharray="4 4"' if dashed else "")
            + "/>"
        )

    def save(self, name: str) -> None:
        """Write it to docs/images."""
        (IMAGES / name).write_text("\n".join([*self._parts, "</svg>\n"]), encoding="utf-8")


def handover() -> None:
    """How long a moving partition has no reader."""
    results = json.loads((ROOT / "benchmarks/results/handover.json").read_text(encoding="utf-8"))["results"]
    moved = {(each["event"], each["side"]): each["moved"] for each in results}
    others = {
        "librdkafka consumer": "librdkafka, the same protocol",
        "java consumer": "Java, the same protocol",
        "librdkafka cooperative": "librdkafka, classic cooperative",
        "librdkafka range": "librdkafka, classic range *",
    }
    groups = {
        "A member joins": [("this package", "join", "ours", BLUE)],
        "A member leaves": [
            ("this package, hand_over()", "leave, handed over", "ours", BLUE),
            ("this package, close()", "leave", "ours", BLUE),
            ("this package, close() of a slot **", "leave", "ours, pool", BLUE),
        ],
    }
    drawing = Drawing(800, 468, "How long a partition that moves has no reader")
    drawing.text(16, 28, "How long a partition that moves has no reader: median, and 90 % of all (pale)", "title")
    y = 58
    for title, bars in groups.items():
        drawing.text(16, y, title, "head")
        event = bars[-1][1]
        for name, what, side, colour in [*bars, *((text, event, key, GREY) for key, text in others.items())]:
            y += 24
            median, most = moved[what, side]["median_ms"], moved[what, side]["p90_ms"]
            drawing.text(16, y, name)
            drawing.box(270, y - 13, max(3, most / 16), 16, colour, opacity=0.4)
            drawing.box(270, y - 13, max(3, median / 16), 16, colour)
            drawing.text(278 + most / 16, y, f"{median:,} ms, {most:,} ms")
        y += 40
    notes = (
        "Apache Kafka 4.4.0, four or five members, 24 partitions, heartbeats every 5 s at random phases",
        "* With range every member gives up all its partitions: 10 of 24 move, with others 4, and the rest stops, too",
        "** A scale-down: it waits a second for a process that takes the slot. If one stands by, it reads on at once",
    )
    for number, note in enumerate(notes):
        drawing.text(16, y - 6 + 18 * number, note, "small")
    drawing.save("handover.svg")


def processing() -> None:
    """What process() does with order, retries and commits."""
    drawing = Drawing(800, 330, "process(): order, retries and commits of one partition")
    drawing.text(16, 28, "process() on one partition: records 0 to 5 of three keys", "title")
    rows: dict[str, tuple[str, list[tuple[int, float, float, str]]]] = {
        "ann": (BLUE, [(0, 0, 2, ""), (3, 2, 2, ""), (5, 4, 2, "")]),
        "bob": (ORANGE, [(1, 0, 1.5, "fails"), (1, 3, 2.5, "again"), (4, 5.5, 1.5, "")]),
        "eve": (GREEN, [(2, 0, 3.5, "")]),
    }

    def at(tick: float) -> float:
        return 130 + tick * 88

    for number, (key, (colour, calls)) in enumerate(rows.items()):
        y = 58 + number * 46
        drawing.text(16, y + 20, f"key {key}", "head")
        for offset, start, length, note in calls:
            failed = note == "fails"
            drawing.box(at(start), y, length * 88 - 4, 30, RED if failed else colour)
            drawing.text(at(start) + 10, y + 20, f"{offset} {note}", "on")
    drawing.text(at(1.5) + 8, 58 + 46 + 20, "waits (retry=)", "small")
    drawing.arrow(at(0), 206, at(7.2), 206)
    drawing.text(at(7.2), 200, "time", "small", anchor="end")
    drawing.text(16, 236, "committed", "head")
    for tick, committed, beyond in ((1, "0", ""), (2.6, "1", ""), (4.2, "1", "2, 3"), (6, "4", "5"), (7, "6", "")):
        drawing.arrow(at(tick), 200, at(tick), 218, tip=False)
        drawing.text(at(tick), 236, f"offset {committed}", anchor="middle")
        if beyond:
            drawing.text(at(tick), 253, f"done beyond: {beyond}", "small", anchor="middle")
    drawing.text(16, 284, "Order: records of one key run one after the other, others at once.", "small")
    drawing.text(16, 301, "Retries: record 1 is tried again; only record 4, of the same key, waits for it.", "small")
    commits = (
        "Commits: never past a record that is not done. What is done beyond it is noted, and the next owner skips it."
    )
    drawing.text(16, 318, commits, "small")
    drawing.save("processing.svg")


def broker_test() -> None:
    """A test with broker and faults."""
    drawing = Drawing(800, 316, "A test, its broker and the service under test")
    drawing.text(16, 28, "One pytest process: no Docker, no JVM, nothing to wait for but states", "title")
    columns = {"your test": 110, "EmbeddedBroker": 400, "your service": 690}
    for name, x in columns.items():
        drawing.box(x - 80, 44, 160, 32, BLUE if name == "EmbeddedBroker" else GREY)
        drawing.text(x, 65, name, "on", anchor="middle")
        drawing.arrow(x, 76, x, 304, tip=False, dashed=True)
    test, broker, service = columns.values()
    lines = [
        (test, broker, 'faults.on("OffsetCommit", ...)', "the next commit's answer will be lost"),
        (service, broker, "joins, fetches", "Kafka's protocol, over TCP"),
        (service, broker, "commits", "hears nothing, and commits again"),
        (test, broker, "clock.advance(45_000)", "sessions expire now, without a sleep"),
        (test, broker, 'wait_for_group("orders", ...)', "returns when the group is in that state"),
    ]
    for number, (start, end, what, note) in enumerate(lines):
        y = 108 + number * 44
        sign = 1 if end > start else -1
        drawing.arrow(start, y, end - sign * 2, y)
        drawing.text((start + end) / 2, y - 6, what, "code", anchor="middle")
        drawing.text((start + end) / 2, y + 15, note, "small", anchor="middle")
    drawing.save("test.svg")


class _Slow(ConsumerRebalanceListener):
    """Keeps partitions that are taken away until *seen* is set."""

    def __init__(self, seen: threading.Event) -> None:
        self._seen = seen

    def on_partitions_revoked(self, consumer: Consumer, partitions: object) -> None:
        self._seen.wait(20)


def watching() -> None:
    """The screen of ``groups watch`` while a member waits for a partition of another one."""
    from rich.console import Console

    seen, ended = threading.Event(), threading.Event()
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True)

    class Picture:
        def show(self, view: GroupView, *, now_ms: int) -> None:
            members = view.sorted_members()
            since_ms = min((each.since_ms for each in members if each.since_ms), default=now_ms)
            if len(members) == 3 and view.progress and now_ms - since_ms > 4_000 and not seen.is_set():
                console.print(draw(view, now_ms=now_ms))
                seen.set()

        def close(self) -> None:
            """Nothing to restore."""

    def member(name: str, broker: EmbeddedBroker) -> None:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "client.id": name}
        with Consumer(conf | {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}) as consumer:
            consumer.subscribe(["orders"], listener=_Slow(seen))
            while not ended.is_set():
                consumer.poll(0.05)
                time.sleep(0.02)

    with EmbeddedBroker(topics={"orders": 6}) as broker:
        for number in range(3000):
            broker.produce("orders", f"order {number}", partition=number % 6)
        threads = []
        for count, name in enumerate(("till-1", "till-2", "till-3"), start=1):
            threads.append(threading.Thread(target=member, args=(name, broker)))
            threads[-1].start()
            broker.wait_for_group("billing", members=count, state="Stable" if count == 1 else None)
            while count == 1 and sum(broker.groups.committed("billing").values()) < 30:
                time.sleep(0.05)
        vars(groups_watch)["open_screen"] = lambda *_, **__: Picture()
        kip848(["groups", "watch", "billing", "--for", "8", "--bootstrap", broker.bootstrap_servers])
        ended.set()
        seen.set()
        for thread in threads:
            thread.join()
    drawn = console.export_svg(title="kip848 groups watch billing")
    drawn = re.sub(r"(?s)@font-face \{.*?\}", "", drawn).replace("Fira Code", "ui-monospace")
    (IMAGES / "watch.svg").write_text(drawn, encoding="utf-8")


def page() -> None:
    """The page of ``groups serve``: one group stands still, another one did, others are well. It needs Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium: page.png stays as it is")
        return
    ended, gone = threading.Event(), threading.Event()

    def member(group: str, topic: str, name: str, ends: threading.Event) -> None:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": name}
        with Consumer(conf | {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}) as consumer:
            consumer.subscribe([topic])
            while not ends.is_set():
                consumer.poll(0.2)

    def produce() -> None:
        while not ended.wait(0.1):
            for topic in ("orders", "payments", "mails"):
                for partition in range(6):
                    broker.produce(topic, "x", partition=partition)

    groups = {
        "billing": ("payments", 2), "warehouse": ("orders", 3), "mailer": ("mails", 1), "fraud-check": ("payments", 2),
        "search-index": ("orders", 2), "reports": ("orders", 1),
    }  # fmt: skip
    with (
        EmbeddedBroker(topics={"orders": 6, "payments": 6, "mails": 6}) as broker,
        tempfile.TemporaryDirectory() as out,
    ):
        threads = [threading.Thread(target=produce)]
        for group, (topic, members) in groups.items():
            for number in range(members):
                ends = gone if group in {"billing", "mailer"} or (group, number) == ("warehouse", 2) else ended
                threads.append(threading.Thread(target=member, args=(group, topic, f"{group}-{number + 1}", ends)))
        for thread in threads:
            thread.start()
        command = [sys.executable, "-m", "kip848_client", "groups", "serve", "--listen", "127.0.0.1:0"]
        command += ["--bootstrap", broker.bootstrap_servers]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            url = server.stderr.readline().strip()
            time.sleep(25)
            gone.set()
            time.sleep(14)
            threads.append(threading.Thread(target=member, args=("mailer", "mails", "mailer-2", ended)))
            threads[-1].start()
            time.sleep(25)
            for path, name, height in (("", "page.png", 430), ("groups/billing", "page-group.png", 1020)):
                command = [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--timeout=6000"]
                command += [f"--window-size=1280,{height}", f"--screenshot={out}/{name}", url + path]
                subprocess.run(command, check=True, capture_output=True, timeout=120)
                shutil.copy(Path(out) / name, IMAGES / name)
            ended.set()
            server.terminate()
        for thread in threads:
            thread.join()


def what_went_wrong() -> None:
    """The page of a report: a member died, and another group's member comes and goes. It needs Chromium."""
    begin_ms = 1_795_399_200_000
    events: list[JournalEvent] = []

    def say(group: str, second: float, event: str, member: str | None = None, **fields: JsonValue) -> None:
        at_ms = begin_ms + round(second * 1000)
        epoch = {"member_epoch": 1, "group_epoch": fields.pop("epoch", 1)}
        who = {"member_id": member, "client_id": member}
        events.append(JournalEvent(at_ms, "coordinator", event, group, **who, **epoch, fields=fields))  # type: ignore[arg-type]

    def has(group: str, second: float, member: str, *partitions: int) -> None:
        topic = "payments" if group == "billing" else "entries"
        shown: dict[str, JsonValue] = {topic: list(partitions)}
        say(group, second, "member_assignment_changed", member, state="STABLE", assigned=shown, pending_revocation={})

    def rebalance(group: str, second: float, epoch: int, reason: str, lasted: float) -> None:
        say(group, second, "group_epoch_bumped", reason=reason, epoch=epoch)
        say(group, second, "group_state_changed", old="Stable", new="Reconciling", epoch=epoch)
        say(group, second + lasted, "group_state_changed", old="Reconciling", new="Stable", epoch=epoch)

    for number, (second, host) in enumerate(((0.0, "/10.0.0.4"), (0.6, "/10.0.0.7"), (1.3, "/10.0.0.8")), start=1):
        name = f"pricing-{number}"
        say("billing", second, "member_joined", name, topics=["payments"], instance_id=None, client_host=host)
        rebalance("billing", second, number, "member_joined", 0.3)
    owned = {
        "pricing-1": ((0.3, 0, 1, 2, 3, 4, 5), (0.9, 0, 1, 2), (1.5, 0, 1), (31.5, 0, 1, 2)),
        "pricing-2": ((0.9, 3, 4, 5), (1.5, 2, 3)),
        "pricing-3": ((1.6, 4, 5), (31.8, 3, 4, 5)),
    }
    for name, several in owned.items():
        for second, *partitions in several:
            has("billing", second, name, *partitions)
    say("billing", 30, "member_left", "pricing-2", reason="removed")
    rebalance("billing", 30, 4, "member_left", 1.8)
    for tick in range(4, 124):
        second = tick / 2
        for name, partitions in (("pricing-1", (0, 1)), ("pricing-2", (2, 3)), ("pricing-3", (4, 5))):
            if second >= 32.2:
                partitions = {"pricing-1": (0, 1, 2), "pricing-2": (), "pricing-3": (3, 4, 5)}[name]
            if partitions and not (name == "pricing-2" and second > 19.6):
                offsets: dict[str, JsonValue] = {f"payments-{each}": tick * 20 for each in partitions}
                say("billing", second, "offsets_committed", name, offsets=offsets)
    for round_ in range(6):
        say("ledger", 7 * round_, "member_joined", f"ledger-1#{round_}", topics=["entries"], client_host="/10.0.0.9")
        events[-1] = msgspec.structs.replace(events[-1], client_id="ledger-1")
        rebalance("ledger", 7 * round_, 2 * round_ + 1, "member_joined", 0.2)
        if round_ < 5:
            say("ledger", 7 * round_ + 6, "member_left", f"ledger-1#{round_}", reason="removed")
            rebalance("ledger", 7 * round_ + 6, 2 * round_ + 2, "member_left", 0.2)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium: what-went-wrong.png stays as it is")
        return
    with tempfile.TemporaryDirectory() as out:
        file = Path(out) / "report.html"
        file.write_text(render_html(build_timelines(sorted(events, key=lambda each: each.ts_ms))), encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,900"]
        picture = IMAGES / "what-went-wrong.png"
        subprocess.run(
            [*command, f"--screenshot={picture}", file.as_uri()], check=True, capture_output=True, timeout=120
        )


if __name__ == "__main__":
    page()
    what_went_wrong()
    handover()
    processing()
    broker_test()
    watching()
