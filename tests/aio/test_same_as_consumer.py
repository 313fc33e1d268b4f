"""What is tested of `Consumer` holds for `AsyncConsumer`: the same tests, with an event loop in between.

Those before a scripted coordinator have fixtures of their own, and so files of their own beside this one: test_wire_*.
"""

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
    "test_what_was_committed_by_hand_is_not_repeated": "the same",
    "test_a_commit_in_the_revoked_callback_gives_a_deleted_topic_up_and_keeps_the_others": "it commits without await",
    "test_two_threads_inside_one_consumer_are_told_so": "tasks take turns: test_async_consumer",
}
"""Test -> why it says nothing about AsyncConsumer."""


def _borrow() -> None:
    for module in pkgutil.iter_modules(tests.interop.client.__path__):
        if not module.name.startswith("test_") or module.name.startswith("test_wire_"):
            continue
        lender = importlib.import_module(f"tests.interop.client.{module.name}")
        if hasattr(lender, "broker"):
            continue  # it needs a broker of its own, for something that happens below both consumers
        for name, function in vars(lender).items():
            if not name.startswith("test_") or not inspect.isfunction(function) or name in _SYNCHRONOUS_ONLY:
                continue
            if {"make_consumer"} & inspect.signature(function).parameters.keys():
                globals()[f"{module.name}__{name.removeprefix('test_')}"] = function


_borrow()
