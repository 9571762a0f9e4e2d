"""Forms of the request to a judge model, and which form each model accepts, as far as known.

Theory. A form is the way in which the shape of the reply is requested: by a JSON Schema, as any
JSON object, as arguments of a forced tool call, or in words alone. All replies are read by the same
strict rules; a weaker form loses replies and does not accept more. Servers support different forms,
so a model is asked in the first form of its dialect, and after a refusal in the next. The form that
brings the first reply is kept for the life of the process. A later refusal changes the form of that
one question only: it may be chance, or provoked by the judged model, and must not change how others
are asked.

A refusal is an error that names something the form uses. Until a model has accepted a form, 400 and
similar status codes are refusals whatever they say. An overload is not a refusal: 429, and a 5xx
that names nothing. A plain 500 before the first accepted form is ambiguous, because some servers
answer so to unknown fields. Then the next form is tried once, and it is kept after two questions in
a row went that way.
"""

import logging

import msgspec

from policy.base import JudgeQuestion
from policy.judging.prompt import MAX_REPLY, REPLY_SCHEMA, JudgementInvalid
from protocol import codecs
from protocol.bounds import MAX_KNOWN_JUDGES
from protocol.bytes.json_strict import AmbiguousJson, loads_exact
from protocol.dialects.base import JudgeReply
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import ArgumentsDelta, BlockKind, BlockStart, TextDelta
from protocol.request import (
    ChatRequest,
    DialectName,
    ResponseFormat,
    TextPart,
    Tool,
    ToolChoice,
    Turn,
)
from protocol.target import Target
from settings.config import Upstream

log = logging.getLogger(__name__)
MAX_KNOWN = MAX_KNOWN_JUDGES
_DOUBTS = 2
_MAX_TOKENS = 1_024
_TOOL = "judgement"
_DESCRIPTION = "Give the judgement."
_SIGNS: dict[JudgeReply, tuple[bytes, ...]] = {
    "json_schema": (
        b"response_format",
        b"json_schema",
        b"output_config",
        b"output_format",
        b"text.format",
        b"responsejsonschema",
        b"responseschema",
    ),
    "json_object": (
        b"response_format",
        b"json_object",
        b"text.format",
        b"responsemimetype",
        b"response_mime_type",
    ),
    "tool": (b"tool",),
    "text": (),
}
"""What an error names that is about a form."""
_REFUSALS = frozenset((400, 415, 422, 501))


class Known(msgspec.Struct):
    """What is known of a model of an upstream."""

    form: JudgeReply
    has_worked: bool = False
    """Has `form` brought a reply? Then it stays."""
    takes_temperature: bool = True
    doubts: int = 0
    """Questions in a row that `form` was answered with 500 and another form was taken."""


class Asking:
    """One question to one model: the form it is asked in, changed by what the upstream refuses."""

    def __init__(self, known: Known, forms: tuple[JudgeReply, ...], named: dict[str, str]) -> None:
        self.form, self.takes_temperature = known.form, known.takes_temperature
        self.tried = [known.form]
        self._known, self._forms, self._named = known, forms, named
        self._doubts, self._is_doubtful = known.doubts, False

    def refused(self, status: int, answer: bytes) -> bool:
        """Was it refused for what it was asked with, and is there another way, which is now
        taken?"""
        answer = answer.lower()
        if self.takes_temperature and status in _REFUSALS and b"temperature" in answer:
            # reasoning models refuse it
            self.takes_temperature = False
            return True
        is_named = any(sign in answer for sign in _SIGNS[self.form])
        if not is_named and (self._known.has_worked or status not in _REFUSALS):
            return False
        return self._move()

    def failed(self, status: int) -> None:
        """A server error that names nothing: after a first plain 500 of a model that has not worked
        yet, try the next form once."""
        if self._is_doubtful and self.form != self.tried[0]:
            self.form = self.tried[0]
        elif (
            status == 500
            and not self._is_doubtful
            and not self._known.has_worked
            and len(self.tried) == 1
        ):
            self._is_doubtful = self._move()

    def taken(self) -> None:
        """There is a reply: keep what the model was asked with."""
        known, is_other = self._known, self.form != self._known.form
        if known.has_worked:
            return
        if self._is_doubtful and is_other:
            # questions at the same moment met the same overload: together they count once
            known.doubts = max(known.doubts, self._doubts + 1)
            if known.doubts < _DOUBTS:
                return
        known.takes_temperature, known.has_worked, known.doubts = self.takes_temperature, True, 0
        if is_other:
            refused, known.form = known.form, self.form
            log.info(
                "a judge model is asked in another form from now on",
                extra={**self._named, "form": self.form, "refused": refused},
            )

    def _move(self) -> bool:
        left = [form for form in self._forms if form not in self.tried]
        if left:
            self.form = left[0]
            self.tried.append(self.form)
        return bool(left)


