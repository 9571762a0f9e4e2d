"""Turns of a request that crosses: common to the writers of all dialects (docs/change/protocol.md
1.10)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NoReturn, assert_never

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.request import (
    ChatRequest,
    DialectName,
    OtherPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from protocol.requests.fields import invalid
from protocol.requests.names import Ids, Names
from protocol.requests.neutral import (
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    ProviderCallPart,
    ProviderResultPart,
    RefusalPart,
    ResultPart,
    SummaryPart,
    ThinkingPart,
    kind_of,
)
from protocol.server_tools import history as provider_history
from protocol.target import RequestNotes

Role = Literal["user", "assistant", "system"]
SYSTEM_MARK = "[system message] "
"""Before a system message that stands where only a user's may."""


def asks(turn: AnyTurn) -> bool:
    """Does the turn say something beside results?"""
    return any(not isinstance(p, ToolResultPart) for p in turn.parts)


def last_asked(turns: Sequence[AnyTurn]) -> int:
    """Return where the user asks last, -1 for nowhere: the assistant's turn behind it still goes
    on."""
    return max((i for i, t in enumerate(turns) if t.role == "user" and asks(t)), default=-1)


def goes_on_without(request: ChatRequest, dialect: DialectName, *thinking: str) -> bool:
    """Is this the middle of a turn with calls whose thinking, parts of these kinds, is not known?
    The API then refuses to think, and none is made up."""
    last = next((t for t in reversed(request.turns) if t.role == "assistant"), None)
    if last is None or not any(isinstance(p, ToolUsePart) for p in last.parts):
        return False
    first = last.parts[0]
    return not (
        isinstance(first, OtherPart) and dialect == first.dialect and first.kind in thinking
    )


def misplaced(part: NeutralPart) -> NoReturn:
    """Refuse a part that the dialect does not take where it is."""
    invalid(
        f"a {kind_of(part)[:60]} block cannot be sent to this model's provider in this place",
        "messages",
    )


def note_system(draft: RequestNotes, turns: Sequence[NeutralTurn]) -> None:
    """Note what is beside the texts of the leading system messages: it is left out."""
    for turn in turns:
        extra = {n: v for p in turn.parts if isinstance(p, TextPart) for n, v in p.extra.items()}
        draft.note("system[]", extra | turn.extra)


def system_text(draft: RequestNotes, parts: Sequence[NeutralPart]) -> str:
    """Return the text of a later system message. Raises InvalidRequest where there is more than
    that."""
    for part in parts:
        if not isinstance(part, TextPart):
            misplaced(part)
        draft.note("messages[]", part.extra)
    return plain_text(parts)


def plain_text(parts: Sequence[NeutralPart]) -> str:
    """Return the texts among these parts as one."""
    return "".join(p.text for p in parts if isinstance(p, TextPart))


def joined(
    draft: RequestNotes, turns: Sequence[AnyTurn], *, keeps_system: bool
) -> list[tuple[Role, list[NeutralPart], int]]:
    """Return the turns with neighbours of one role as one, and the position of the last of them:
    templates of models want roles to alternate. Unless the provider `keeps_system` messages in the
    middle, they are a user's text with a mark.
    """
    merged: list[tuple[Role, list[NeutralPart], int]] = []
    for position, turn in enumerate(turns):
        draft.note("messages[]", turn.extra)
        role, parts = turn.role, list[NeutralPart](turn.parts)
        if role == "system":
            text = system_text(draft, turn.parts)
            parts = [TextPart(text)]
            if not keeps_system:
                role, parts = "user", [TextPart(SYSTEM_MARK + text)] if text.strip() else []
        if role == "assistant" and all(
            isinstance(p, ThinkingPart) or (isinstance(p, TextPart) and not p.text) for p in parts
        ):
            # no message of its own: providers refuse an answer that says nothing
            if any(isinstance(p, ThinkingPart) for p in parts):
                draft.drop("messages[].thinking")
            continue
        if not merged or merged[-1][0] != role or role == "system":
            merged.append((role, parts, position))
            continue
        before = merged[-1][1]
        if role == "assistant" and all(
            any(isinstance(p, TextPart) for p in group) for group in (before, parts)
        ):
            before.append(TextPart("\n\n"))
        merged[-1] = role, before + parts, position
    return merged


class Answers:
    """The earlier answers of one request, for dialects that have no words but text for what a
    provider ran in them."""

    def __init__(self, draft: RequestNotes, turns: Sequence[AnyTurn]) -> None:
        self._draft, self._results = draft, provider_history.results_of(turns)

    def texts(
        self,
        part: (
            TextPart
            | RefusalPart
            | SummaryPart
            | ProviderCallPart
            | ProviderResultPart
            | ToolResultPart
            | MediaPart
            | OtherPart
        ),
        before: Sequence[str],
    ) -> list[str]:
        """Return what a part says, behind the texts `before` it. Raises InvalidRequest for one that
        no answer has."""
        match part:
            case TextPart():
                self._draft.note("messages[]", part.extra)
                return [part.text]
            case RefusalPart() | SummaryPart():
                return _aside(part.text, before)
            case ProviderCallPart():
                self._draft.drop(f"messages[].{part.kind}")
                # a result is one call's: repeated for every call of its id, it would cost its size
                # each time
                return _aside(
                    provider_history.describe_call(part, self._results.pop(part.id, None)), before
                )
            case ProviderResultPart():
                self._draft.drop(f"messages[].{part.kind}")
                return []
            case ToolResultPart() | MediaPart() | OtherPart():
                misplaced(part)
            case _:
                assert_never(part)


