"""The version of this package, here because importlib.metadata takes as long to import as half of the consumer."""

__version__: str = "0.1.0"
