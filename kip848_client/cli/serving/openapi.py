"""The description of the control port in OpenAPI 3.1, made from the calls themselves."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

import msgspec

from kip848_client.cli.serving.control_calls import Call

__all__ = ["description"]


def description(calls: Mapping[str, Call], *, with_token: bool) -> dict[str, object]:
    """Describe every call.

    Args:
        with_token: requests need a bearer token.
    """
    kinds = [call.arguments for call in calls.values()]
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas["Error"] = {
        "type": "object",
        "properties": {
            "error": {"type": "string", "description": "the class of the error"},
            "message": {"type": "string", "description": "what was seen, and what to do"},
            "code": {"type": "string", "description": "Kafka's name for it, of errors that a broker would send"},
        },
        "required": ["error", "message"],
    }
    components: dict[str, object] = {"schemas": schemas}
    whole: dict[str, object] = {
        "openapi": "3.1.0",
        "info": {"title": "Control port of kip848 broker", "version": importlib.metadata.version("kip848_client")},
        "paths": {f"/{path}": {"post": _operation(path, call)} for path, call in calls.items()},
        "components": components,
    }
    if with_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"token": []}]
    return whole


def _operation(path: str, call: Call) -> dict[str, object]:
    summary, _, more = call.text.partition("\n")
    return {
        "operationId": path.replace("/", "_"),
        "tags": [path.partition("/")[0]],
        "summary": summary,
        "description": more.strip(),
        "requestBody": {
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{call.arguments.__name__}"}}}
        },
        "responses": {
            "200": {"description": "the result", "content": {"application/json": {}}},
            "default": {
                "description": "refused",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
