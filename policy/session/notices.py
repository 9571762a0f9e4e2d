"""Notices: the text that a client gets in place of blocked content, in one form for all causes.

A notice says what was blocked and why, that it was not executed, what to do, and the call's id for
a person to quote. In the next turn the model reads it as its own words. A worker that replays the
call after a takeover must write the same bytes, so a notice is made only from the call and the
decision, without a clock. The setting `notices` sets the detail: `full`; `plain`, without rules,
policies and thresholds, which would help a model to evade them; `silent`, the least text that
nobody can take for a call that ran. Must not know: events, dialects.
"""

from collections.abc import Mapping

import msgspec

from policy.base import Block, Executor, shown
from policy.session.decision import Decided
from protocol.reasons import SENTENCES
from settings.config import NoticeForm

_ASK = "Do not retry it in another form; ask the user"
_GO_ON = "Do not retry it in another form; go on without it, or tell the user what you cannot do"
_TELL = "Tell the user"
_LATER = "Try again later"
_MEND = "Correct the arguments"
_OFFERED = "Use a tool that is offered"
_ADVICE = {
    "judge": _ASK,
    "judge_unavailable": _LATER,
    "judge_deadline": _LATER,
    "judge_invalid": _LATER,
    "judge_fault": _LATER,
    "score": _ASK,
    "critical": _ASK,
    "monitor_fault": _LATER,
    "not_allowed": _ASK,
    "unsure": "Write it so that its text shows everything it would run, or ask the user",
    "schema": _MEND,
    "fault": _TELL,
    "conflict": _TELL,
    "too_many_asks": _TELL,
    "audit_unavailable": _LATER,
    "too_large": "Make them smaller",
    "tool_too_large": _TELL,
    "answer_too_large": "Make this call in a separate answer",
    "history_too_large": _TELL,
    "no_user": _ASK,
    "nonce": _ASK,
    "ambiguous_json": _MEND,
    "name": _OFFERED,
    "ambiguous_name": "Include the tool's namespace in the name",
    "one_call": "Make it in the next answer",
    "tool_choice": _OFFERED,
    "not_offered": _OFFERED,
    "too_many": "Make fewer calls per answer",
}
_OF_SETUP = frozenset(
    (
        "judge_unavailable",
        "judge_deadline",
        "judge_invalid",
        "judge_fault",
        "monitor_fault",
        "fault",
        "conflict",
        "too_many_asks",
        "audit_unavailable",
    )
)
_CAUSES = {
    reason: (
        (
            f"{SENTENCES[reason]} (a fault in the setup, not in the call)"
            if reason in _OF_SETUP
            else SENTENCES[reason]
        ),
        advice,
    )
    for reason, advice in _ADVICE.items()
}
"""Cause and advice by the reason on record."""
_OF_TEXT = {"fault": _CAUSES["fault"]}
"""The other reasons apply only to tool calls."""
SETUP_FAULTS = _OF_SETUP
"""Reasons for which the next call would be blocked just so."""
MARKS = ("[Sluice blocked the tool call ", "[not executed]")
"""How the notices of blocked calls begin, as far as every form of theirs has it in common."""
_OPTIONS = frozenset(("allow", "unread", "unsure", "validate_schema"))
"""Options of `tool_rules` recorded in place of a rule's name: their reasons explain them."""


