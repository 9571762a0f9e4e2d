"""The bounds on what others can send, each number once: the module that enforces a bound imports it
from here.

docs/change/bounds.md lists them with what happens past each and with the test of it;
tests/unit/test_bounds.py compares the two. Bounds that an operator can change are in
`settings.config.Limits`; those of the web pages stand in the modules of `pages/` that enforce them.
"""

# --- requests ---

MAX_BODY_BYTES = 16 * 2**20
"""The body of a request, unless the setting `limits.body_bytes` says otherwise."""
MAX_BODY_VALUES = 200_000
"""JSON values in a request: objects, lists, strings, numbers. Parsing takes a microsecond for each
at worst."""
MAX_FIELDS = 200
"""Fields at the top of a request."""
MAX_MESSAGES = 10_000
"""Messages in a request."""
MAX_PARTS = 25_000
"""Parts of all messages of a request."""
MAX_REQUEST_ID_CHARS = 4_096
"""An id in a client's history: some gateways hide signatures in ids."""
MAX_TOOLS = 1_000
"""Tools in a request."""
MAX_REQUEST_NAME_CHARS = 256
"""The name of a tool in a request: longer than any provider accepts, for names are shortened for
the provider and restored."""
MAX_DESCRIPTION_CHARS = 100_000
"""The description of a tool."""
MAX_SCHEMA_BYTES = 2**20
"""One JSON Schema."""
MAX_SCHEMA_DEPTH = 100
"""Levels of a schema that is translated for another provider."""
MAX_SCHEMA_MERGED = 2_000
"""Properties that are looked at while alternatives at the top of a schema are merged."""
MAX_SCHEMA_EXPANSION = 20_000
"""Schemas that one schema unfolds to through its references."""
MAX_SCHEMAS_EXPANSION = 100_000
"""Schemas that all schemas of a request unfold to."""
MAX_REFERENCES = 5_000
"""References in all schemas of a request."""
MAX_SCHEMA_WORK = 10_000_000
"""Units of about 10 ns for compiling a call's schemas and checking values by them: about 100 ms."""
MAX_STOPS = 1_000
"""Stop sequences in a request."""
MAX_STOP_CHARS = 4_096
"""One stop sequence."""
MAX_METADATA = 64
"""Entries of a request's metadata."""
MAX_MCP_SERVERS = 64
"""MCP servers in a request."""
MAX_MODEL_CHARS = 200
"""The name of a model."""
MAX_IMAGE_BYTES = 20 * 2**20
"""An image that is translated for another provider."""
MAX_DROPPED = 200
"""Parameters that are named as left out."""
MAX_LOOKUPS = 256
"""Earlier tool calls of a request that are looked up in the record."""
LOOKUPS_AT_ONCE = 4
"""Lookups of stored answers and turns at work in one process; of one key, one at a time."""
MAX_CHAINED = 500
"""Stored answers that a request continues, one before the other."""

# --- heads and headers of requests ---

MAX_HEADERS = 128
"""Header lines of a request."""
MAX_HEAD_BYTES = 64 * 1024
"""The head of a request."""
HEAD_S = 30.0
"""How long the head of a request may take to arrive."""
MAX_TARGET_BYTES = 8 * 1024
"""Path and query of a request."""
MAX_TIMEOUT_S = 600.0
"""The activity timeout that a request may ask for."""
MAX_POLICY_CHARS = 64
"""The name of a policy in a header."""
MAX_SESSION_CHARS = 200
"""The name of a session in a header."""
MAX_PROJECT_CHARS = 4_096
"""The folders in the header `x-sluice-project`."""
MAX_PROJECT_ROOTS = 8
"""Folders that one statement may name as the project; past it none of them counts."""
MAX_CLAIMS = 8
"""Statements in a request about its project that are compared; past it none of them counts."""
MAX_CLAIM_CHARS = 131_072
"""Characters of a request's prompts and first messages that are searched for its project, once a
call and only if the model calls a tool."""
MAX_KEY_BYTES = 512
"""An API key as a client sends it."""
MAX_LOOKED_UP_KEYS = 100
"""Unknown keys that wait to be looked up in PostgreSQL."""
MAX_UNKNOWN_KEYS = 1_000
"""Keys that are remembered as unknown."""
MAX_BETAS = 64
"""Names in the header `anthropic-beta`."""
MAX_KEPT_HEADS = 1_000
"""Request heads that a gateway keeps ready for a provider, one for each set of betas."""

# --- calls at a gateway ---

