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

MAX_MESSAGES = 20_000
MAX_PARTS = 50_000
MAX_TOOLS = 1_000
MAX_SCHEMA_EXPANSION = 10_000
MAX_TOOL_CALLS = 128
MAX_TEXT_CALLS = 100
MAX_NAME_CHARS = 128
MAX_ID_CHARS = 256
MAX_BLOCKS = 10_000
MAX_SIGNATURE_CHARS = 2**20
TEXT_STEP_CHARS = 16 * 1024
"""Longer text of an answer is looked at in steps of this many characters."""
MAX_STATE_OBJECTS = 10_000
MAX_REASON_CHARS = 1_000
MAX_MESSAGE_CHARS = 100_000
MAX_ASKS = 16
MAX_CHANGED_ITEMS = 1_000_000

# --- requests ---
_REQUESTS: tuple[Bound, ...] = ()
# --- answers: blocks, calls, text ---
_TESTS = "tests/unit/test_answer_bounds.py::"
_ANSWERS: tuple[Bound, ...] = (
    Bound(
        "answer_blocks", "upstream", "content blocks of an answer", MAX_BLOCKS, "blocks", "policy.blocks", "the answer ends with an error",
        _TESTS + "test_an_answer_of_too_many_blocks_ends",
    ),
    Bound(
        "answer_tool_calls", "upstream", "tool calls of an answer: native, provider-run and in text", MAX_TOOL_CALLS, "calls",
        "policy.blocks", "blocked, too_many; the client reads one notice, twice the bound are listed, all are in the chunks",
        _TESTS + "test_tool_calls_past_the_bound_are_left_out_with_one_message",
    ),
    Bound(
        "answer_text_calls", "upstream", "tool calls in one text", MAX_TEXT_CALLS, "calls", "policy.text_flow",
        "the rest of the text is withheld, too_many, with a notice",
        _TESTS + "test_a_text_with_too_many_calls_is_cut_with_a_message",
    ),
    Bound(
        "answer_text_step", "upstream", "text that a hook or the search for calls takes at once", TEXT_STEP_CHARS, "characters",
        "policy.text_flow", "longer text comes in steps", _TESTS + "test_long_text_reaches_hooks_in_steps",
    ),
    Bound(
        "answer_ids", "upstream", "an id: of a message, model or tool call", MAX_ID_CHARS, "characters", "policy.extras",
        "the client gets another id, the record has the true one",
        _TESTS + "test_an_id_that_is_none_is_another_one_for_the_client_and_on_record_as_it_came",
    ),
    Bound(
        "answer_names", "upstream", "the name of a tool call", MAX_NAME_CHARS, "characters", "policy.extras",
        "the call is blocked, name", _TESTS + "test_a_name_past_the_bound_is_withheld",
    ),
    Bound(
        "answer_signatures", "upstream", "the signature of reasoning", MAX_SIGNATURE_CHARS, "characters", "policy.extras",
        "withheld", _TESTS + "test_a_signature_that_is_none_is_withheld",
    ),
)  # fmt: skip
# --- policies and rules ---
_POLICIES: tuple[Bound, ...] = (
    Bound(
        "policy_state", "policy", "objects that a policy holds and each call copies", MAX_STATE_OBJECTS, "objects in an attribute",
        "policy/call_state.py", "the policy is not loaded: the start stops with a sentence that names the attribute",
        "tests/unit/test_policy_state.py::test_what_cannot_be_copied_is_refused_at_load",
    ),
    Bound(
        "verdict_reason", "policy", "a verdict's reason", MAX_REASON_CHARS, "characters", "policy/checked.py",
        "the verdict is a fault: what it was about is blocked",
        "tests/unit/test_policy_faults.py::test_a_verdict_with_a_wrong_field_is_a_fault",
    ),
    Bound(
        "verdict_message", "policy", "a block's message to the client", MAX_MESSAGE_CHARS, "characters", "policy/checked.py",
        "the verdict is a fault: what it was about is blocked",
        "tests/unit/test_policy_faults.py::test_a_verdict_with_a_wrong_field_is_a_fault",
    ),
    Bound(
        "asks", "policy", "questions to judges about one tool call", MAX_ASKS, "questions", "policy/chain.py",
        "the call is blocked (too_many_asks)", "tests/unit/test_policy_faults.py::test_a_policy_that_asks_without_end_is_stopped",
    ),
    Bound(
        "request_change_items", "policy", "items of one JSON object in a request that a hook returns", MAX_CHANGED_ITEMS, "items",
        "policy/checked.py", "the hook's answer is a fault: the request is refused with 403",
        "tests/unit/test_policy_faults.py::test_a_request_with_a_wrong_type_inside_is_a_fault",
    ),
)  # fmt: skip
# --- judges ---
_JUDGES: tuple[Bound, ...] = ()
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = ()
# --- workers ---
_WORKERS: tuple[Bound, ...] = ()
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
