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
MAX_SCHEMA_WORK = 10_000_000
"""Units of about 10 ns: what compiling a call's schemas and checking values by them may take, about 100 ms."""
MAX_ARGUMENT_VALUES = 100_000
"""JSON values in the arguments of one tool call."""
MAX_TOOL_CALLS = 128
MAX_TEXT_CALLS = 100
MAX_NAME_CHARS = 128
MAX_ID_CHARS = 256

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
