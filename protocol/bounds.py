"""What a bound is, and the numbers of all bounds, each once: who keeps one imports it from here.

`protocol.bounds_table` says what each is for; those of the pages alone stand with who keeps them.
"""

from dataclasses import dataclass
from typing import Literal

From = Literal["client", "reader", "upstream", "policy", "configuration"]
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
MAX_MESSAGE_HEADER_BYTES = 128 * 1024
"""Of a message of a binary event stream."""
MAX_ANSWER_VALUES = 1_000_000
"""Of a whole answer: with log probabilities a token has some 150."""
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
MAX_MONITORS = 16
MAX_WHY_CHARS = 2_000
MAX_DIMS = 32
MAX_CHANGED_ITEMS = 1_000_000
BEGINNING_CALLS = 16
BEGINNING_BYTES = 4 * 2**20
"""A key begins calls with larger bodies one at a time."""
FIRST_KEEPALIVE_S = 8.0
"""Until then the head of an answer waits for a true status; then errors are frames. Coding agents give a silent answer up at 20 s."""
MAX_HEADERS = 128
MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 30.0
MAX_RELAYS = 32
MAX_RELAYED_FORM_BYTES = 64 * 1024
MAX_FORMS, FORM_S = 256, 3.0
"""Forms of pages that are on their way in to one gateway, and how long each may take."""
MAX_QUESTIONS = 24
MAX_REVIEW_BYTES = 32 * 1024
MAX_TARGET_BYTES = 8 * 1024
MAX_TIMEOUT_S = 600.0
MAX_POLICY_CHARS = 64
MAX_SESSION_CHARS = 200
MAX_KEY_BYTES = 512
MAX_LOOKED_UP_KEYS = 100
MAX_UNKNOWN_KEYS = 1_000
MAX_BETAS = 64
MAX_ENDED_CALLS = 100_000
"""How many ended calls Redis names to those who look after the record: 8 MB, three minutes at 500 calls/s."""
MAX_REMEMBERED_CALLS = 50_000
"""How many ended calls a gateway remembers until they are known to be on record: 21 MB."""
MAX_KEPT_HEADS = 1_000
DEMO_BODY_BYTES = 256 * 1024
DEMO_CHARS = 64 * 1024
DEMO_TOOLS = 128
DEMO_CALLS = 100
DEMO_WORDS = 100_000
DEMO_VALUES, DEMO_MADE_CHARS, DEMO_READ = 1_000, 16 * 1024, 100_000
SCRIPT_BODY_BYTES = 4 * 2**20
SCRIPT_FILE_BYTES = 16 * 2**20
SCRIPT_TRAJECTORIES, SCRIPT_TURNS, SCRIPT_CALLS = 20_000, 1_000, 100
SCRIPT_WAIT_S = 600.0
SCRIPT_FILES = 4
PROVENANCE_CHARS, PROVENANCE_LINES, PROVENANCE_SINKS = 2**20, 30_000, 64
MAX_ANSWER_BYTES = 2**20
MAX_OPEN_ASKS = 8
MAX_TOOL_BYTES = 32_768
MAX_JUDGE_QUEUE = 2_000
MAX_KNOWN_JUDGES = 1_000
MAX_UNRECORDED_BYTES = 2**20
LARGE_STEP_BYTES = 32 * 1024
"""What a policy worker takes in one step on its event loop; more is taken beside it (workers/lane.py)."""
HEAVY_BYTES = 128 * 1024
"""Of arguments of tool calls that are not complete, past which every step of their answer is taken there: one of them decides."""
STEP_CPU_S = 2.0
"""CPU of one such step, past which its call ends."""
MAX_INDEXED_CHARS = 300
MAX_SEARCHED_CHARS = 65_536
MAX_TRIED_RECORDS = 32
MAX_ODD_KEY_CHARS = 200_000
MAX_RULE_TEXTS = 20_000
MAX_FOLDED_BYTES = 512 * 1024
MAX_SQL_CHARS = 8_192
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
LOOKUPS_AT_ONCE = 4
"""Lookups of kept answers and recorded turns at work in one process; of one key one at a time."""
MAX_CHAINED = 500
"""Answers that a request goes on with, one before the other."""
MAX_TURN_BYTES = 32 * 2**20
MAX_SEGMENTS = 8
MAX_CARRIED_CHARS = 2**20
"""Of what may be a call over the border of two texts, searched once more at each border."""
MAX_OPAQUE_NOTES = 100
MAX_NOTES = 1_000
MAX_CHECKED_CHARS = 1 << 20
MAX_EXTRA_DEPTH, MAX_EXTRA_VALUES, MAX_EXTRA_CHARS = 6, 1_000, 4_096
MAX_PATTERN_CHARS = 10_000
MAX_SERIES = 32
MAX_ACCEPTED_SETS = 8
MAX_KEY_CALLS = 2**31 - 1
MAX_RULES = 1_000
MAX_PAGE = 1_000
MAX_FILTER_CHARS = 1_000
