"""A Quix Streams application with exactly-once processing and state in a changelog topic: prints a running sum."""

import sys
import tempfile

from quixstreams import Application

bootstrap, count = sys.argv[1], int(sys.argv[2])
sums: list[int] = []
with tempfile.TemporaryDirectory() as folder:
    app = Application(
        broker_address=bootstrap,
        consumer_group="sums",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
        loglevel="ERROR",
    )
    numbers = app.topic("numbers", value_serializer="json")
    with app.get_producer() as producer:
        for number in range(count):
            message = numbers.serialize(key="all", value=number)
            producer.produce(numbers.name, key=message.key, value=message.value)

    def add(number: int, state) -> int:
        total = state.get("total", 0) + number
        state.set("total", total)
        return total

    app.dataframe(numbers).apply(add, stateful=True).update(sums.append).to_topic(app.topic("sums"))
    app.run(count=count, timeout=60)
print(*sums, sep="\n")
