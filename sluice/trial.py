"""Tries a series of policies on one tool call or text: through the session that decides about real calls, without a network.

The model's answer is made up here. A judge is asked only where who tries brings one, as `demo_judgement` is.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policy.base import Judgement, JudgeQuestion, Policy
from policy.loading import load
from policy.session.deferring import session_of
from policy.session.effects import SESSION_VERSION, CallInfo, Effects, Respond
from policy.session.session import Session
from protocol.config import DEMO_JUDGE, Config
from protocol.dialects import DEFAULT
from protocol.events import TextDelta
from protocol.records import BlockRecord, Record, ToolCallRecord

Ask = Callable[[JudgeQuestion], Judgement | None]
"""Answers for a judge; None: it cannot be asked here."""
Outcome = Literal["allow", "replace", "block", "defer", "ask"]
_MESSAGES = ({"role": "user", "content": "(a trial of the policies)"},)
_MOST_STEPS = 100
"""More than a session with one tool call and sixteen questions about it takes."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it. `text` is what the client reads; `arguments` what the tool would be called with (empty: it is not called).

    `policy`, `rule` and `reason` say who decided, as far as that is known; `judge` is the model that was or would be asked. `defer`:
    another model would be asked for the turn, which is not tried.
    """

    outcome: Outcome
    text: str = ""
    arguments: str = ""
    policy: str = ""
    rule: str = ""
    reason: str = ""
    judge: str = ""


def ask_nobody(question: JudgeQuestion) -> None:
    """No judge can be asked."""


def demo_judgement(question: JudgeQuestion) -> Judgement | None:
    """The built-in judge's answer, which needs no network; None for any other judge."""
    from policy.judging import parse_reply
    from workers.judge import demo as demo_judge

    if question.model != DEMO_JUDGE:
        return None
    probability, explanation = parse_reply(demo_judge.answer(question), question.nonce)
    return Judgement(probability=probability, explanation=explanation, model=question.model)


def try_call(
    config: Config, series: str, tool: str, arguments: str, *, search_path: Sequence[str] = (), ask: Ask = ask_nobody,
    messages: Sequence[Any] = _MESSAGES,
) -> Tried:  # fmt: skip
    """Say what the policies `series` make of a tool call with `arguments`, the JSON text of an object, that answers `messages` of
    chat/completions. Raises PolicyFailed."""
    properties: dict[str, dict[str, Any]] = {name: {} for name in json.loads(arguments)}
    offered = {"name": tool, "parameters": {"type": "object", "properties": properties}}
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": arguments}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    request = {"messages": list(messages), "tools": [{"type": "function", "function": offered}]}
    return _try(config, series, answer, request, search_path, ask)


def try_text(config: Config, series: str, text: str, *, search_path: Sequence[str] = (), ask: Ask = ask_nobody) -> Tried:
    """Say what the policies `series` make of an answer that is this text. Raises PolicyFailed."""
    return _try(config, series, {"role": "assistant", "content": text}, {"messages": list(_MESSAGES)}, search_path, ask)


def _try(config: Config, series: str, message: dict[str, Any], request: dict[str, Any], search_path: Sequence[str], ask: Ask) -> Tried:
    policies, revision = load(config.policies[series], search_path=search_path, session_version=SESSION_VERSION, config=config)
    # the built-in model's name, which is routed whatever upstreams there are
    config = config.model_copy(update={"demo": True})
    body = {"model": "demo", **request}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    answer = {
        "id": "chatcmpl-trial", "object": "chat.completion", "created": 0, "model": "demo",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }  # fmt: skip
    trial = _Trial(_session(config, series, policies, revision), ask)
    trial.session.begin(json.dumps(body).encode())
    trial.settle()
    if not trial.refused:
        trial.session.body(1, json.dumps(answer).encode())
        trial.settle()
    return trial.tried(message.get("content") or "")


def _session(config: Config, series: str, policies: Sequence[Policy], revision: str) -> Session:
    call_id = "00000000-0000-7000-8000-000000000000"
    nonce = "0" * 32
    info = CallInfo(
        call_id, 0, DEFAULT.name, DEFAULT.answers, "trial", "", nonce, "trial", series, revision, durable=False,
        max_arguments_bytes=config.limits.event_bytes,
    )  # fmt: skip
    return session_of(info, policies, config)


class _Trial:
    """One session, fed until nothing more comes of it."""

    def __init__(self, session: Session, ask: Ask) -> None:
        self.session, self._ask = session, ask
        self._texts: list[str] = []
        self._records: list[Record] = []
        self.refused = ""
        """What the client is told instead of an answer, where the request itself was blocked."""
        self._asked, self._open = "", False

    def settle(self) -> None:
        """Do what the session wants done: commits are there at once, judges answer if they can."""
        for _ in range(_MOST_STEPS):
            taken = self.session.drain()
            if taken.lookup:
                self.session.turns(())
            self._keep(taken)
            for wanted in taken.asks:
                self._asked = wanted.question.model
                judgement = self._ask(wanted.question)
                self._open = judgement is None
                if judgement is not None:
                    self.session.judgement(wanted.block, wanted.step, judgement, 0)
            for block in taken.waits:
                self.session.committed(block, True, 0)
            if not (taken.outputs or taken.asks or taken.waits or taken.lookup):
                return

    def _keep(self, taken: Effects) -> None:
        self._records += taken.records
        for output in taken.outputs:
            if isinstance(output, TextDelta):
                self._texts.append(output.text)
            elif isinstance(output, Respond):
                self.refused = json.loads(output.body)["error"]["message"]

    def tried(self, said: str) -> Tried:
        """What came of it; `said` is the text that the model is taken to have said."""
        text = "".join(self._texts)
        if self._open:
            return Tried("ask", judge=self._asked)
        if self.refused:
            return Tried("block", text=self.refused)
        call = next((r for r in self._records if isinstance(r, ToolCallRecord)), None)
        if call is not None and not said:
            released = (call.released_arguments or b"").decode()
            outcome: Outcome = call.verdict if call.verdict in ("allow", "replace") else "defer" if call.verdict == "discarded" else "block"
            return Tried(outcome, text, released, call.policy, call.rule or "", call.reason, self._asked)
        block = next((r for r in self._records if isinstance(r, BlockRecord | ToolCallRecord) and r.verdict != "allow"), None)
        if block is None:
            return Tried("allow" if text == said else "replace", text, judge=self._asked)
        outcome = "replace" if block.verdict == "replace" else "block"
        return Tried(outcome, text, "", block.policy, block.rule or "", block.reason, self._asked)
