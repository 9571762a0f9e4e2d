"""Notices: the text that a client gets in place of blocked content, in one form for all causes.

A notice says what was blocked and why, that it was not executed, what to do, and the call's id for
a person to quote. In the next turn the model reads it as its own words. A worker that replays the
call after a takeover must write the same bytes, so a notice is made only from the call and the
decision, without a clock. The setting `notices` sets the detail: `full`; `plain`, without rules,
policies and thresholds, which would help a model to evade them; `silent`, the least text that
nobody can take for a call that ran. Must not know: events, dialects.
"""

import msgspec

from policy.base import Block, Executor, shown
from policy.session.decision import Decided
from policy.word_tables import by_word, sections
from protocol.reasons import SENTENCES
from settings.config import NoticeForm

_TABLE = {name: by_word(rows) for name, rows in sections("notices.txt").items()}
_ADVICE = _TABLE["advice"]
_ASK = _ADVICE["not_allowed"]
_GO_ON = "Do not retry it in another form; go on without it, or tell the user what you cannot do"
SETUP_FAULTS = frozenset(_TABLE["setup"])
"""Reasons for which the next call would be blocked just so."""
MARKS = ("[Sluice blocked the tool call ", "[not executed]")
"""How the notices of blocked calls begin, as far as every form of theirs has it in common."""
_OPTIONS = frozenset(("allow", "unread", "unsure", "validate_schema"))
"""Options of `tool_rules` recorded in place of a rule's name: their reasons explain them."""


class Notices:
    """The notices of one call. `series` is the name of its policies in the configuration."""

    def __init__(self, call_id: str, series: str, form: NoticeForm) -> None:
        self._call_id, self._series, self.form = call_id, series, form

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
        return self._notice("", "blocked text here", decided, "", of_text=True)

    def judged(self, decided: Decided, what: str = "withheld text here") -> str:
        """What stands in place of a text that a judge does not let pass."""
        return self._notice("[withheld]", what, decided, "")

    def tool_result(self, decided: Decided) -> str:
        """What the model reads in place of a tool's result that a judge does not let pass: the same
        in each request that has it, or providers' prompt caches would not hold."""
        notice = self.judged(decided, "withheld this result")
        return notice.replace(f" Call {self._call_id}.", "")

    def whole_answer(self) -> str:
        """What stands in an answer of which nothing else is left."""
        return self._framed("[withheld]", "withheld this answer: none of it may be passed on")

    def blocked_request(self, why: str, block: Block) -> str:
        """The error message for a request that a policy blocked; `why` is the full text."""
        return (
            why
            if self.form == "full"
            else (self.form == "plain" and block.message) or "a policy blocked this request"
        )

    def ended(self, why: str) -> str:
        """What stands at the end of an answer that is cut; `why` is the error's sentence."""
        why = "a policy blocked the rest" if self.form == "plain" else why
        return self._framed("[withheld]", f"cut this answer short: {why.rstrip('.')}")

    def least(self, *, of_call: bool) -> str:
        """The notice when a policy blocks the notice itself: no word of it comes from a model, a
        policy or the configuration."""
        what = "blocked a tool call. It was not executed" if of_call else "withheld something here"
        return self._framed("[not executed]" if of_call else "[withheld]", what)

    def _framed(self, least: str, text: str) -> str:
        return least if self.form == "silent" else f"[Sluice {text}. Call {self._call_id}.]"

    def _notice(
        self, least: str, what: str, decided: Decided, state: str, *, of_text: bool = False
    ) -> str:
        if self.form == "silent":
            return least
        if decided.feedback == "silent":
            return self._framed(least, f"{what}. {state}" if state else what)
        if decided.feedback == "reason":
            decided = msgspec.structs.replace(decided, message="", rule="", detail="", why="")
        cause, advice = self._cause(decided, of_text=of_text)
        advice = decided.advice or advice
        sentences = [f"{what}: {_ended(cause)}", f"{state}. {advice}." if state else f"{advice}."]
        if decided.why and self.form == "full":
            sentences.insert(1, f"It {_ended(decided.why)}")
        if decided.message and decided.rule and self.form == "full":
            sentences.append(f"Blocked by rule {decided.rule!r} of the policy {self._series!r}.")
        return self._framed(least, " ".join(sentences)[:-1])

    def _cause(self, decided: Decided, *, of_text: bool) -> tuple[str, str]:
        reason, series = decided.reason, f"the policy {self._series!r}"
        # the other reasons apply only to tool calls
        is_known = reason in _ADVICE and (not of_text or reason == "fault")
        advice = _ADVICE[reason] if is_known else _ASK
        if decided.message:
            return decided.message.strip(), advice
        is_by_rule = bool(decided.rule) and decided.rule not in _OPTIONS
        if is_by_rule:
            advice, cause = _ASK, f"rule {decided.rule!r} of {series}"
            details = ["" if reason == "rule" else reason, decided.detail]
        elif is_known:
            cause = _TABLE["full"].get(reason, SENTENCES[reason]).format(series=series)
            details = [decided.detail]
        else:
            cause = f"{series} forbids it"
            details = [f"{decided.policy}: {reason}", decided.detail]
        if self.form != "full":
            cause, details = "the policy forbids it", []
            if is_known and not is_by_rule:
                cause = SENTENCES[reason]
        if is_known and not is_by_rule and reason in SETUP_FAULTS:
            cause += " (a fault in the setup, not in the call)"
        return cause + _in_brackets(*details), advice


def _in_brackets(*details: str) -> str:
    joined = ", ".join(filter(None, details))
    return f" ({joined})" if joined else ""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