class LearnedForms:
    """What this process has learned of judge models. A restart forgets it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Known] = {}

    def begin(self, name: str, upstream: Upstream, model: str) -> Asking:
        """Begin a question to `model` of the upstream `name`. A form that its configuration sets is
        the only one."""
        forms = (
            (upstream.judge_reply,)
            if upstream.judge_reply is not None
            else DIALECTS[upstream.dialect].judge_replies
        )
        if (name, model) not in self._known and len(self._known) >= MAX_KNOWN:
            self._known.clear()
        known = self._known.setdefault((name, model), Known(forms[0]))
        return Asking(known, forms, {"upstream": name, "model": model})


def request_body(dialect: DialectName, question: JudgeQuestion, asking: Asking) -> bytes:
    """Return the request: temperature 0, and the reply's schema enforced as far as the form can."""
    form = asking.form
    answer = (
        ResponseFormat("json_schema", _TOOL, REPLY_SCHEMA, strict=True)
        if form == "json_schema"
        else None
    )
    request = ChatRequest(
        dialect=dialect,
        model=question.model,
        system=(question.system,),
        turns=(Turn("user", (TextPart(question.prompt),)),),
        temperature=0 if asking.takes_temperature else None,
        max_tokens=_MAX_TOKENS if DIALECTS[dialect].needs_max_tokens else None,
        response_format=ResponseFormat("json_object") if form == "json_object" else answer,
        tools=(Tool(_TOOL, _DESCRIPTION, REPLY_SCHEMA),) if form == "tool" else (),
        tool_choice=ToolChoice("tool", _TOOL) if form == "tool" else None,
    )
    return codecs.encode_request(request, Target(dialect=dialect)).body or b""


def reply_text(dialect: DialectName, form: JudgeReply, answer: bytes) -> str:
    """Return the judge's own words from a whole answer to a request of that form. Raises
    JudgementInvalid."""
    try:
        events = codecs.decode_whole(dialect, answer)
        loads_exact(answer)
    except AmbiguousJson:
        # a key that occurs twice: as it came, so that the parser refuses it and the record shows it
        return answer.decode(errors="replace")[: MAX_REPLY + 1]
    except RemoteProtocolError as error:
        raise JudgementInvalid("the judge's answer has no reply in it") from error
    calls = (
        [e for e in events if isinstance(e, BlockStart) and e.kind is BlockKind.TOOL_USE]
        if form == "tool"
        else []
    )
    # also where a tool was forced: servers that know no tools ignore them, and the prompt asks for
    # the same object
    blocks = calls or [
        e for e in events if isinstance(e, BlockStart) and e.kind is BlockKind.TEXT and not e.name
    ]
    if len(blocks) != 1 or (calls and blocks[0].name != _TOOL):
        raise JudgementInvalid("the judge's answer has no reply in it")
    text = "".join(
        e.text
        for e in events
        if isinstance(e, TextDelta | ArgumentsDelta) and e.index == blocks[0].index
    )
    # one character more, so that the parser refuses it
    return text[: MAX_REPLY + 1]
