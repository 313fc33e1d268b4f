"""What the documentation shows works: the Python blocks of each page are run, in order, as one file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
TIMEOUT_S = 280  # a little less than the time limit of a test: report.md draws pictures, and may have little of a CPU
WITHOUT = [argument for name in ("randomly", "cacheprovider", "asyncio", "anyio") for argument in ("-p", f"no:{name}")]


class Program(msgspec.Struct, frozen=True):
    """A page whose blocks are a program. It runs beside a broker with three records in the topic ``orders``.

    Args:
        before: lines ahead of the page's: what it leaves to the reader.
        after: lines behind it, which call what it defines. ``broker`` is the broker.
        ends_by: how a program that reads for ever ends; the reader presses Ctrl-C.
    """

    before: str = ""
    after: str = ""
    ends_by: str | None = None


TESTS = (
    "recipes.md",
    "security.md",
    "simulation.md",
    "testing.md",
    "tutorial/first-assignor.md",
    "tutorial/first-test.md",
    "tutorial/job-queue.md",
    "tutorial/slow-handler.md",
)
"""Pages whose blocks are a module of tests."""

POSTGRES = re.compile(r"^## PostgreSQL$.*?(?=^## )", re.DOTALL | re.MULTILINE)
"""The recipes that need a database."""
POSTGRES_ADDRESS = "KIP848_POSTGRES"
"""Variable with the address of an empty one."""

STOP = "if len(seen) == 3: raise KeyboardInterrupt"
PROGRAMS = {
    "admin.md": Program(
        after="assert lag.lag == 2 and plan.moves[0].committed == 1 and list(described.errors) == ['kichten']\n"
        "assert set(broker.groups.committed('kitchen').values()) == {0}"
    ),
    "assignors.md": Program(
        after="conf = {'bootstrap.servers': 'localhost:9092', 'group.id': 'lags', 'group.protocol': 'classic',"
        " 'auto.offset.reset': 'earliest'}\n"
        "seen = []\n"
        f"def handle(message):\n    seen.append(message.value())\n    {STOP}\n"
        "try:\n    serve(conf, handle, lambda: True)\nexcept KeyboardInterrupt:\n    pass\n"
        "seen.clear()\n"
        "def total(message, runner):\n"
        "    assert {task.partition for task in runner.active} == set(range(6))\n"
        "    handle(message)\n"
        "try:\n    serve_tasks(conf | {'group.id': 'tasks'})\nexcept KeyboardInterrupt:\n    pass\n"
        "test_my_assignor()"
    ),
    "async.md": Program(
        before=f"seen = []\nasync def handle(message):\n    seen.append(message.value())\n    {STOP}",
        after="import asyncio\nasyncio.run(serve())",
        ends_by="KeyboardInterrupt",
    ),
    "configuration.md": Program(after="consumer.close()"),
    "deploying.md": Program(
        before="import os\nseen = []\ndef handle(message):\n    seen.append(message.value())\n"
        "    if len(seen) == 3: os.kill(os.getpid(), signal.SIGTERM)",
        after="serve({'bootstrap.servers': 'localhost:9092', 'group.id': 'orders', 'auto.offset.reset': 'earliest'})\n"
        "assert broker.groups.committed('orders')['orders', 0] == 3",
    ),
    "exactly-once.md": Program(
        after="import asyncio\n"
        "broker.topics.create('invoices', 1)\n"
        "conf = {'bootstrap.servers': 'localhost:9092'}\n"
        "producer = Producer(conf | {'transactional.id': 'billing'})\n"
        "producer.init_transactions()\n"
        "conf |= {'group.id': 'bills', 'auto.offset.reset': 'earliest', 'enable.auto.commit': False}\n"
        "async def invoice(message):\n    return b'invoice'\n"
        "async def tasks():\n"
        "    async with AsyncConsumer(conf | {'group.id': 'others'}) as consumer:\n"
        "        await consumer.subscribe(['orders'])\n"
        "        serving = asyncio.create_task(serve_in_tasks(consumer, producer, invoice))\n"
        "        while broker.groups.committed('others').get(('orders', 0)) != 3: await asyncio.sleep(0.01)\n"
        "        serving.cancel()\n"
        "        await asyncio.wait([serving])\n"
        "asyncio.run(tasks())\n"
        "seen = []\n"
        "def transform(message):\n"
        "    seen.append(message.value())\n"
        "    if len(seen) == 3: consumer.hand_over()\n"
        "    return b'invoice'\n"
        "with Consumer(conf) as consumer:\n"
        "    consumer.subscribe(['orders'])\n"
        "    serve(consumer, producer, transform)\n"
        "assert broker.groups.committed('bills')['orders', 0] == 3\n"
        "async def many():\n"
        "    async with AsyncConsumer(conf | {'group.id': 'many'}) as consumer:\n"
        "        await consumer.subscribe(['orders'])\n"
        "        processing = asyncio.create_task(process(consumer, producer, invoice))\n"
        "        while broker.groups.committed('many').get(('orders', 0)) != 3: await asyncio.sleep(0.01)\n"
        "        processing.cancel()\n"
        "        await asyncio.wait([processing])\n"
        "asyncio.run(many())",
    ),
    "reference/errors.md": Program(
        after="from kip848_client import Consumer\n"
        "with Consumer({'bootstrap.servers': 'localhost:9092', 'group.id': 'orders',"
        " 'auto.offset.reset': 'earliest'}) as consumer:\n"
        "    consumer.subscribe(['orders'])\n"
        "    assert consumer.poll(20).value() == b'tea'\n"
        "    commit(consumer)\n"
        "assert broker.groups.committed('orders')",
    ),
    "porting.md": Program(
        before=f"seen = []\ndef handle(message):\n    seen.append(message.value())\n    {STOP}",
        after="conf = {'bootstrap.servers': 'localhost:9092', 'group.id': 'orders', 'auto.offset.reset': 'earliest'}\n"
        "try:\n    serve(conf)\nexcept KeyboardInterrupt:\n    pass\n"
        "assert broker.groups.committed('orders')['orders', 0] == 2",
    ),
    "processing.md": Program(
        after="import asyncio\n"
        "from kip848_client import AsyncConsumer\n"
        "conf = {'bootstrap.servers': 'localhost:9092', 'group.id': 'orders', 'auto.offset.reset': 'earliest'}\n"
        "async def run(serving):\n"
        "    seen, all_seen = [], asyncio.Event()\n"
        "    async def handle(message):\n"
        "        seen.append(message.value())\n"
        "        if len(seen) == 3: all_seen.set()\n"
        "    task = asyncio.create_task(serving(handle))\n"
        "    await all_seen.wait()\n"
        "    task.cancel()\n"
        "    await asyncio.wait([task])\n"
        "asyncio.run(run(lambda handle: serve(conf, handle)))\n"
        "assert broker.groups.committed('orders')['orders', 0] == 3\n"
        "async def retrying(handle):\n"
        "    async with AsyncConsumer(conf | {'group.id': 'retries'}) as consumer:\n"
        "        await consumer.subscribe(['orders'])\n"
        "        await serve_with_retries(consumer, handle, 'localhost:9092')\n"
        "asyncio.run(run(retrying))",
    ),
    "report.md": Program(
        before="from pathlib import Path\n"
        "from kip848_client import Consumer, EmbeddedBroker\n"
        "from kip848_client.journal import JsonLinesJournal\n"
        "Path('logs').mkdir()\n"
        "with EmbeddedBroker({'orders': 2}, journal=JsonLinesJournal.open(Path('logs/broker.jsonl'))) as logged:\n"
        "    with Consumer({'bootstrap.servers': logged.bootstrap_servers, 'group.id': 'orders'}) as consumer:\n"
        "        consumer.subscribe(['orders'])\n"
        "        while not consumer.assignment():\n"
        "            consumer.poll(0.1)\n",
        after="assert analysis.groups.count() == 1",
    ),
    "share-groups.md": Program(
        before="broker.topics.create('mails')\n"
        "broker.groups.set_config('mails', {'share.auto.offset.reset': 'earliest'})\n"
        "broker.produce('mails', 'a')\n"
        "conf = {'bootstrap.servers': 'localhost:9092', 'group.id': 'mails'}\n"
        "seen = []\n"
        "def send(message):\n"
        "    seen.append(message.value())\n"
        "    queue.hand_over()\n",
        after="assert seen == [b'a']",
    ),
    "spark.md": Program(
        before="def invoice(rows, batch): rows.count()\ndef archive(rows, batch): rows.count()",
        after="for each in spark.streams.active:\n    each.processAllAvailable()\n    each.stop()\n"
        "assert all(broker.groups.committed(each) for each in ('billing', 'invoices', 'archive'))",
    ),
    "tutorial/first-consumer.md": Program(
        before=f"import builtins\nseen = []\n"
        f"def print(value, *more):\n    builtins.print(value, *more)\n"
        f"    seen.extend([value] if isinstance(value, bytes) else [])\n    {STOP}",
        ends_by="KeyboardInterrupt",
    ),
    "tutorial/first-spark-job.md": Program(
        after="assert {row.what: row['count'] for row in spark.table('counts').collect()} == {'tea': 2, 'milk': 1}"
    ),
    "workers.md": Program(
        before="import threading\njobs, feeds = [], set()\n"
        "def run_next_job(fencing_token):\n"
        "    jobs.append(fencing_token)\n"
        "    if len(jobs) == 3: election.close()\n"
        "def fetch(name, fencing_token):\n"
        "    feeds.add(name)\n"
        "    if len(feeds) == 3: threading.Timer(0, worker.close).start()",
        after="assert jobs == [1, 1, 1] and feeds == {'eurusd', 'gbpusd', 'usdjpy'}\n"
        "stored, has_stored = [], threading.Event()\n"
        "def store(invoices, fencing_token):\n"
        "    stored.append(fencing_token)\n"
        "    has_stored.set()\n"
        "with election:\n    has_stored.wait(20)\n"
        "assert set(stored) == {1}",
    ),
}
"""Pages whose blocks are a program."""

AROUND = """
from confluent_kafka import Producer
from kip848_client import EmbeddedBroker

