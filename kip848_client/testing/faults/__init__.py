"""Faults for requests: the request (`rules`), the fault (`actions`), and how it is carried out (`perform`).

Pure: no socket, clock or thread. The embedded broker (`EmbeddedBroker.faults`), the proxy before a real broker
(`testing.broker.proxy.fault_proxy.FaultProxy`) and the simulation share it. Written for tests of programs::

    from kip848_client.testing import ALWAYS, error, lose_reply

    broker.faults.on("OffsetCommit", lose_reply(), group="billing")
    broker.faults.on("heartbeat", error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=3)
"""

from __future__ import annotations

from kip848_client.testing.faults.actions import (
    Action,
    answer,
    close,
    coordinator_not_here,
    cut_reply,
    delay,
    drop,
    duplicate,
    error,
    hold,
    lose_reply,
    pass_through,
    rewrite,
    rewrite_request,
)
from kip848_client.testing.faults.perform import HeldRequest, perform
from kip848_client.testing.faults.rules import ALWAYS, ApiSelector, Decision, FaultBook, Match, Rule, select_apis
from kip848_client.testing.faults.subject import GROUP_APIS, HEARTBEAT_APIS, OpaqueRequest, Subject

__all__ = [
    "error",
    "coordinator_not_here",
    "answer",
    "drop",
    "close",
    "lose_reply",
    "cut_reply",
    "delay",
    "hold",
    "rewrite",
    "rewrite_request",
    "duplicate",
    "pass_through",
    "ALWAYS",
    "GROUP_APIS",
    "HEARTBEAT_APIS",
    "Action",
    "ApiSelector",
    "Match",
    "Rule",
    "FaultBook",
    "Decision",
    "HeldRequest",
    "Subject",
    "OpaqueRequest",
    "perform",
    "select_apis",
]
