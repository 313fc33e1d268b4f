"""A FastStream service on confluent-kafka or aiokafka: doubles numbers into another topic, and prints them."""

import asyncio
import sys

from faststream import FastStream

client, bootstrap, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if client == "confluent":
    from faststream.confluent import KafkaBroker
else:
    from faststream.kafka import KafkaBroker

broker = KafkaBroker(bootstrap, logger=None)
app = FastStream(broker, logger=None)
doubled: list[int] = []


@broker.subscriber("numbers", group_id="doubles", auto_offset_reset="earliest")
@broker.publisher("doubled")
async def double(number: int) -> int:
    return 2 * number


@broker.subscriber("doubled", group_id="prints", auto_offset_reset="earliest", batch=True)
async def collect(numbers: list[int]) -> None:
    doubled.extend(numbers)
    if len(doubled) == count:
        app.exit()


@app.after_startup
async def publish() -> None:
    for number in range(count):
        await broker.publish(number, "numbers")


asyncio.run(app.run())
print(*sorted(doubled), sep="\n")