broker = EmbeddedBroker({"orders": 6}, connect_groups=True)
broker.start()
producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
for value in (b"tea", b"milk", b"tea"):
    producer.produce("orders", value=value, partition=0)
assert producer.flush(10) == 0
page = open("page.py").read().replace("localhost:9092", broker.bootstrap_servers)
"""


def code_of(document: Path) -> str:
    """The Python blocks of a document, but for those that need a database."""
    return code_in(POSTGRES.sub("", document.read_text(encoding="utf-8")))


def code_in(text: str) -> str:
    """The Python blocks of a text."""
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def test_every_page_with_code_is_run() -> None:
    """A page that is added with code that never ran would be wrong sooner or later."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if code_of(page)}
    assert pages == {*TESTS, *PROGRAMS}


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_the_examples_of_a_document_run(name: str, tmp_path: Path) -> None:
    """A reader copies them; one that does not work costs more trust than ten that do earn."""
    run_as_tests(code_of(DOCS / name), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(POSTGRES_ADDRESS not in os.environ, reason=f"needs {POSTGRES_ADDRESS}, psycopg and SQLAlchemy")
def test_the_recipes_for_postgres_run(tmp_path: Path) -> None:
    """The same, where there is a database."""
    (recipes,) = POSTGRES.findall((DOCS / "recipes.md").read_text(encoding="utf-8"))
    fixture = (
        f"import os\nimport pytest\n@pytest.fixture\ndef postgres():\n    return os.environ['{POSTGRES_ADDRESS}']\n"
    )
    run_as_tests(fixture + code_in(recipes), tmp_path)


def run_as_tests(code: str, tmp_path: Path) -> None:
    """Run the module of tests that a page is."""
    (tmp_path / "test_document.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--timeout=120", *WITHOUT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{code.count('def test_')} passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_document_runs(name: str, tmp_path: Path) -> None:
    """It is run as it is printed, but for the address of the broker and folders of a machine."""
    program = PROGRAMS[name]
    code = code_of(DOCS / name).replace('"/data', f'"{tmp_path}').replace('"/logs', f'"{tmp_path}/logs')
    code = code.replace('"/reports', f'"{tmp_path}/reports')
    (tmp_path / "page.py").write_text(f"{program.before}\n{code}\n{program.after}\n", encoding="utf-8")
    run = "exec(compile(page, 'page.py', 'exec'))"
    if program.ends_by is not None:
        run = f"try:\n    {run}\n    raise SystemExit('it ended by itself')\nexcept {program.ends_by}:\n    pass"
    done = subprocess.run(
        [sys.executable, "-c", f"{AROUND}\n{run}\nbroker.stop()\n"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
