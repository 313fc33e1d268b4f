"""The test kit: the embedded broker with its reference coordinator, faults, a proxy before a real Kafka, simulation.

Its names for tests of programs are listed once, in ``__init__.pyi``; each is loaded when it is first used, so that the
pytest plugin and the pure cores load no broker. The simulation has names of its own (`testing.simulation`). Not here:
commands that ask a cluster (`kip848_client.tools`), and Spark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
