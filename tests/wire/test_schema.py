"""The declarations themselves: versions, frozenness, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest
from msgspec.structs import replace

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.compiler.compiler import source_of
from kip848_client.wire.messages import message_pair, supported_api_keys
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kip848_client.wire.schema import INT32, ArrayOf, Int32, Versions, WireStruct, fields_of, wire
from tests.support.waiting import TIMEOUT_S
from tests.wire.strategies import Case, all_cases


@pytest.mark.parametrize("key", sorted(supported_api_keys()), ids=lambda key: ApiKey(key).name)
def test_request_and_response_belong_together(key: ApiKey) -> None:
    """An answer decoded with another range than its request's is garbage."""
    request, response = message_pair(key)

    assert replace(request.WIRE, answered_by={}) == response.WIRE
    assert request.WIRE.api_key == key
    assert request() == request()
    assert response() == response()


def test_an_unknown_key_has_no_messages() -> None:
    """Callers recognise an API that is not spoken here by KeyError."""
    for key in (ApiKey.LEADER_AND_ISR, 12345):
        with pytest.raises(KeyError):
            message_pair(key)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_every_version_has_readable_source(case: Case) -> None:
    """A codec bug is found by reading this source in a debugger."""
    for text in source_of(case.cls, case.version):
        assert text.startswith("def ")
        assert max(map(len, text.splitlines())) < 1000


def test_messages_are_frozen_slotted_and_hashable() -> None:
    """Cores keep them in sets and hand them around; a change under their feet would be invisible."""
    group = OffsetFetchRequestGroup(group_id="g")
    request = OffsetFetchRequest(groups=(group,))

    assert not hasattr(request, "__dict__")
    assert {request: 1}[replace(request)] == 1
    with pytest.raises(AttributeError):
        group.group_id = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 1, 99], [-1]), ("2-4", [2, 4], [1, 5]), ("1", [1], [0, 2]), ("none", [], [-1, 0, 1])],
)
def test_versions_are_read_as_kafka_writes_them(text: str, inside: list[int], outside: list[int]) -> None:
    """One off, and a field travels in a version that does not have it."""
    versions = Versions.parse(text)

    assert str(versions) == text
    assert all(versions.includes(version) for version in inside)
    assert not any(versions.includes(version) for version in outside)


class Numbers(WireStruct, frozen=True):
    """A struct with one optional array."""

    numbers: Annotated[tuple[Int32, ...] | None, wire("1+", nullable="2+", tag=7, ignorable=True)] = None


class Wrong(WireStruct, frozen=True):
    """A struct whose field does not say how wide it is."""

    number: Annotated[int, wire("0+")] = 0


def test_an_int_without_a_width_is_refused() -> None:
    """A guessed width would shift every field behind it."""
    with pytest.raises(TypeError, match=r"Wrong.number: .*int.* has no wire type"):
        fields_of(Wrong)


def test_a_field_says_all_that_its_declaration_said() -> None:
    """The compiler reads nothing else, so a lost property would change bytes on the wire."""

    (field,) = fields_of(Numbers)

    assert (field.name, field.kind, field.tag, field.default, field.ignorable) == (
        "numbers",
        ArrayOf(INT32),
        7,
        None,
        True,
    )
    assert (str(field.versions), str(field.nullable), str(field.tagged)) == ("1+", "2+", "1+")
    assert (field.is_tagged(0), field.is_tagged(1)) == (False, True)


def test_the_codec_loads_neither_the_network_nor_unused_messages() -> None:
    """A core, a Spark worker and every pytest start import it."""
    script = (
        "import sys; import kip848_client.wire.codec, kip848_client.wire.messages.consumer_group_heartbeat;"
        "loaded = {m for m in sys.modules if m.startswith('kip848_client.wire.messages.')};"
        "assert loaded == {'kip848_client.wire.messages.consumer_group_heartbeat'}, loaded;"
        "assert not {'anyio', 'asyncio', 'socket', 'ssl', 'confluent_kafka'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )

    assert done.returncode == 0, done.stderr
