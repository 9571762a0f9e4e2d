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
LARGE_STEP_BYTES = 32 * 1024
"""What a policy worker takes in one step on its event loop; more is taken beside it (workers/lane.py)."""
HEAVY_BYTES = 128 * 1024
"""Of one tool call's arguments, past which every step of its call is taken there: one of them decides."""
STEP_CPU_S = 2.0
"""CPU of one such step, past which its call ends."""

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
_WORKERS: tuple[Bound, ...] = (
    Bound(
        "step", "client", "bytes in one step of a policy worker's loop: an entry, a fact; twice that of a body", LARGE_STEP_BYTES, "bytes",
        "workers/feeding.py", "the step is taken beside the loop, in the turn of its API key",
        "tests/faults/test_large_steps.py::test_a_policy_that_hangs_in_a_request_costs_its_call_alone",
    ),
    Bound(
        "heavy call", "upstream", "bytes of one tool call's arguments, decided on the loop", HEAVY_BYTES, "bytes",
        "workers/call.py", "the call's further steps are taken beside the loop",
        "tests/faults/test_large_steps.py::test_a_policy_that_hangs_in_a_large_tool_call_costs_its_call_alone",
    ),
    Bound(
        "step CPU", "policy", "CPU of one large step", STEP_CPU_S, "s",
        "workers/lane.py", "the call ends with policy_failed, or is refused with it where it had not begun",
        "tests/unit/test_lane.py::test_the_loop_goes_on_beside_a_step_that_is_ended_at_its_time",
    ),
    Bound(
        "hanging loop", "policy", "CPU of one step on a policy worker's loop", 1.0, "s",
        "workers/process.py", "the call ends with policy_failed; what never lets go of the interpreter ends the worker",
        "tests/chaos/test_hooks.py::test_w8_a_hook_that_loops_costs_its_call_and_no_worker",
    ),
    Bound(
        "deaths", "client", "policy workers that die in a step of one call", 2, "workers",
        "workers/claims.py", "the call ends with policy_failed; before that it is replayed after all others",
        "tests/chaos/test_hooks.py::test_w8_a_hook_that_never_lets_go_costs_its_call_and_two_workers",
    ),
    Bound(
        "worker calls", "client", "calls of one API key at a policy worker", 0.8, "of max_calls",
        "workers/policy.py", "new ones wait for another worker; after claim_s 503 no_worker",
        "tests/service/test_takeover_path.py::test_one_key_never_has_all_places_of_a_worker", setting="max_calls",
    ),
)  # fmt: skip
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
