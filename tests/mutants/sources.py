"""The modules that are mutated, and where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TARGETS: Final = (
    "kip848_client.member",
    "kip848_client.coordinator",
    "kip848_client.coordinator.core",
    "kip848_client.coordinator.modern",
    "kip848_client.coordinator.consumer",
    "kip848_client.coordinator.classic",
    "kip848_client.coordinator.connect",
    "kip848_client.coordinator.migration",
    "kip848_client.coordinator.offsets",
    "kip848_client.worker",
    "kip848_client.transactions",
    "kip848_client.partition_log",
    "kip848_client.producer_batches",
    "kip848_client.broker.transaction_admission",
)
"""Packages and modules."""
_SHELLS: Final = frozenset({"base", "callbacks", "config", "host", "observer", "runners", "worker"})
"""Modules of `kip848_client.worker` that are no part of its core."""


def modules() -> tuple[str, ...]:
    """Names of all modules that may be mutated, ascending."""
    packages = [name for name in TARGETS if not path_of(name).exists()]
    return tuple(name for name in TARGETS if name not in packages) + tuple(
        f"{package}.{path.stem}"
        for package in packages
        for path in sorted((ROOT / package.replace(".", "/")).glob("*.py"))
        if path.stem != "__init__" and not (package.endswith(".worker") and path.stem in _SHELLS)
    )


def path_of(module: str) -> Path:
    """The file of a module."""
    return ROOT / (module.replace(".", "/") + ".py")


def short(module: str) -> str:
    """``kip848_client.member.heartbeat`` as ``member/heartbeat``."""
    return module.removeprefix("kip848_client.").replace(".", "/")