BEGINNING_CALLS = 16
"""Calls of a gateway that no worker has claimed yet."""
BEGINNING_BYTES = 4 * 2**20
"""A key begins calls with larger bodies one at a time."""
MAX_KEY_CALLS = 2**31 - 1
"""The largest number of open calls that a key can be given."""
MAX_RATIO = 200
"""How many times its size a compressed body may open to."""
MAX_REQUESTS_MINUTE = 10_000
"""The most requests a minute that a key can be limited to: Redis keeps 120 bytes of each."""
MIN_KEEPALIVE_S = 5
"""The fewest seconds between keepalives that a key can be given."""
FIRST_KEEPALIVE_S = 8.0
"""How long the head of an answer waits for the true status; after it errors are frames. Coding
agents give up a silent answer at 20 s."""
MAX_ENDED_CALLS = 100_000
"""Ended calls that Redis names to those who look after the record: 8 MB, three minutes at 500
calls/s."""
MAX_REMEMBERED_CALLS = 50_000
"""Ended calls that a gateway remembers until they are known to be on record: 21 MB."""

# --- the audit API and the pages, at a gateway ---

MAX_QUESTIONS = 24
"""Requests to the audit API at once through a gateway."""
MAX_REVIEW_BYTES = 32 * 1024
"""An auditor's review of a decision."""
MAX_DECISION_BYTES = 256 * 1024
"""A decision about a tool call that waits for people: edited arguments, escaped as JSON."""
MAX_PAGE = 1_000
"""Rows of one page of the audit API."""
MAX_FILTER_CHARS = 1_000
"""A filter or a cursor of the audit API, and what a page searches for."""
MAX_RELAYS = 32
"""Pages that load through a gateway at once."""
MAX_RELAYED_FORM_BYTES = 64 * 1024
"""A form that a page sends."""
MAX_FORMS = 256
"""Forms that are arriving at one gateway."""
FORM_S = 3.0
"""How long a form may take to arrive."""

# --- answers of upstreams ---

MAX_OUTPUT_BYTES = 32 * 2**20
"""All that an upstream sends in a call, unless the setting `limits.output_bytes` says otherwise."""
MAX_EVENT_BYTES = 8 * 2**20
"""The arguments of one tool call, unless the setting `limits.event_bytes` says otherwise."""
MAX_EVENT_LINES = 1_000
"""Lines of one SSE event."""
MAX_EVENT_VALUES = 200_000
"""JSON values in one SSE event."""
MAX_MESSAGE_HEADER_BYTES = 128 * 1024
"""The headers of a message of a binary event stream."""
MAX_ANSWER_VALUES = 1_000_000
"""JSON values in a whole answer: with log probabilities a token has some 150."""
MAX_BLOCKS = 10_000
"""Content blocks of an answer."""
MAX_TOOL_CALLS = 128
"""Tool calls of an answer."""
MAX_TEXT_CALLS = 100
"""Tool calls in one text."""
TEXT_STEP_CHARS = 16 * 1024
"""Longer text of an answer is processed in steps of this many characters."""
MAX_CARRIED_CHARS = 2**20
"""Text that may be a call across the border of two texts, searched once more at each border."""
MAX_NAME_CHARS = 128
"""The name of a tool call, and the name of a rule."""
MAX_ID_CHARS = 256
"""An id in an answer."""
MAX_SIGNATURE_CHARS = 2**20
"""The signature of reasoning."""
MAX_ARGUMENT_VALUES = 100_000
"""JSON values in the arguments of one tool call."""
MAX_ODD_KEY_CHARS = 200_000
"""Text in keys of arguments that are not plain ASCII."""
MAX_EXTRA_DEPTH = 6
"""Levels of the bookkeeping beside an answer, such as its usage."""
MAX_EXTRA_VALUES = 1_000
"""JSON values in that bookkeeping."""
MAX_EXTRA_CHARS = 4_096
"""Characters of all keys and texts in that bookkeeping."""
MAX_CHECKED_CHARS = 2**20
"""An answer that is checked against the schema that its request asks for."""
MAX_NOTES = 1_000
"""Notes about an answer on record."""
MAX_FINDINGS = 100
"""Secrets and personal data of a request, and of its answer, that are noted."""
MAX_SEARCHED_TEXTS = 100_000
"""Texts of requests of which a policy remembers what is in them, and what that is, together."""
MAX_OPAQUE_NOTES = 100
"""Kinds of unknown content of an answer that are noted."""
MAX_SEGMENTS = 8
"""Answers of one turn that pauses or is deferred."""
MAX_ATTEMPTS = 8
"""Requests for one answer."""
MAX_ATTEMPT_WAIT_S = 60.0
"""Before one attempt."""
MAX_TARGETS = 16
"""Targets of a route that share requests, and as many behind them."""
MAX_TURN_BYTES = 32 * 2**20
"""A turn that is rebuilt from the record."""

# --- policies and their configuration ---

