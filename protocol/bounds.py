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
_POLICIES: tuple[Bound, ...] = ()
# --- judges ---
_JUDGES: tuple[Bound, ...] = ()
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = ()
# --- workers ---
_WORKERS: tuple[Bound, ...] = ()
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
