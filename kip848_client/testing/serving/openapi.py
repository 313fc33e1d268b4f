"""The description of the control port in OpenAPI 3.1, made from the calls themselves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kip848_client.common.version import __version__
from kip848_client.testing.serving.control_calls import Call


def description(calls: Mapping[str, Call], *, with_token: bool) -> dict[str, object]:
    """Describe every call.

    Args:
        with_token: requests need a bearer token.
    """
    arguments = [call.arguments for call in calls.values()]
    results, schemas = msgspec.json.schema_components(
        [*(call.result for call in calls.values()), *arguments], ref_template="#/components/schemas/{name}"
    )
    schemas["FaultAction"] |= {"minProperties": 1, "maxProperties": 1}
    schemas["Error"] = {
        "type": "object",
        "properties": {
            "error": {"type": "string", "description": "the kind of error"},
            "message": {"type": "string", "description": "what was seen, and what to do"},
            "code": {"type": "string", "description": "Kafka's name for it, of errors that a broker would send"},
        },
        "required": ["error", "message"],
    }
    components: dict[str, object] = {"schemas": schemas}
    whole: dict[str, object] = {
        "openapi": "3.1.0",
        "info": {"title": "Control port of kip848 broker", "version": __version__},
        "servers": [{"url": "/"}],
        "tags": [{"name": room} for room in dict.fromkeys(path.partition("/")[0] for path in calls)],
        "paths": {
            f"/{path}": {"post": _operation(path, call, result)}
            for (path, call), result in zip(calls.items(), results, strict=False)
        },
        "components": components,
        "security": [],
    }
    _suit_generators(whole)
    if with_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"token": []}]
    return whole


def _operation(path: str, call: Call, result: object) -> dict[str, object]:
    summary, _, more = call.text.replace("``", "`").partition("\n")
    return {
        "operationId": path.replace("/", "_"),
        "tags": [path.partition("/")[0]],
        "summary": summary,
        "description": more.strip() or summary,
        "requestBody": {
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{call.arguments.__name__}"}}},
            "required": any(field.required for field in msgspec.structs.fields(call.arguments)),
        },
        "responses": {
            "200": {"description": "the result", "content": {"application/json": {"schema": result}}},
            "default": {
                "description": "refused; the status says how, the message why",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }


def _suit_generators(part: object) -> None:
    """Say what programs that generate clients need to know.

    They take 32 bits for a number without a format, and a time in ms needs more; the values of an enumeration need
    their type; and a default that is null or an empty list cannot be written in all languages.
    """
    if isinstance(part, dict):
        if (form := {"integer": "int64", "number": "double"}.get(str(part.get("type")))) is not None:
            part["format"] = form
        if "enum" in part:
            part.setdefault("type", "string")
        if part.get("default", 0) in ([], None):
            del part["default"]
        for each in part.values():
            _suit_generators(each)
    elif isinstance(part, list):
        for each in part:
            _suit_generators(each)
