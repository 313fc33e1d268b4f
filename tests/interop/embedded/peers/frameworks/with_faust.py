"""A Faust worker with a table: prints how often it has seen each number, which is once."""

import os
import signal
import sys

import faust

bootstrap, count = sys.argv[1], int(sys.argv[2])
app = faust.App("seen", broker=f"aiokafka://{bootstrap}", store="memory://", web_enabled=False, topic_partitions=1)
numbers = app.topic("numbers", key_type=str, value_type=int, partitions=1)
seen = app.Table("seen", default=int, partitions=1)


@app.agent(numbers)
async def look(stream: faust.Stream) -> None:
    async for number in stream:
        seen[number] += 1
        if len(seen) == count:
            print(*(seen[value] for value in range(count)), sep="\n", file=sys.__stdout__, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)  # the worker stops its agents, this one too


@app.task
async def send() -> None:
    for number in range(count):
        await numbers.send(key="all", value=number)


worker = faust.Worker(app, loglevel="ERROR")
worker.execute_from_commandline()