def _aside(text: str, before: Sequence[str]) -> list[str]:
    """The pieces for a text that is not of the answer itself."""
    return [("\n\n" if any(before) else "") + text + "\n\n"] if text else []


def read_input(identity: str, arguments: str) -> msgspec.Raw:
    """Return the arguments of the call of this id as JSON for its input. Raises InvalidRequest:
    arguments are never guessed."""
    text = normal_arguments(arguments)
    try:
        loads_arguments(text)
    except AmbiguousJson as error:
        invalid(
            f"the arguments of the tool call {identity[:60]!r} cannot be read: {error}", "messages"
        )
    return msgspec.Raw(text.encode())


Block = dict[str, Any]


class BlockWriter(ABC):
    """Writes the turns of one request for a dialect whose messages hold blocks, of the user and of
    the assistant in turn."""

    dialect: ClassVar[DialectName]

    def __init__(
        self, draft: RequestNotes, neutral: NeutralRequest, names: Names, ids: Ids
    ) -> None:
        self._draft = draft
        self._neutral = neutral
        self._names = names
        self._ids = ids
        self._results = provider_history.results_of(neutral.turns)

    def turns(self) -> list[Block]:
        """Return the messages, [] where none has content. Raises InvalidRequest naming what cannot
        be expressed for the provider."""
        messages: list[Block] = []
        for position, turn in enumerate(self._neutral.turns):
            role = "assistant" if turn.role == "assistant" else "user"
            blocks = self._blocks(turn)
            if turn.role == "system":
                if self._keeps_system(position, messages):
                    role = "system"
                else:
                    blocks = [
                        b | {"text": SYSTEM_MARK + b["text"]} if "text" in b else b for b in blocks
                    ]
            if blocks and messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
        for message in messages:
            if message["role"] == "user":
                # the API wants results before anything else of their turn
                message["content"].sort(key=lambda block: not self._is_result(block))
        return messages

    @abstractmethod
    def _blocks(self, turn: AnyTurn) -> list[Block]:
        """The blocks of a turn with its marks for the prompt cache."""

    def _keeps_system(self, position: int, messages: Sequence[Block]) -> bool:
        """May the system message at this position stay one, behind these messages?"""
        return False

    @abstractmethod
    def _is_result(self, block: Block) -> bool:
        """Is this the result of a tool?"""

    def _part(self, part: NeutralPart) -> list[Block]:
        match part:
            case TextPart() | RefusalPart():
                return [self._text(part)] if part.text.strip() else []
            case ToolUsePart():
                return [self._call(part, read_input(part.id, part.arguments))]
            case ToolResultPart():
                if part.form == "legacy" and not part.tool_call_id:
                    invalid("a function message answers no earlier function_call", "messages")
                return [self._result(part)]
            case OtherPart(dialect=self.dialect):
                # from the record of an earlier answer: sealed or signed, so as it was
                return [part.body]
            case MediaPart():
                return [self._media(part)]
            case ThinkingPart():
                return []  # sealed for another provider, or not at all
            case ProviderCallPart():
                self._draft.drop(f"messages[].{part.kind}")
                # a result is one call's: repeated for every call of its id, it would cost its size
                # each time
                result = self._results.pop(part.id, None)
                return [self._text(TextPart(provider_history.describe_call(part, result)))]
            case ProviderResultPart():
                return self._provider_result(part)
            case SummaryPart():
                return self._summary(part)
            case OtherPart():
                refuse_part(part)
            case _:
                assert_never(part)

    @abstractmethod
    def _text(self, part: TextPart | RefusalPart) -> Block: ...

    @abstractmethod
    def _call(self, part: ToolUsePart, arguments: msgspec.Raw) -> Block: ...

    @abstractmethod
    def _result(self, part: ToolResultPart) -> Block: ...

    @abstractmethod
    def _media(self, part: MediaPart) -> Block: ...

    def _provider_result(self, part: ProviderResultPart) -> list[Block]:
        return []  # written with its call

    def _summary(self, part: SummaryPart) -> list[Block]:
        refuse_part(part)

    def _inner(self, part: ResultPart | MediaPart) -> list[Block]:
        """The blocks of what a result or a document holds."""
        return [block for inner in part.parts for block in self._part(inner)]


def refuse_part(part: NeutralPart) -> NoReturn:
    """Refuse a part that the dialect does not take anywhere."""
    invalid(
        f"a part of type {kind_of(part)[:60]!r} cannot be sent to this model's provider", "messages"
    )
