"""The OpenAPI document of the audit API, made of its routes and of the filters that they take. Must
not know: SQL, what answers a route."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.routing import BaseRoute

from db.filters import MAX_LIMIT, Asked, Filter, filters_of
from db.read.counts import DEFAULT_BY, USAGE_BY, Dimension, UsageGroup
from db.read.json_rows import JsonObject
from db.write.approvals import VOTES
from db.write.reviews import LABELS, MAX_NOTE_CHARS
from settings.config import Role
from settings.defaults import VERSION

_TIMES = "2026-01-31 or 2026-01-31T12:00:00Z"
_BY: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "counts": (list(Dimension), DEFAULT_BY),
    "usage": (list(UsageGroup), USAGE_BY),
}
ERRORS: dict[int, tuple[str, Sequence[str]]] = {
    400: (
        "The request is wrong; the message and `param` say where.",
        (
            "invalid_request",
            "repeated_header",
            "target_too_long",
            "not_a_call_id",
            "ambiguous_call_id",
            "http_error",
        ),
    ),
    401: ("No key, not one of this gateway's, or one that has expired.", ("invalid_api_key",)),
    403: ("The key does not have the role for this.", ("wrong_role", "own_call")),
    404: ("No such path or call.", ("not_found", "unknown_path", "not_audited")),
    405: ("Another method is served at this path.", ("method_not_allowed",)),
    503: (
        "The record cannot be read now: try again after `retry-after`.",
        ("audit_unavailable", "gateway_descriptors", "gateway_memory"),
    ),
}
"""By status: when, and the codes that say more exactly. docs/use/api.md has the same."""
ERRORS_OF_BODIES: dict[int, tuple[str, Sequence[str]]] = {
    400: (ERRORS[400][0], (*ERRORS[400][1], "invalid_json", "body_lost")),
    408: ("The body did not arrive in time.", ("body_timeout",)),
    409: (
        "It does not go with what somebody said before.",
        ("already_reviewed", "too_many_reviews", "already_decided"),
    ),
    413: ("The body is too large.", ("request_too_large",)),
}
REVIEW: JsonObject = {
    "type": "object",
    "required": ["label"],
    "additionalProperties": False,
    "properties": {
        "label": {"enum": list(LABELS)},
        "note": {"type": "string", "maxLength": MAX_NOTE_CHARS},
        "second": {
            "type": "boolean",
            "description": "Keep the label also where another auditor was first.",
        },
    },
}
DECISION: JsonObject = {
    "type": "object",
    "required": ["decision"],
    "additionalProperties": False,
    "properties": {
        "decision": {"enum": list(VOTES)},
        "note": {"type": "string", "maxLength": MAX_NOTE_CHARS},
        "arguments": {
            "type": "string",
            "description": "The text of a JSON object: the call gets it for its arguments.",
        },
    },
}
"""The bodies of what is posted."""
_PAGE = {
    "type": "object",
    "required": ["items"],
    "properties": {
        "items": {"type": "array", "items": {"type": "object"}},
        "next_cursor": {"type": ["string", "null"]},
    },
}
_ANSWERS: dict[str, dict[str, Any]] = {
    "page": {"application/json": {"schema": _PAGE}},
    "object": {"application/json": {"schema": {"type": "object"}}},
    "lines": {"application/x-ndjson": {"schema": {"type": "string"}}},
}


AUDITORS: tuple[Role, ...] = ("auditor",)


class Offer(NamedTuple):
    """A route: its path below /audit, its handler, the filters that it takes, and its purpose."""

    path: str
    endpoint: Callable[..., Awaitable[Response]]
    asked: Asked | None
    about: str
    answer: Literal["page", "object", "lines"] = "object"
    body: JsonObject | None = None
    """The schema of what is posted."""
    roles: tuple[Role, ...] = AUDITORS
    """A key needs one of them."""

    @property
    def method(self) -> Literal["GET", "POST"]:
        """What is sent is posted."""
        return "GET" if self.body is None else "POST"

    @property
    def options(self) -> dict[str, Any]:
        """What FastAPI needs to know of it for the document."""
        has_body = self.body is not None
        errors = ERRORS | (ERRORS_OF_BODIES if has_body else {})
        good = {"description": self.about, "content": _ANSWERS[self.answer]}
        extra: JsonObject = {"parameters": [] if self.asked is None else _parameters(self.asked)}
        if has_body:
            extra["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": self.body}},
            }
        return {
            "methods": [self.method],
            "summary": self.about,
            "openapi_extra": extra,
            "response_class": Response,
            "operation_id": "_".join(re.findall(r"\w+", self.path)) + "_post" * has_body,
            "responses": (
                {200: good}
                | ({201: good} if has_body else {})
                | {status: _error(says, codes) for status, (says, codes) in errors.items()}
                # in place of the answer that FastAPI would give to a wrong parameter of its own
                | {"default": {"description": "Another error.", "content": _ERROR}}
            ),
        }


def document(routes: Sequence[BaseRoute]) -> JsonObject:
    """Return the document of these routes."""
    schema = get_openapi(
        title="Sluice audit API",
        version=VERSION,
        routes=routes,
        description=(
            "The record of calls, for keys with the role auditor; requests for approval, for those"
            " with the role approver too. docs/use/api.md says what each field means."
        ),
    )
    schema["components"] = {
        "schemas": {"Error": _error_schema()},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
    schema["security"] = [{"bearer": []}, {"x-api-key": []}]
    return schema


_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def _error(says: str, codes: Sequence[str]) -> JsonObject:
    narrowed = {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}}
    return {
        "description": says,
        "content": {
            "application/json": {"schema": {**_ERROR["application/json"]["schema"], **narrowed}}
        },
    }


def _error_schema() -> JsonObject:
    words = {"type": "string"}
    kinds = {"enum": ["invalid_request_error", "server_error"]}
    fields = {"message": words, "type": kinds, "code": words, "param": {"type": ["string", "null"]}}
    return {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "required": list(fields), "properties": fields}},
    }


def _parameters(asked: Asked) -> list[JsonObject]:
    parameters = [_parameter(filter_) for filter_ in filters_of(asked)]
    if asked in _BY:
        names, default = _BY[asked]
        about = f"What to count by, commas between: {', '.join(names)}."
        parameters.append(
            _query("by", about, {"type": "string", "default": ",".join(map(str, default))})
        )
    return parameters


def _parameter(filter_: Filter) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    if filter_.name == "limit":
        schema = {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "default": int(filter_.default),
        }
    elif filter_.values:
        schema["enum"] = list(filter_.values)
        schema |= {"default": filter_.default} if filter_.default else {}
    return _query(
        filter_.name, filter_.help.format(forms=_TIMES).replace("local time", "UTC"), schema
    )


def _query(name: str, about: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}
