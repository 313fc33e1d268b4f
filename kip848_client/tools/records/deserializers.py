"""``--key-as`` and ``--value-as``: confluent-kafka's deserialisers, with schemas from a registry."""

from __future__ import annotations

import argparse
import importlib
import struct
from collections.abc import Callable
from typing import Any, Final

from kip848_client.errors import ConfigError

Deserialize = Callable[[Any, Any], Any]

_HOW: Final = "avro, json-schema, protobuf:MODULE:CLASS (of generated code), string, int, long, double"
_NUMBERS: Final = {"int": ">i", "long": ">q", "double": ">d"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    for name in ("key", "value"):
        parser.add_argument(f"--{name}-as", metavar="HOW", help=f"how to read the {name}: {_HOW}")
    parser.add_argument("--registry", metavar="URL", help="the schema registry, for avro, json-schema and protobuf")


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The deserialisers as settings of a consumer.

    Raises:
        ConfigError: there is no such format or class, a package is missing, or no registry is named.
    """
    found = {}
    for name in ("key", "value"):
        how = getattr(arguments, f"{name}_as")
        if how is not None:
            found[f"{name}.deserializer"] = _deserializer(f"--{name}-as {how}", how, arguments.registry)
    return found


def _deserializer(option: str, how: str, registry: str | None) -> Deserialize:
    if how == "string":
        return lambda data, _: None if data is None else data.decode()
    if how in _NUMBERS:
        layout = _NUMBERS[how]
        return lambda data, _: None if data is None else struct.unpack(layout, data)[0]
    kind, _, name = how.partition(":")
    if kind not in {"avro", "json-schema", "protobuf"} or (kind == "protobuf") != bool(name):
        raise ConfigError(f"{option}: there are {_HOW}")
    if registry is None:
        raise ConfigError(f"{option}: name the schema registry with --registry URL")
    try:
        return _of_registry(option, kind, name, registry)
    except ImportError as error:
        wanted = {"json-schema": "json"}.get(kind, kind)
        raise ConfigError(f"{option}: {error}; pip install 'confluent-kafka[{wanted},schemaregistry]'") from error


def _of_registry(option: str, kind: str, name: str, url: str) -> Deserialize:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    client = SchemaRegistryClient({"url": url})
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        read_avro: Deserialize = AvroDeserializer(client)
        return read_avro
    if kind == "json-schema":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        read_json: Deserialize = JSONDeserializer(None, schema_registry_client=client)
        return read_json
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from google.protobuf.json_format import MessageToDict

    module, _, of_module = name.partition(":")
    message_type = getattr(importlib.import_module(module), of_module, None)
    if message_type is None:
        raise ConfigError(f"{option}: module {module} has no class {of_module!r}")
    read = ProtobufDeserializer(message_type, {"use.deprecated.format": False}, client)

    def as_dict(data: Any, context: Any) -> Any:
        message = read(data, context)
        return None if message is None else MessageToDict(message, preserving_proto_field_name=True)

    return as_dict
