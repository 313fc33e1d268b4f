"""SCRAM mechanisms as numbers on the wire. No API of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's number of a mechanism -> its name."""
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
