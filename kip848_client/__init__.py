"""Kafka consumers for the next-generation rebalance protocol (KIP-848), and an embedded broker to test them with.

The names are listed once, in ``__init__.pyi``. Each is loaded when it is first used (PEP 562), so that a pure core, a
Spark worker or a test run that needs none of it does not load librdkafka.

Four houses: the clients (`consumer`, `aio`, `worker`, `admin` and what they stand on), the test kit (`testing`), the
operators' tools (`tools`), and `spark`. The clients work without the other three.
"""

import lazy_loader

__import__("datetime")  # before msgspec, whose C code imports it, and swallows a Ctrl-C that comes meanwhile

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    from kip848_client.config.other_clients import NAMES

    if name in NAMES:  # an ImportError, because `from ... import` drops the text of an AttributeError
        raise ImportError(f"kip848_client has no {name}: {NAMES[name]}")
    raise AttributeError(f"module 'kip848_client' has no attribute {name!r}")
