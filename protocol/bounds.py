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
MAX_ANSWER_BYTES = 2**20
MAX_OPEN_ASKS = 8
MAX_TOOL_BYTES = 32_768
MAX_JUDGE_QUEUE = 2_000

# --- requests ---
_REQUESTS: tuple[Bound, ...] = ()
# --- answers: blocks, calls, text ---
_ANSWERS: tuple[Bound, ...] = ()
# --- policies and rules ---
_POLICIES: tuple[Bound, ...] = ()
# --- judges ---
_JUDGES: tuple[Bound, ...] = (
    Bound(
        "judge_open_asks", "upstream", "open questions to judges, of one call", MAX_OPEN_ASKS, "questions", "policy/blocks.py",
        "the others wait in order", "tests/unit/test_judged_answers.py::test_only_so_many_questions_of_a_call_are_open",
    ),
    Bound(
        "judge_answer_calls", "upstream", "calls before in an answer that a judge is shown", MAX_TOOL_CALLS, "calls", "policy/answer.py",
        "later calls are blocked (answer_too_large)", "tests/unit/test_judged_answers.py::test_an_answer_of_any_size_is_kept_in_bounds",
    ),
    Bound(
        "judge_answer_bytes", "upstream", "names and arguments of those calls", MAX_ANSWER_BYTES, "bytes", "policy/answer.py",
        "later calls are blocked (answer_too_large); tool_judge does so at its option answer_bytes",
        "tests/unit/test_judged_answers.py::test_an_answer_of_any_size_is_kept_in_bounds",
    ),
    Bound(
        "judge_tool_bytes", "client", "description and schema of a tool whose call is judged", MAX_TOOL_BYTES, "bytes",
        "policy/tool_judge.py", "its calls are blocked (tool_too_large)",
        "tests/unit/test_judging.py::test_a_large_schema_is_not_judged_and_an_undeclared_tool_has_none",
    ),
    Bound(
        "judge_conversation", "client", "turns, parts and texts of a conversation that a judge is shown", 32_768, "bytes",
        "policy/judge_view.py", "the rest is cut or left out, and counted",
        "tests/unit/test_judge_view.py::test_any_conversation_has_a_bounded_view", setting="tool_judge: tail_bytes",
    ),
    Bound(
        "judge_queue", "client", "questions that wait for a judge, of all keys", MAX_JUDGE_QUEUE, "questions", "workers/judge_queue.py",
        "the call is blocked (judge_unavailable)", "tests/service/test_judge_worker.py::test_a_full_queue_refuses_at_once",
    ),
    Bound(
        "judge_queue_key", "client", "questions of one key that wait: as many as places are left", MAX_JUDGE_QUEUE / 2, "questions",
        "streams/judge_scripts.py", "the call is blocked (judge_unavailable)",
        "tests/service/test_judge_turn.py::test_a_key_has_a_share_of_the_queue_and_leaves_room",
    ),
    Bound(
        "judge_reply", "upstream", "a judge model's reply", 16_384, "characters", "policy/judging.py",
        "the call is blocked (judge_invalid)",
        "tests/unit/test_judging.py::test_any_other_reply_is_invalid",
    ),
)  # fmt: skip
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = ()
# --- workers ---
_WORKERS: tuple[Bound, ...] = ()
# --- the record ---
_RECORD: tuple[Bound, ...] = ()

BOUNDS: tuple[Bound, ...] = _REQUESTS + _ANSWERS + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD
