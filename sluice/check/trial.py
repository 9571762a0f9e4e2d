"""Tries a series of policies on one tool call or text: through the session that decides about real
calls, without a network.

The model's answer is made up here. A judge is asked only if the caller supplies one, such as
`demo_judgement`.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from policy import session
from policy.base import Judgement, JudgeQuestion
from protocol.dialects.table import DEFAULT
from protocol.events import TextDelta
from protocol.records import BlockRecord, ToolCallRecord
from settings.config import DEMO_JUDGE, Config
from sluice.check.sessions import Fed, Series, loaded
from sluice.check.time_limit import within_limit

Ask = Callable[[JudgeQuestion], Judgement | None]
"""Answers for a judge; None: it cannot be asked here."""
Outcome = Literal["allow", "replace", "block", "defer", "ask", "held"]
_MESSAGES = ({"role": "user", "content": "(a trial of the policies)"},)


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome. `text` is what the client reads; `arguments` what the tool would be called with
    (empty: it is not called).

    `policy`, `rule` and `reason` say who decided, as far as that is known; `why`: what the
    call would do that is objected to; `fault`: which hook failed, and where; `judge` is the model that was or would be asked. `defer`: another model would
    be asked for the turn, which is not tried.
    """

    outcome: Outcome
    text: str = ""
    arguments: str = ""
    policy: str = ""
    rule: str = ""
    reason: str = ""
    judge: str = ""
    fault: str = ""
    why: str = ""


def ask_nobody(question: JudgeQuestion) -> None:
    """No judge can be asked."""


def demo_judgement(question: JudgeQuestion) -> Judgement | None:
    """The built-in judge's answer, which needs no network; None for any other judge."""
    from policy.judging.prompt import parse_reply
    from workers.judge import demo as demo_judge

    if question.model != DEMO_JUDGE:
        return None
    probability, explanation = parse_reply(demo_judge.answer(question), question.nonce)
    return Judgement(probability=probability, explanation=explanation, model=question.model)


def try_call(
    config: Config,
    series: str,
    tool: str,
    arguments: str,
    *,
    search_path: Sequence[str] = (),
    ask: Ask = ask_nobody,
    messages: Sequence[Any] = _MESSAGES,
) -> Tried:
    """Say what the policies `series` make of a tool call with `arguments`, the JSON text of an
    object, that answers `messages` of chat/completions. Raises PolicyFailed."""
    properties: dict[str, dict[str, Any]] = {name: {} for name in json.loads(arguments)}
    offered = {"name": tool, "parameters": {"type": "object", "properties": properties}}
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": arguments}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    request = {"messages": list(messages), "tools": [{"type": "function", "function": offered}]}
    return _try(config, series, answer, request, search_path, ask)


def try_text(
    config: Config,
    series: str,
    text: str,
    *,
    search_path: Sequence[str] = (),
    ask: Ask = ask_nobody,
) -> Tried:
    """Say what the policies `series` make of an answer that is this text. Raises PolicyFailed."""
    return _try(
        config,
        series,
        {"role": "assistant", "content": text},
        {"messages": list(_MESSAGES)},
        search_path,
        ask,
    )


def _try(
    config: Config,
    series: str,
    message: dict[str, Any],
    request: dict[str, Any],
    search_path: Sequence[str],
    ask: Ask,
) -> Tried:
    with _noted_faults() as faults:
        tried = within_limit(lambda: _played(config, series, message, request, search_path, ask))
    return replace(tried, fault="; ".join(faults))


@contextlib.contextmanager
def _noted_faults() -> Iterator[list[str]]:
    """Collect what the log says of hooks that fail meanwhile."""
    faults: list[str] = []
    handler = logging.Handler()

    def note(record: logging.LogRecord) -> None:
        if record.getMessage() == "policy fault":
            fields = vars(record)
            faults.append(
                f"{fields['hook']} of {fields['policy']}:"
                f" {fields['error']}{' at ' + fields['at'] if fields.get('at') else ''}"
            )

    handler.emit = note  # type: ignore[method-assign]
    logger = logging.getLogger(session.__name__)
    logger.addHandler(handler)
    try:
        yield faults
    finally:
        logger.removeHandler(handler)


def _played(
    config: Config,
    series: str,
    message: dict[str, Any],
    request: dict[str, Any],
    search_path: Sequence[str],
    ask: Ask,
) -> Tried:
    policies, revision = loaded(config, series, search_path)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    answer = {
        "id": "chatcmpl-trial",
        "object": "chat.completion",
        "created": 0,
        "model": "demo",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }
    fed = Fed(Series(series, policies, revision, config).session(DEFAULT.name))
    fed.session.begin(json.dumps({"model": "demo", **request}).encode())
    asked = _settle(fed, ask)
    if fed.refused is None:
        fed.session.body(1, json.dumps(answer).encode())
        asked = _settle(fed, ask) or asked
    return _tried(fed, message.get("content") or "", asked)


def _settle(fed: Fed, ask: Ask) -> str:
    """Do what the session wants done, and return the model of the last judge that was asked."""
    asked, judgement, steps = "", None, fed.settle()
    while True:
        try:
            question = steps.send(judgement)
        except StopIteration:
            return asked
        asked, judgement = question.model, ask(question)


def _tried(fed: Fed, original: str, asked: str) -> Tried:
    """The outcome; `original` is the assumed text of the model."""
    text = "".join(output.text for output in fed.outputs if isinstance(output, TextDelta))
    if fed.is_open:
        return Tried("ask", judge=asked)
    if fed.is_held:
        return Tried("held")
    if fed.refused is not None:
        return Tried("block", text=json.loads(fed.refused.body)["error"]["message"])
    call = next((r for r in fed.records if isinstance(r, ToolCallRecord)), None)
    if call is not None and not original:
        released = (call.released_arguments or b"").decode()
        outcome: Outcome = (
            call.verdict
            if call.verdict in ("allow", "replace")
            else "defer"
            if call.verdict == "discarded"
            else "block"
        )
        why = fed.why(call.block)
        return Tried(
            outcome, text, released, call.policy, call.rule or "", call.reason, asked, why=why
        )
    block = next(
        (
            r
            for r in fed.records
            if isinstance(r, BlockRecord | ToolCallRecord) and r.verdict != "allow"
        ),
        None,
    )
    if block is None:
        return Tried("allow" if text == original else "replace", text, judge=asked)
    outcome = "replace" if block.verdict == "replace" else "block"
    return Tried(outcome, text, "", block.policy, block.rule or "", block.reason, asked)
