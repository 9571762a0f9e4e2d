"""The base class of monitors: a monitor measures a tool call and never acts.

A protocol decides what to do about a score (`policy.builtin.control`). A monitor is pure, as a
policy is: no clock, no randomness, no IO. To ask a judge it returns the question as a value. One
object is made from the options; each client call gets its own copy, in which a monitor may keep
what it saw of the request. A monitor that raises, or returns an invalid value, counts as the worst
score.
"""

from typing import ClassVar, Self

from policy.base import AskJudge, Context, Judgement, ToolCall
from policy.scores import Score
from protocol.request import ChatRequest


class Monitor:
    """Base of every monitor; abstains from everything. Its `__init__` takes its options and refuses
    unknown ones."""

    name: ClassVar[str] = ""
    """Stable name, in configurations and in the record."""
    asks: ClassVar[bool] = False
    """May `on_call` return a question?"""
    threshold: float = 1.0
    """The lowest step of the protocol that hears it; what a question keeps as its limit."""
    weight: int = 1
    """How many times longer than patterns it takes for a byte of a call's arguments, as
    `Policy.weight`."""

    reads_project: bool = False
    """Does it go by the project that the call's client names, as `Policy.reads_project`?"""

    def __init__(self, **options: object) -> None:
        if options:
            raise ValueError(
                f"the monitor {self.name!r} has no options, and"
                f" {', '.join(map(repr, sorted(options)))} was given"
            )

    def for_call(self, context: Context) -> Self:
        """Return this monitor's copy for one call of a client. Override to look at the request;
        call super."""
        clone = type(self).__new__(type(self))
        vars(clone).update(vars(self))
        return clone

    def on_request(self, request: ChatRequest) -> None:
        """Look at the request as the policies before made it. It can be changed by nobody here."""

    def on_call(self, call: ToolCall, context: Context) -> Score | AskJudge | None:
        """Measure a complete tool call, or ask a judge first: `on_answer` makes the score of what
        it says. None: this monitor abstains, and has no part in what is decided."""
        return None

    def on_answer(self, call: ToolCall, judgement: Judgement) -> Score:
        """Make a score of a judge's answer. What is no answer is a score with an error."""
        return Score(self.name, None, error=judgement.error or "unexpected")
