"""What others can multiply, and how often: every bound in one table, from which docs/bounds.md is made.

A client, an upstream, the author of a policy or a configuration can send more of anything than one call is worth. Each
such thing has a bound here, the module that keeps it, what happens past it, and the test that multiplies it. Bounds that
an operator may change stand in `protocol.config.Limits`; the table names them.

Must not know: who keeps them.
"""

from dataclasses import dataclass
from typing import Literal

From = Literal["client", "upstream", "policy", "configuration"]
"""Who can multiply it; `policy` is a policy's author."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound. `limit` counts `unit`; `setting` is its name in the configuration, where it has one."""

    name: str
    """A stable word, unique in the table."""
    by: From
    what: str
    limit: float
    unit: str
    keeper: str
    """The module that refuses more."""
    past: str
    """What happens then, as the one who did it sees it."""
    test: str
    """`tests/...py::test_name`, which multiplies it."""
    setting: str = ""


# The numbers. One place: the keepers import them from here.

MAX_MESSAGES = 10_000
MAX_PARTS = 25_000
MAX_TOOLS = 1_000
MAX_BODY_VALUES = 200_000
"""JSON values in a request: objects, lists, strings, numbers. Parsing takes a microsecond for each at worst."""
MAX_FIELDS = 200
MAX_REQUEST_NAME_CHARS = 256
"""Of tools, by the client: longer than any provider takes, for names are made fit and turned back."""
MAX_DESCRIPTION_CHARS = 100_000
MAX_SCHEMA_BYTES = 1 << 20
MAX_STOPS = 1_000
MAX_STOP_CHARS = 4_096
MAX_METADATA = 64
MAX_MCP_SERVERS = 64
MAX_REQUEST_ID_CHARS = 4_096
"""Ids in a client's history: some gateways hide signatures in them."""
MAX_SCHEMA_EXPANSION = 20_000
MAX_SCHEMAS_EXPANSION = 100_000
"""Of all schemas of a request."""
MAX_REFERENCES = 5_000
"""In all schemas of a request."""
MAX_SCHEMA_WORK = 10_000_000
"""Units of about 10 ns: what compiling a call's schemas and checking values by them may take, about 100 ms."""
MAX_ARGUMENT_VALUES = 100_000
"""JSON values in the arguments of one tool call."""
MAX_EVENT_LINES = 1_000
MAX_EVENT_VALUES = 200_000
MAX_ANSWER_VALUES = 1_000_000
"""Of a whole answer: with log probabilities a token has some 150."""
MAX_TOOL_CALLS = 128
MAX_TEXT_CALLS = 100
MAX_NAME_CHARS = 128
MAX_ID_CHARS = 256
MAX_BODY_BYTES = 16 * 2**20
MAX_OUTPUT_BYTES = 32 * 2**20
MAX_EVENT_BYTES = 8 * 2**20
MAX_MODEL_CHARS = 200
MAX_SCHEMA_DEPTH = 100
MAX_SCHEMA_MERGED = 2_000
"""Properties looked at while alternatives at the top of a schema are merged."""
MAX_IMAGE_BYTES = 20 * 2**20
MAX_DROPPED = 200
MAX_LOOKUPS = 256
MAX_TURN_BYTES = 32 * 2**20
MAX_SEGMENTS = 8
MAX_CARRIED_CHARS = 4 * 2**20
MAX_OPAQUE_NOTES = 100
MAX_CHECKED_CHARS = 1 << 20
MAX_EXTRA_DEPTH, MAX_EXTRA_VALUES, MAX_EXTRA_CHARS = 6, 1_000, 4_096
MAX_PATTERN_CHARS = 10_000
MAX_SERIES = 32
MAX_RULES = 1_000
MAX_HEAD_BYTES = 64 * 1024
MAX_BETAS = 64
MAX_KEY_CHARS = 512
MAX_PAGE = 1_000
MAX_FILTER_CHARS = 1_000