class Notices:
    """The notices of one call. `series` is the name of its policies in the configuration."""

    def __init__(self, call_id: str, series: str, form: NoticeForm) -> None:
        self._call_id, self._series, self._form = call_id, series, form

    def call(self, name: str, executor: Executor, decided: Decided) -> str:
        """What stands in place of a tool call (or of a result, where its call is denied)."""
        if executor in ("client", "mcp_pending"):
            least, what, state = (
                "[not executed]",
                f"blocked the tool call {shown(name)}",
                "It was not executed",
            )
        else:
            least, what, state = (
                "[withheld]",
                f"blocked the tool call {shown(name)} and withheld its result",
                "The provider may have run it",
            )
        return self._notice(least, what, decided, state)

    def failed_result(self, name: str, decided: Decided) -> str:
        """What the model reads as the result of its blocked tool call, to go on from there."""
        return self.call(name, "client", decided).replace(_ASK, _GO_ON)

    def too_many(self, why: str) -> str:
        """What stands at the end of an answer that is not continued any more; nothing where notices
        are silent."""
        return self._framed("", f"ended this turn: {why}. Ask the user")

    def result(self, name: str, decided: Decided) -> str:
        """What stands in place of the result of an allowed tool call that the provider ran."""
        return self._notice(
            "[withheld]",
            f"blocked the result of the tool call {shown(name)}",
            decided,
            "The provider ran it",
        )

    def text(self, block: Block, policy: str) -> str:
        """What stands in place of the rest of a text; nothing where notices are silent."""
        decided = Decided.of(block, policy)
        return self._notice("", "blocked text here", decided, "", _OF_TEXT)

    def whole_answer(self) -> str:
        """What stands in an answer of which nothing else is left."""
        return self._framed("[withheld]", "withheld this answer: none of it may be passed on")

    def blocked_request(self, why: str, block: Block) -> str:
        """The error message for a request that a policy blocked; `why` is the full text."""
        return (
            why
            if self._form == "full"
            else (self._form == "plain" and block.message) or "a policy blocked this request"
        )

    def ended(self, why: str) -> str:
        """What stands at the end of an answer that is cut; `why` is the error's sentence."""
        why = "a policy blocked the rest" if self._form == "plain" else why
        return self._framed("[withheld]", f"cut this answer short: {why.rstrip('.')}")

    def least(self, *, of_call: bool) -> str:
        """The notice when a policy blocks the notice itself: no word of it comes from a model, a
        policy or the configuration."""
        what = "blocked a tool call. It was not executed" if of_call else "withheld something here"
        return self._framed("[not executed]" if of_call else "[withheld]", what)

    def _framed(self, least: str, text: str) -> str:
        return least if self._form == "silent" else f"[Sluice {text}. Call {self._call_id}.]"

    def _notice(
        self,
        least: str,
        what: str,
        decided: Decided,
        state: str,
        causes: Mapping[str, tuple[str, str]] = _CAUSES,
    ) -> str:
        if self._form == "silent":
            return least
        if decided.feedback == "silent":
            return self._framed(least, f"{what}. {state}" if state else what)
        if decided.feedback == "reason":
            decided = msgspec.structs.replace(decided, message="", rule="", detail="", why="")
        cause, advice = self._cause(decided, causes)
        advice = decided.advice or advice
        sentences = [f"{what}: {_ended(cause)}", f"{state}. {advice}." if state else f"{advice}."]
        if decided.why and self._form == "full":
            sentences.insert(1, f"It {_ended(decided.why)}")
        if decided.message and decided.rule and self._form == "full":
            sentences.append(f"Blocked by rule {decided.rule!r} of the policy {self._series!r}.")
        return self._framed(least, " ".join(sentences)[:-1])

    def _cause(self, decided: Decided, causes: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
        cause, advice = causes.get(decided.reason, ("", _ASK))
        if decided.message:
            return decided.message.strip(), advice
        is_full, series = self._form == "full", f"the policy {self._series!r}"
        if decided.rule and decided.rule not in _OPTIONS:
            cause, advice = f"rule {decided.rule!r} of {series}", _ASK
            details = ["" if decided.reason == "rule" else decided.reason, decided.detail]
        elif cause:
            if is_full and decided.reason == "not_allowed":
                cause = f"no rule of {series} allows it"
            elif is_full and decided.reason == "unsure":
                cause = f"{cause}, and {series} blocks such calls"
            return cause + _in_brackets(decided.detail) if is_full else cause, advice
        else:
            cause, details = (
                f"{series} forbids it",
                [
                    f"{decided.policy}: {decided.reason}",
                    decided.detail,
                ],
            )
        return (cause + _in_brackets(*details) if is_full else "the policy forbids it"), advice


def _in_brackets(*details: str) -> str:
    joined = ", ".join(filter(None, details))
    return f" ({joined})" if joined else ""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
