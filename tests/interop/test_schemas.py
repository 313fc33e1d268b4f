"""Our declarations of messages against Apache Kafka's, which its jar of clients contains as JSON files."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import ArrayOf, FieldSpec, Request, Scalar, Versions, WireStruct, fields_of
from tests.interop.conftest import require_kafka
from tests.interop.kafka_libs import kafka_libs, kafka_version
from tests.wire.strategies import PRIVATE_TAG_FIRST, Case, all_cases

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

FIRST_PRIVATE_KEY: Final = ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT
CASES: Final = [case for case in all_cases() if case.cls.WIRE.api_key < FIRST_PRIVATE_KEY]

Definition = Mapping[str, Any]


class Shape(NamedTuple):
    """What decides the bytes of a field in one version, and the bytes that are left out."""

    kind: str
    is_nullable: bool
    tag: int | None
    parts: tuple[Shape, ...]


@pytest.fixture(scope="module")
def definitions() -> dict[tuple[int, str], Definition]:
    """(API key, "request" or "response") -> Kafka's definition."""
    require_kafka()
    found = {}
    with zipfile.ZipFile(kafka_libs() / f"kafka-clients-{kafka_version()}.jar") as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["apiKey"], definition["type"]] = definition
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_we_declare_what_kafka_does(case: Case, definitions: dict[tuple[int, str], Definition]) -> None:
    """A field of another type, or in another place, makes the peer misread all that follows it."""
    kafka = definitions[case.cls.WIRE.api_key, "request" if issubclass(case.cls, Request) else "response"]

    assert Versions.parse(kafka["validVersions"]).includes(case.version)
    is_flexible = Versions.parse(kafka["flexibleVersions"]).includes(case.version)
    assert case.cls.WIRE.flexible.includes(case.version) == is_flexible
    common = {struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", ())}
    assert tuple(_ours(case.cls, case.version)) == tuple(_kafkas(kafka["fields"], case.version, common))


def test_every_api_of_kafka_has_its_key(definitions: dict[tuple[int, str], Definition]) -> None:
    """The page about the broker names each key that is not served."""
    kafkas = {
        (key, definition["name"].removesuffix("Request").lower())
        for (key, kind), definition in definitions.items()
        if kind == "request" and definition["validVersions"] != "none"
    }
    assert kafkas <= {(int(key), key.name.replace("_", "").lower()) for key in ApiKey}


def _ours(cls: type[WireStruct], version: int) -> Iterator[Shape]:
    for field in fields_of(cls):
        if field.versions.includes(version) and (field.tag or 0) < PRIVATE_TAG_FIRST:
            yield _our_shape(field, version)


def _our_shape(field: FieldSpec, version: int) -> Shape:
    kind, prefix = (field.kind.element, "[]") if isinstance(field.kind, ArrayOf) else (field.kind, "")
    tag = field.tag if field.is_tagged(version) else None
    if isinstance(kind, Scalar):
        is_nullable = kind.name == "records" or field.nullable.includes(version)
        return Shape(prefix + kind.name, is_nullable, tag, ())
    return Shape(prefix + "struct", field.nullable.includes(version), tag, tuple(_ours(kind, version)))


def _kafkas(fields: list[Definition], version: int, common: Mapping[str, list[Definition]]) -> Iterator[Shape]:
    for field in fields:
        if not Versions.parse(field.get("versions", "0+")).includes(version):
            continue
        prefix, kind = re.fullmatch(r"(\[\])?(\w+)", field["type"]).groups(default="")  # type: ignore[union-attr]
        is_nullable = kind == "records" or Versions.parse(field.get("nullableVersions", "none")).includes(version)
        is_tagged = Versions.parse(field.get("taggedVersions", "none")).includes(version)
        parts = field.get("fields", common.get(kind))
        yield Shape(
            prefix + (kind if parts is None else "struct"),
            is_nullable,
            field["tag"] if is_tagged else None,
            () if parts is None else tuple(_kafkas(parts, version, common)),
        )