MAX_SERIES = 32
"""Policies in a series."""
MAX_ACCEPTED_SETS = 8
"""Policy sets that a gateway accepts besides its own."""
MAX_RULES = 1_000
"""Rules in one list."""
MAX_PATTERN_CHARS = 10_000
"""A pattern of a rule."""
MAX_RULE_TEXTS = 20_000
"""Texts in arguments that rules look at."""
MAX_FOLDED_BYTES = 512 * 1024
"""Bytes that text beyond ASCII, which rules fold, may have more than characters."""
MAX_SQL_CHARS = 8_192
"""SQL that rules parse."""
MAX_STATE_OBJECTS = 10_000
"""Objects in one attribute of a policy, which each call copies."""
MAX_REASON_CHARS = 1_000
"""The reason of a verdict."""
MAX_MESSAGE_CHARS = 100_000
"""The message of a block to the client."""
MAX_CHANGED_ITEMS = 1_000_000
"""Items of one JSON object in a request that a hook returns."""
MAX_BLOCKED_IN_A_ROW = 3
"""Answers of one call with nothing but blocked tool calls, before the turn ends."""
MAX_BLOCKED_IN_TURN = 20
"""Blocked tool calls since the user's last words, before an answer is not continued any more."""
MAX_CONTINUED_BYTES = 8 * 2**20
"""A request and the answer to it that are sent again with blocked calls."""
MAX_CONTINUED_AGE_S = 600.0
"""Age of a call past which nothing more is given back."""
MAX_ASKS = 16
"""Questions to judges about one tool call."""
MAX_JUDGES = 8
"""Judges of one panel."""
MAX_RUBRIC_CHARS = 8_000
"""An operator's words to a judge."""
MAX_JUDGED_CHARS = 2**18
"""The longest text that judges are asked about."""
MAX_REVIEWED = 2_000
"""Texts of one request that judges decide about."""
MAX_MONITORS = 16
"""Monitors of one `control`."""
MAX_WHY_CHARS = 2_000
"""Why a monitor gives a score."""
MAX_DIMS = 32
"""Dimensions of a score."""
PROVENANCE_CHARS = 2**20
"""Characters of a history that the monitor `provenance` reads."""
PROVENANCE_LINES = 30_000
"""Lines of results whose fields it reads."""
PROVENANCE_SINKS = 64
"""Values of one call that it looks for."""

# --- judges ---

MAX_TOOL_BYTES = 32 * 1024
"""Description and schema of a tool whose call is judged."""
MAX_ANSWER_BYTES = 2**20
"""Names and arguments of the earlier calls of an answer that a judge is shown."""
MAX_HELD_BYTES = 64 * 1024
"""Arguments of a call that people are asked about: they must see all of them."""
MAX_HELD_CALLS = 100
"""Calls that one policy worker lets wait for people; the next end their turn at once."""
MAX_HELD_CALLS_OF_KEY = 25
"""Those of one API key."""
MAX_OPEN_ASKS = 8
"""Open questions of one call to judges."""
MAX_JUDGE_QUEUE = 2_000
"""Questions that wait for a judge."""
MAX_KNOWN_JUDGES = 1_000
"""Judge models whose form of reply a judge worker remembers."""

# --- workers and the record ---

LARGE_STEP_BYTES = 32 * 1024
"""The largest step that a policy worker takes on its event loop; larger ones are taken beside it
(workers/cpu_lane.py)."""
HEAVY_BYTES = 128 * 1024
"""Arguments of incomplete tool calls, past which every step of their answer is taken beside the
loop: one of the steps decides."""
STEP_CPU_S = 2.0
"""CPU of one step beside the loop, past which its call ends."""
MAX_UNRECORDED_BYTES = 2**20
"""Records of one key that a policy worker wrote to a shard and no audit writer has taken."""
MAX_INDEXED_CHARS = 300
"""Text in an indexed column of the record."""
MAX_SEARCHED_CHARS = 64 * 1024
"""Text of a record that the text search sees, and an event `conflict`."""
MAX_TRIED_RECORDS = 32
"""Records of a batch that fit no row and are found one by one."""

# --- the built-in models ---

DEMO_BODY_BYTES = 256 * 1024
"""A request to the demo model."""
DEMO_CHARS = 64 * 1024
"""Characters of the last message that the demo model reads."""
DEMO_TOOLS = 128
"""Tools that the demo model reads."""
DEMO_CALLS = 100
"""Tool calls that the demo model makes."""
DEMO_WORDS = 100_000
"""Words that the demo model makes."""
DEMO_VALUES = 1_000
"""Values that the demo model makes for the schemas of a request."""
DEMO_MADE_CHARS = 16 * 1024
"""Characters of names and texts in those values."""
DEMO_READ = 100_000
"""Items of schemas that the demo model reads for them."""
SCRIPT_BODY_BYTES = 4 * 2**20
"""A request to the scripted model."""
SCRIPT_FILE_BYTES = 16 * 2**20
"""A file of the scripted model."""
SCRIPT_TRAJECTORIES = 20_000
"""Trajectories of a file."""
SCRIPT_TURNS = 1_000
"""Turns of a trajectory."""
SCRIPT_CALLS = 100
"""Tool calls of a turn."""
SCRIPT_WAIT_S = 600.0
"""A pause that a script asks for."""
SCRIPT_FILES = 4
"""Files that the scripted model keeps in memory."""
