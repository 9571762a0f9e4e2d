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
BEGINNING_CALLS = 16
MAX_HEADERS = 128
MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 30.0
MAX_TARGET_BYTES = 8 * 1024
MAX_TIMEOUT_S = 600.0
MAX_POLICY_CHARS = 64
MAX_SESSION_CHARS = 200
MAX_KEY_BYTES = 512
MAX_BETAS = 64
MAX_KEPT_HEADS = 1_000
DEMO_BODY_BYTES = 256 * 1024
DEMO_CHARS = 64 * 1024
DEMO_TOOLS = 128
DEMO_CALLS = 100
DEMO_WORDS = 100_000

# --- requests ---
_REQUESTS: tuple[Bound, ...] = ()
# --- answers: blocks, calls, text ---
_ANSWERS: tuple[Bound, ...] = ()
# --- policies and rules ---
_POLICIES: tuple[Bound, ...] = ()
# --- judges ---
_JUDGES: tuple[Bound, ...] = ()
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = (
    Bound(
        "head_bytes", "client", "bytes of a request's head, beside what comes in the same read as its end", MAX_HEAD_BYTES, "bytes",
        "gateway.heads", "431, and the connection is closed", "tests/e2e/test_slow_clients.py::test_a_head_without_end_is_cut_off",
    ),
    Bound(
        "head_lines", "client", "headers of a request", MAX_HEADERS, "lines", "gateway.heads", "431, and the connection is closed",
        "tests/e2e/test_slow_clients.py::test_a_head_of_many_lines_is_refused",
    ),
    Bound(
        "head_time", "client", "the time a head takes to come", HEAD_S, "s", "gateway.heads", "the connection is closed",
        "tests/unit/test_heads.py::test_a_head_has_a_time",
    ),
    Bound(
        "target", "client", "path and query, and so cursors and filters", MAX_TARGET_BYTES, "bytes", "gateway.app",
        "400 target_too_long", "tests/faults/test_abuse.py::test_c7_a_path_and_query_have_an_end",
    ),
    Bound(
        "repeated_headers", "client", "x-sluice-* headers, content-length and keys of one request", 1, "of each", "gateway.app",
        "400 repeated_header (keys that are the same may be there twice)",
        "tests/faults/test_abuse.py::test_c7_a_header_that_decides_is_there_once",
    ),
    Bound(
        "key_text", "client", "an API key as it is sent", MAX_KEY_BYTES, "bytes", "gateway.keyring", "401, as for any wrong key",
        "tests/faults/test_abuse.py::test_c6_refusals_say_the_same_whatever_is_wrong",
    ),
    Bound(
        "own_timeout", "client", "the activity timeout of a request, x-sluice-timeout-s", MAX_TIMEOUT_S, "s", "gateway.app", "400",
        "tests/e2e/test_bad_input.py::test_a_wrong_timeout",
    ),
    Bound(
        "session_name", "client", "the name in x-sluice-session", MAX_SESSION_CHARS, "characters", "gateway.app", "the rest is left off",
        "tests/e2e/test_bad_input.py::test_odd_sessions_are_on_record",
    ),
    Bound(
        "betas", "client", "names in anthropic-beta", MAX_BETAS, "names", "gateway.betas", "those past it are ignored",
        "tests/unit/test_betas.py::test_at_most_64_names_are_taken",
    ),
    Bound(
        "kept_heads", "client", "ready request heads that a gateway keeps, one for each set of betas", MAX_KEPT_HEADS, "heads",
        "gateway.upstream", "made anew", "tests/service/test_relay.py::test_sets_of_betas_do_not_add_up",
    ),
    Bound(
        "body", "client", "a request body", 16 * 2**20, "bytes", "gateway.app", "413",
        "tests/faults/test_abuse.py::test_c4_fifty_megabytes_are_refused_before_they_are_held", "limits.body_bytes",
    ),
    Bound(
        "body_time", "client", "the time a request body takes to come", 120.0, "s", "gateway.app", "408 with retry-after",
        "tests/faults/test_attackers.py::test_an_upload_has_a_time_though_it_never_stands_still", "limits.body_s",
    ),
    Bound(
        "uploads", "client", "request bodies of one gateway that come in or wait to be sent upstream; one key: half of what is free",
        256 * 2**20, "bytes", "gateway.admission", "429 key_uploads, or 503 where all keys have taken it, with retry-after",
        "tests/faults/test_attackers.py::test_uploads_that_do_not_end", "limits.upload_bytes",
    ),
    Bound(
        "open_calls", "client", "open calls of one gateway; one key: as many as are still free", 5_000, "calls", "gateway.admission",
        "429 key_calls, or 503 where all keys have taken them, with retry-after",
        "tests/unit/test_admission.py::test_one_key_alone_takes_half_and_the_next_half_of_the_rest", "limits.open_calls",
    ),
    Bound(
        "key_calls", "client", "open calls of one key on one gateway", 100, "calls", "gateway.admission", "429 key_calls with retry-after",
        "tests/faults/test_attackers.py::test_one_key_with_a_thousand_calls_at_once", "limits.key_calls",
    ),
    Bound(
        "beginning_calls", "client", "calls of one gateway that no worker has begun yet, half of them one key's; others wait",
        BEGINNING_CALLS, "calls", "gateway.admission", "waits for limits.claim_s, then 503 no_worker",
        "tests/unit/test_admission.py::test_who_waits_is_served_key_by_key",
    ),
    Bound(
        "provider_requests", "client", "requests that one gateway has under way at a provider; one key: as many as are still free",
        0, "requests (unset: no bound)", "gateway.upstream", "429 with retry-after",
        "tests/faults/test_attackers.py::test_one_key_does_not_use_up_what_a_provider_takes", "upstreams.X.calls",
    ),
    Bound(
        "unread_answers", "client", "what waits for a client that does not read", 2**20, "bytes a call", "gateway.upstream",
        "the provider is not read; after limits.client_stall_s the connection is closed",
        "tests/chaos/test_pressure.py::test_c2_clients_that_do_not_read_do_not_slow_others", "limits.unsent_bytes",
    ),
    Bound(
        "demo_body", "client", "a request body for the demo model", DEMO_BODY_BYTES, "bytes", "gateway.upstream", "413",
        "tests/faults/test_attackers.py::test_scripts_without_end_for_the_demo_model",
    ),
    Bound(
        "demo_script", "client", "tool calls of the demo model's answer", DEMO_CALLS, "calls", "gateway.demo", "the rest is not made",
        "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_words", "client", "words of the demo model's answer, each made when it is sent", DEMO_WORDS, "words", "gateway.demo",
        "the rest is not made", "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_looks", "client", "characters of the last message that the demo model looks at", DEMO_CHARS, "characters", "gateway.demo",
        "the rest is not read", "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_tools", "client", "tools that the demo model looks at", DEMO_TOOLS, "tools", "gateway.demo", "the rest is not read",
        "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
)  # fmt: skip
# --- workers ---
_WORKERS: tuple[Bound, ...] = ()
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