# --- requests ---
_BODY = "protocol.body_bounds"
_REFUSED = "400 with what, where, how many, and the bound"
_MULTIPLIED = "tests/unit/test_bounds.py::test_past_its_bound_a_request_is_refused_with_a_clear_error"
_SCHEMA_TESTS = "tests/unit/test_schema_work.py::"
_REQUESTS: tuple[Bound, ...] = (
    Bound(
        "request_bytes", "client", "the request body", MAX_BODY_BYTES, "bytes", "gateway.app", "413",
        "tests/e2e/test_bad_input.py::test_a_body_that_is_too_large", "limits.body_bytes",
    ),
    Bound("request_values", "client", "JSON values in a body", MAX_BODY_VALUES, "values", _BODY, _REFUSED, _MULTIPLIED),
    Bound("request_fields", "client", "fields at the top of a body", MAX_FIELDS, "fields", _BODY, _REFUSED, _MULTIPLIED),
    Bound("messages", "client", "messages", MAX_MESSAGES, "messages", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "parts", "client", "parts of all messages, with those of results and documents: texts, images, documents, tool calls, cache marks",
        MAX_PARTS, "parts", _BODY, _REFUSED, _MULTIPLIED,
    ),
    Bound(
        "history_values", "client", "JSON values in the arguments of earlier tool calls, together", MAX_BODY_VALUES, "values", _BODY,
        _REFUSED, _MULTIPLIED,
    ),
    Bound("history_ids", "client", "an id in messages", MAX_REQUEST_ID_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tools", "client", "tools, functions, tools allowed by tool_choice", MAX_TOOLS, "tools", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tool_names", "client", "the name of a tool", MAX_REQUEST_NAME_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("tool_descriptions", "client", "a tool's description", MAX_DESCRIPTION_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("schema_bytes", "client", "a JSON Schema, of a tool or of the answer", MAX_SCHEMA_BYTES, "bytes", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "schema_expansion", "client", "schemas that one schema unfolds to, with its references", MAX_SCHEMA_EXPANSION, "schemas", _BODY,
        _REFUSED, _MULTIPLIED,
    ),
    Bound("references", "client", "references in the schemas of a request", MAX_REFERENCES, "references", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "schemas_expansion", "client", "the same of all tools together", MAX_SCHEMAS_EXPANSION, "schemas", _BODY, _REFUSED, _MULTIPLIED,
    ),
    Bound(
        "schema_work", "client", "compiling a call's schemas and checking arguments by them", MAX_SCHEMA_WORK, "units of 10 ns",
        "policy.schema_work",
        "not checked: schema_valid is null; a replacement and validate_schema block, a deny rule holds, an allow rule does not",
        _SCHEMA_TESTS + "test_the_worst_schema_with_the_worst_arguments_takes_little_time",
    ),
    Bound(
        "schema_depth", "client", "how deep a schema is nested that is written for another provider", MAX_SCHEMA_DEPTH, "levels",
        "protocol.schema", "400, or the tool goes without strict mode",
        "tests/unit/test_schema.py::test_what_cannot_be_compiled_is_refused_for_another_way",
    ),
    Bound(
        "schema_merged", "client", "properties in alternatives at the top of a tool's schema", MAX_SCHEMA_MERGED, "properties",
        "protocol.schema", "400", "tests/unit/test_schema.py::test_references_that_double_at_each_step_end_soon",
    ),
    Bound("stop_sequences", "client", "stop sequences", MAX_STOPS, "sequences", _BODY, _REFUSED, _MULTIPLIED),
    Bound("stop_chars", "client", "a stop sequence", MAX_STOP_CHARS, "characters", _BODY, _REFUSED, _MULTIPLIED),
    Bound("metadata", "client", "entries of metadata", MAX_METADATA, "entries", _BODY, _REFUSED, _MULTIPLIED),
    Bound("mcp_servers", "client", "MCP servers", MAX_MCP_SERVERS, "servers", _BODY, _REFUSED, _MULTIPLIED),
    Bound(
        "model_chars", "client", "the model's name", MAX_MODEL_CHARS, "characters", "protocol.fields", "400", _MULTIPLIED,
    ),
    Bound(
        "betas", "client", "names in anthropic-beta", MAX_BETAS, "names", "gateway.betas", "the rest is left out",
        "tests/unit/test_betas.py::test_at_most_64_names_are_taken",
    ),
    Bound(
        "dropped", "client", "parameters named in x-sluice-dropped and in the record", MAX_DROPPED, "names", "protocol.target",
        "the rest is one word", "tests/unit/test_request_attacks.py::test_what_was_left_out_is_noted_up_to_a_bound",
    ),
    Bound(
        "lookups", "client", "earlier tool calls looked up in the record", MAX_LOOKUPS, "calls", "protocol.anthropic_turn",
        "the last ones are looked up",
        "tests/unit/test_anthropic_turn.py::test_ids_to_look_up_are_the_last_each_once_and_only_of_the_other_dialect",
    ),
)  # fmt: skip
_SIZES: tuple[Bound, ...] = (
    Bound(
        "answer_bytes", "upstream", "all that an upstream sends in a call", MAX_OUTPUT_BYTES, "bytes", "gateway.calls",
        "the answer ends with an error", "tests/e2e/test_timers.py::test_output_past_the_limit_ends_the_call", "limits.output_bytes",
    ),
    Bound(
        "event_bytes", "upstream", "one SSE event, or the arguments of one tool call", MAX_EVENT_BYTES, "bytes", "protocol.sse",
        "the answer ends with an error; the call is blocked, too_large",
        "tests/unit/test_sse.py::test_event_past_the_bound_is_refused", "limits.event_bytes",
    ),
    Bound(
        "event_lines", "upstream", "lines of one SSE event", MAX_EVENT_LINES, "lines", "protocol.sse", "the answer ends with an error",
        "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "event_values", "upstream", "JSON values in one SSE event", MAX_EVENT_VALUES, "values", "protocol.sse",
        "the answer ends with an error", "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "whole_values", "upstream", "JSON values in a whole answer", MAX_ANSWER_VALUES, "values", "protocol.codecs",
        "the answer is an error", "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "segments", "upstream", "answers of one turn that pauses", MAX_SEGMENTS, "answers", "policy.session", "the turn ends as it is",
        "tests/e2e/test_continued_turns.py::test_a_turn_that_never_ends_stops_after_eight_segments",
    ),
)  # fmt: skip
_CONFIGURED: tuple[Bound, ...] = (
    Bound(
        "patterns", "configuration", "an RE2 pattern of a rule", MAX_PATTERN_CHARS, "characters", "policy.patterns",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
    Bound(
        "series", "configuration", "policies in a series", MAX_SERIES, "policies", "protocol.config",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
    Bound(
        "rules", "configuration", "rules in one list", MAX_RULES, "rules", "policy.tool_rules",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
)  # fmt: skip
_LISTED: tuple[Bound, ...] = (
    Bound(
        "audit_page", "client", "rows of one page of the audit API", MAX_PAGE, "rows", "db.filters", "400",
        "tests/unit/test_bounds.py::test_past_its_bound_an_audit_filter_is_refused",
    ),
    Bound(
        "audit_filter", "client", "a filter or cursor of the audit API", MAX_FILTER_CHARS, "characters", "db.filters", "400",
        "tests/unit/test_bounds.py::test_past_its_bound_an_audit_filter_is_refused",
    ),
)  # fmt: skip
# --- answers: blocks, calls, text ---
_ANSWERS: tuple[Bound, ...] = ()
# --- policies and rules ---
_POLICIES: tuple[Bound, ...] = ()
# --- judges ---
_JUDGES: tuple[Bound, ...] = ()
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = ()
# --- workers ---
_WORKERS: tuple[Bound, ...] = ()
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _SIZES + _ANSWERS + _CONFIGURED + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD + _LISTED
