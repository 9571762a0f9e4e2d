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
MAX_INDEXED_CHARS = 300
MAX_SEARCHED_CHARS = 65_536
MAX_TRIED_RECORDS = 32
MAX_FILTER_CHARS = 1_000

# --- requests ---
_REQUESTS: tuple[Bound, ...] = ()
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
_RECORD: tuple[Bound, ...] = (
    Bound(
        "record-indexed-text", "upstream", "characters of a name, id, model, session or policy in an indexed column of the record",
        MAX_INDEXED_CHARS, "characters", "db.fit", "kept cut with its SHA-256, whole in an event `unfit`",
        "tests/service/test_audit_insert.py::test_whatever_is_too_long_or_too_large_is_found_and_kept_whole",
    ),
    Bound(
        "record-searched-text", "policy", "characters of a block's reason, and of a tool call that the text search sees",
        MAX_SEARCHED_CHARS, "characters", "db.fit, db.text", "kept cut with its SHA-256, whole in an event `unfit`; arguments are whole",
        "tests/service/test_audit_insert.py::test_whatever_is_too_long_or_too_large_is_found_and_kept_whole",
    ),
    Bound(
        "record-poison", "upstream", "records of one batch that fit no row", MAX_TRIED_RECORDS, "records found one by one", "db.insert",
        "dead letters; past it a call's part of the batch is one, as a whole",
        "tests/service/test_audit_insert.py::test_three_thousand_poison_records_delay_an_innocent_commit_by_less_than_half_a_second",
    ),
    Bound(
        "audit-filter", "client", "characters of a filter of the audit API", MAX_FILTER_CHARS, "characters", "db.filters",
        "400 with the filter's name", "tests/unit/test_db_text.py::test_a_bad_filter_names_itself",
    ),
)  # fmt: skip

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
