"""What is tested of `Consumer` holds for `AsyncConsumer`: the same tests, with an event loop in between."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import tests.interop.client

pytestmark = pytest.mark.interop

_SYNCHRONOUS_ONLY: dict[str, str] = {
    "test_every_record_is_delivered_exactly_once": "its members are threads, each with a Consumer",
    "test_ctrl_c_inside_a_listener_leaves_a_consumer_that_works": "it ends an event loop: test_cancellation",
    "test_no_record_is_skipped": "a signal ends an event loop: test_cancellation",
    "test_two_threads_inside_one_consumer_are_told_so": "tasks take turns: test_async_consumer",
}
"""Test -> why it says nothing about AsyncConsumer."""


def _borrow() -> None:
    for module in pkgutil.iter_modules(tests.interop.client.__path__):
        if not module.name.startswith("test_"):
            continue
        for name, function in vars(importlib.import_module(f"tests.interop.client.{module.name}")).items():
            if not name.startswith("test_") or not inspect.isfunction(function) or name in _SYNCHRONOUS_ONLY:
                continue
            if {"make_consumer", "watch"} & inspect.signature(function).parameters.keys():
                globals()[f"{module.name}__{name.removeprefix('test_')}"] = function


_borrow()
