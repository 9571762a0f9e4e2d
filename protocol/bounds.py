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
MAX_ARGUMENT_VALUES = 100_000
MAX_ODD_KEY_CHARS = 200_000
MAX_RULE_TEXTS = 20_000
MAX_FOLDED_BYTES = 512 * 1024
MAX_SQL_CHARS = 16_384

# --- requests ---
_REQUESTS: tuple[Bound, ...] = ()
# --- answers: blocks, calls, text ---
_ANSWERS: tuple[Bound, ...] = ()
# --- policies and rules ---
_JSON_TEST, _RULES_TEST = "tests/unit/test_json_strict.py", "tests/unit/test_rule_lookalikes.py"
_POLICIES: tuple[Bound, ...] = (
    Bound(
        "argument_values", "upstream", "values in a tool call's arguments", MAX_ARGUMENT_VALUES, "values", "protocol/json_strict.py",
        "the call is blocked: ambiguous_json", f"{_JSON_TEST}::test_eight_megabytes_of_arguments_take_no_time_that_others_notice",
    ),
    Bound(
        "odd_keys", "upstream", "text in keys of arguments that are not plain ASCII", MAX_ODD_KEY_CHARS, "characters",
        "protocol/json_strict.py", "the call is blocked: ambiguous_json",
        f"{_JSON_TEST}::test_arguments_that_two_programs_read_differently_are_refused",
    ),
    Bound(
        "rule_texts", "upstream", "texts in arguments that rules look at", MAX_RULE_TEXTS, "texts", "policy/arguments.py",
        "deny rules apply, allow rules do not", f"{_RULES_TEST}::test_more_than_rules_look_at_is_denied_and_not_allowed",
    ),
    Bound(
        "folded_text", "upstream", "text beyond ASCII that rules fold", MAX_FOLDED_BYTES, "bytes more than characters",
        "policy/arguments.py", "deny rules apply, allow rules do not",
        f"{_RULES_TEST}::test_more_than_rules_look_at_is_denied_and_not_allowed",
    ),
    Bound(
        "sql_text", "upstream", "SQL that rules parse", MAX_SQL_CHARS, "characters", "policy/sql.py",
        "deny rules apply, allow rules do not", "tests/unit/test_sql_kinds.py::test_a_text_over_the_bound_is_refused",
    ),
    Bound(
        "sql_steps", "upstream", "steps of the SQL parser", 3, "steps a token, and 3,000", "policy/sql.py",
        "deny rules apply, allow rules do not", "tests/unit/test_sql_kinds.py::test_no_text_takes_the_parser_long",
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
