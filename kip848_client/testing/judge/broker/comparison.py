"""Two answers to one step: made comparable, and compared field by field.

What may differ is here and nowhere else, each with its place in docs/differences.md: ids, the first epoch of a group,
and an error text that says more than Kafka's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import Side

_EPOCHS: Final = ("member_epoch", "group_epoch", "assignment_epoch")
_HOSTS: Final = ("host", "client_host")
"""They depend on where the broker runs: here, or in a container."""
_INHERITED: Final = (4, 5)
"""Sources of a setting that is not the group's own: the broker's configuration, or its default."""
_INVALID_CONFIG: Final = 40
_INVALID_REGULAR_EXPRESSION: Final = 128
_OWN_TEXTS: Final = (_INVALID_CONFIG, _INVALID_REGULAR_EXPRESSION)
"""Codes whose text is ours: it gives the bounds of a setting, and what another RE2 engine says of a pattern."""
_EPOCH_IN_TEXT: Final = re.compile(r"(?<=epoch \(|nator \()\d+(?=\))")


def shared_form(side: Side, answer: Json, *, group: str) -> Json:
    """An answer of *side* in terms that both sides share: names for ids, epochs counted alike, lists in order.

    Args:
        group: the group that the answer is about, where it does not say.
    """
    match answer:
        case dict():
            described = answer.get("group_id")
            if isinstance(described, str):
                group = side.label(described)
            offset = side.epoch_offset.get(group, 0)
            found: dict[str, Json] = {}
            for name, value in answer.items():
                if name == "throttle_time_ms":
                    continue
                if name in _HOSTS:
                    value = bool(value)
                if name == "config_source" and value in _INHERITED:
                    value = "inherited"
                if name in _EPOCHS and isinstance(value, int) and value > 0:
                    value -= offset
                if name == "error_message" and isinstance(value, str):
                    value = _EPOCH_IN_TEXT.sub(lambda number: str(max(int(number[0]) - offset, 0)), value)
                found[name] = shared_form(side, value, group=group)
            return found
        case list():
            return sorted((shared_form(side, item, group=group) for item in answer), key=json.dumps)
        case int() if answer == side.port:
            return "its port"
        case str():
            return side.label(answer)
        case _:
            return answer


def disagreements(ours: Json, kafka: Json, *, at: str = "") -> Iterator[str]:
    """Every place where two answers in shared form differ."""
    match ours, kafka:
        case dict(), dict():
            for name in sorted(ours.keys() | kafka.keys()):
                path = f"{at}.{name}" if at else name
                if name not in ours or name not in kafka:
                    yield f"{path}: only {'ours' if name in ours else 'Kafka'} has it"
                elif name == "error_message" and kafka.get("error_code") in _OWN_TEXTS:
                    if not ours[name]:
                        yield f"{path}: ours says nothing, Kafka {json.dumps(kafka[name])}"
                elif name == "error_message":
                    yield from _texts(ours[name], kafka[name], at=path)
                else:
                    yield from disagreements(ours[name], kafka[name], at=path)
        case list(), list() if len(ours) == len(kafka):
            for index, (one, other) in enumerate(zip(ours, kafka, strict=True)):
                yield from disagreements(one, other, at=f"{at}[{index}]")
        case _ if ours != kafka or type(ours) is not type(kafka):
            yield f"{at}: ours {json.dumps(ours)}, Kafka {json.dumps(kafka)}"


def _texts(ours: Json, kafka: Json, *, at: str) -> Iterator[str]:
    """Kafka's text, or one that begins with it and goes on to say what to do."""
    if isinstance(ours, str) and isinstance(kafka, str) and ours.startswith(kafka.rstrip(".")):
        return
    if ours != kafka:
        yield f"{at}: ours {json.dumps(ours)}, Kafka {json.dumps(kafka)}"


def brief(answer: Mapping[str, Json]) -> str:
    """An answer on one line: what is null, empty or no error is left out."""
    return json.dumps(_dense(dict(answer)), ensure_ascii=False)


def _dense(value: Json) -> Json:
    match value:
        case dict():
            return {
                name: _dense(item)
                for name, item in value.items()
                if item is not None and item != "" and not (name == "error_code" and item == 0)
            }
        case list():
            return [_dense(item) for item in value]
        case _:
            return value
