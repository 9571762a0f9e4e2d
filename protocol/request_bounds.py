"""The part of the table of bounds about requests: what a client can multiply in one body (`protocol.bounds_table`)."""

from protocol import bounds as b
from protocol.bounds import Bound

_BODY = "protocol.body_bounds"
_REFUSED = "400 with what, where, how many, and the bound"
_MULTIPLIED = "tests/unit/test_bounds.py::test_past_its_bound_a_request_is_refused_with_a_clear_error"
_SCHEMA_TESTS = "tests/unit/test_schema_work.py::"
REQUESTS: tuple[Bound, ...] = (
    Bound(
        "request_bytes", "client", "the request body", b.MAX_BODY_BYTES, "bytes", "gateway.routes", "413",
        "tests/e2e/test_bad_input.py::test_a_body_that_is_too_large", "limits.body_bytes",
    ),
    Bound("request_values", "client", "JSON values in a body", b.MAX_BODY_VALUES, "values", _BODY, _REFUSED, _MULTIPLIED),
    Bound("request_fields", "client", "fields at the top of a body", b.MAX_FIELDS, "fields", _BODY, _REFUSED, _MULTIPLIED),
    Bound("messages", "client", "messages", b.MAX_MESSAGES, "messages", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "parts", "client", "parts of all messages, with those of results and documents: texts, images, documents, tool calls, cache marks",
        b.MAX_PARTS, "parts", _BODY, _REFUSED, _MULTIPLIED,
    ),
    Bound(
        "history_values", "client", "JSON values in the arguments of earlier tool calls, together", b.MAX_BODY_VALUES, "values", _BODY,
        _REFUSED, _MULTIPLIED,
    ),
    Bound("history_ids", "client", "an id in messages", b.MAX_REQUEST_ID_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tools", "client", "tools, functions, tools allowed by tool_choice", b.MAX_TOOLS, "tools", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tool_names", "client", "the name of a tool", b.MAX_REQUEST_NAME_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tool_descriptions", "client", "a tool's description", b.MAX_DESCRIPTION_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("schema_bytes", "client", "a JSON Schema, of a tool or of the answer", b.MAX_SCHEMA_BYTES, "bytes", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "schema_expansion", "client", "schemas that one schema unfolds to, with its references", b.MAX_SCHEMA_EXPANSION, "schemas", _BODY,
        _REFUSED, _MULTIPLIED,
    ),
    Bound("references", "client", "references in the schemas of a request", b.MAX_REFERENCES, "references", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "schemas_expansion", "client", "the same of all tools together", b.MAX_SCHEMAS_EXPANSION, "schemas", _BODY, _REFUSED, _MULTIPLIED,
    ),
    Bound(
        "schema_work", "client", "compiling a call's schemas and checking arguments by them", b.MAX_SCHEMA_WORK, "units of 10 ns",
        "policy.schema_work",
        "not checked: schema_valid is null; a replacement and validate_schema block, a deny rule holds, an allow rule does not",
        _SCHEMA_TESTS + "test_the_worst_schema_with_the_worst_arguments_takes_little_time",
    ),
    Bound(
        "schema_depth", "client", "how deep a schema is nested that is written for another provider", b.MAX_SCHEMA_DEPTH, "levels",
        "protocol.json_schema", "400, or the tool goes without strict mode",
        "tests/unit/test_schema.py::test_what_cannot_be_compiled_is_refused_for_another_way",
    ),
    Bound(
        "schema_merged", "client", "properties in alternatives at the top of a tool's schema", b.MAX_SCHEMA_MERGED, "properties",
        "protocol.json_schema", "400", "tests/unit/test_schema.py::test_references_that_double_at_each_step_end_soon",
    ),
    Bound("stop_sequences", "client", "stop sequences", b.MAX_STOPS, "sequences", _BODY, _REFUSED, _MULTIPLIED),
    Bound("stop_chars", "client", "a stop sequence", b.MAX_STOP_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("metadata", "client", "entries of metadata", b.MAX_METADATA, "entries", _BODY, _REFUSED, _MULTIPLIED),
    Bound("mcp_servers", "client", "MCP servers", b.MAX_MCP_SERVERS, "servers", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "model_chars", "client", "the model's name", b.MAX_MODEL_CHARS, "characters", "protocol.fields", "400", _MULTIPLIED,
    ),
    Bound(
        "dropped", "client", "parameters named in x-sluice-dropped and in the record", b.MAX_DROPPED, "names", "protocol.target",
        "the rest is one word", "tests/unit/test_request_attacks.py::test_what_was_left_out_is_noted_up_to_a_bound",
    ),
    Bound(
        "lookups", "client", "earlier tool calls looked up in the record", b.MAX_LOOKUPS, "calls", "policy.session.opening",
        "the last ones are looked up",
        "tests/unit/test_call_turns.py::test_ids_to_look_up_are_the_last_each_once_and_only_of_the_other_dialect",
    ),
    Bound(
        "chained", "client", "earlier answers that a request goes on with", b.MAX_CHAINED, "answers", "db.read.answers", "400",
        "tests/service/test_kept_answers.py::test_a_conversation_is_bounded",
    ),
)  # fmt: skip
