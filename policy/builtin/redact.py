"""Masks secrets and personal data in what goes to a provider and in what comes from it.

A request is masked as a whole, and the same conversation always in the same way, so that providers'
prompt caches hold. With `mask_restore` a value gets a placeholder; what placeholders stand for is
read from the request itself, so only what this client sent now comes back to it: in text, and in
arguments of the tools that `restore_tools` names.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from policy.base import (
    ALLOW,
    SEALED_FIELDS,
    SEALED_REASONING,
    Block,
    Context,
    OtherBlock,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.builtin.held_text import HoldsText, Match
from policy.builtin.text_replace import Replacement, TextReplace, texts_of
from policy.patterns import NamePattern, NamePatterns, Pattern
from policy.redaction.placeholders import PLACEHOLDER, fingerprint, masked, may_begin, placeholder
from policy.redaction.search import (
    CLASSES,
    LONG_RUN_CHARS,
    Find,
    decided_to,
    finds,
    is_dull,
    search,
)
from policy.redaction.secret_rules import CONTEXT_CHARS
from protocol.bounds import MAX_FINDINGS, MAX_SEARCHED_TEXTS
from protocol.bytes.json_strict import dumps
from protocol.events import BlockKind
from protocol.request import ChatRequest
from protocol.request_texts import map_contents, map_json
from settings.config import Name

Kind = Literal["secret", "email", "card", "iban", "phone", "custom"]
_KINDS = (*CLASSES, "custom")


def _off(action: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if action is False else action


RequestAction = Annotated[Literal["mask", "mask_restore", "block", "off"], BeforeValidator(_off)]
AnswerAction = Annotated[Literal["mask", "block", "off"], BeforeValidator(_off)]
_EXPOSED = (
    "bash shell terminal run_command execute_command exec powershell local_shell http_request fetch"
    " WebFetch curl browser send_email send_mail email gmail_send"
).split()
"""Names of tools that send what they are told to somebody, or run it."""


class Custom(BaseModel):
    """A text or pattern of your own, of the class `custom`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    """Its name in the record."""
    find: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    """A literal text. Each rule has either this or `pattern`."""
    pattern: Pattern | None = None
    """A pattern, of at most 256 characters of text. An answer's text waits for so many more."""


class RedactOptions(BaseModel):
    """Options of `redact`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    request: RequestAction | dict[Kind, RequestAction] = "mask"
    """What is done in requests: one word, or one for each class; a class that is not named is
    masked. `mask` puts `REDACTED_EMAIL` in the place of an address; `mask_restore` a placeholder,
    whose value comes back; `block` refuses the request; `off` lets it pass."""
    answer: AnswerAction | dict[Kind, AnswerAction] = "mask"
    """The same in answers, but for values that come back. A block that is carried whole, such as
    the result of a provider's tool, is withheld."""
    restore_tools: NamePattern | list[NamePattern] = []
    """The tools whose arguments get values back. A call of another tool with a placeholder is
    blocked."""
    custom: Annotated[tuple[Custom, ...], Field(max_length=1_000)] = ()
    """Texts and patterns of your own."""


class _Blocked(Exception):
    """What is in the text is to be blocked."""

    def __init__(self, find: Find) -> None:
        self.block = Block(
            "redacted", f"it has what looks like a {find.kind} in it", rule=find.rule
        )


class Redact(HoldsText):
    """Mask what requests and answers must not have in them."""

    name = "redact"
    keeps_request = False
    context_chars: ClassVar[int] = CONTEXT_CHARS

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = RedactOptions.model_validate(options)
        self._request = _by_kind(self.options.request)
        self._answer = _by_kind(self.options.answer)
        self._restore_tools = NamePatterns(self.options.restore_tools)
        self.needs_key = self._restores = "mask_restore" in self._request.values()
        self._masks_answers = set(self._answer.values()) != {"off"}
        self._custom = (
            TextReplace(
                rules=[
                    Replacement(find=rule.find, pattern=rule.pattern, replace=f"\0{number}")
                    for number, rule in enumerate(self.options.custom)
                ]
            )
            if self.options.custom
            else None
        )
        # read and compiled now, not while a call waits
        search("")
        self._seen: dict[bytes, tuple[Find, ...]] = {}
        """What is in texts of requests, by their SHA-256: a conversation comes again with each
        turn. It changes no decision."""
        self._values: dict[str, str] = {}
        """What placeholders of the request stand for."""
        self._is_text = True
        exposed = [tool for tool in _EXPOSED if self._restore_tools.match(tool)]
        if self._restores and exposed:
            self.warnings = [
                f"restore_tools takes {exposed[0]!r}: who can make the model call it gets the values"
            ]

    def why_idle(self) -> str:
        """Where all is off."""
        if self._masks_answers or set(self._request.values()) != {"off"}:
            return ""
        return "`request` and `answer` are off: mask or block something"

    def for_call(self, context: Context) -> Self:
        """Give the call its own values and findings."""
        clone = super().for_call(context)
        clone._values, clone.findings = {}, []
        return clone

    # --- the request ---

    def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
        """Mask its texts."""
        values: dict[str, str] = {}
        never = set[str]()
        changes = 0

        def instead(find: Find, text: str, place: str) -> str:
            nonlocal changes
            changes += 1
            if self._request[find.kind] != "mask_restore":
                return masked(find.kind)
            name = placeholder(self.key, self.context.key, find.kind, find.value)
            if place.startswith("system"):
                never.add(name)
            values.setdefault(name, text[find.start : find.end])
            return name

        def mask(text: str, place: str) -> str:
            return self._mask(text, place, self._request, self._known(text), instead)

        try:
            changed = map_contents(request, mask)
        except _Blocked as blocked:
            return blocked.block
        except ValueError:
            return Block("redacted", "two keys of an object in it would become the same")
        self._values = {name: value for name, value in values.items() if name not in never}
        return changed if changes else None

    def _known(self, text: str) -> Sequence[Find]:
        """What is in a text; it may have been searched before."""
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        finds_in = self._seen.get(digest)
        if finds_in is None:
            if len(self._seen) >= MAX_SEARCHED_TEXTS:
                self._seen.clear()
            self._seen[digest] = finds_in = tuple(self._search(text))
        return finds_in

    def _search(self, text: str) -> list[Find]:
        every = search(text)
        if self._custom is not None:
            every += self._custom_finds(text, 0, len(text), final=True)
        return _apart(every)

    def _custom_finds(self, text: str, start: int, stop: int, *, final: bool) -> list[Find]:
        assert self._custom is not None
        _, matches = self._custom._decided(text, start, final=final)
        rules = self.options.custom
        return [
            Find(begin, end, "custom", rules[int(number[1:])].name, text[begin:end])
            for begin, end, number in matches
            if begin < stop
        ]

    def _mask(
        self,
        text: str,
        place: str,
        actions: Mapping[str, str],
        every: Sequence[Find],
        instead: Callable[[Find, str, str], str],
    ) -> str:
        parts, at = list[str](), 0
        for find in every:
            action = actions[find.kind]
            if action == "off" or PLACEHOLDER.fullmatch(find.value):
                continue
            self._note(find, place, action)
            if action == "block":
                raise _Blocked(find)
            parts += (text[at : find.start], instead(find, text, place))
            at = find.end
        return "".join((*parts, text[at:])) if parts else text

    def _note(self, find: Find, place: str, action: str) -> None:
        mark = fingerprint(self.key or self.context.nonce.encode(), find.kind, find.value)
        words = f"{place}: {action} {find.kind} {find.rule} {len(find.value)} {mark}"
        findings = self.findings
        assert isinstance(findings, list)
        if len(findings) < MAX_FINDINGS and words not in findings:
            findings.append(words)

    # --- the answer ---

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        """Return what is decided."""
        self._is_text = block.kind is BlockKind.TEXT
        if not self._masks_answers and not (self._values and self._is_text):
            return text
        try:
            released = self._advance(self._taken(text, block), final=False)
        except _Blocked as blocked:
            return blocked.block
        return text if released == text else released

    def on_text_end(self, block: TextBlock) -> str | Block:
        """Return what is left."""
        self._is_text = block.kind is BlockKind.TEXT
        try:
            return self._end(block)
        except _Blocked as blocked:
            return blocked.block

    def _decided(self, text: str, position: int, *, final: bool) -> tuple[int, list[Match]]:
        matches: list[Match] = []
        while True:
            stop = len(text) if final else self._stop(text, position)
            matches += self._matches(text, position, stop, final=final)
            after = max(stop, matches[-1][1] if matches else 0)
            if final or after == position or len(text) - after < LONG_RUN_CHARS:
                return stop, matches
            # a long run is decided in pieces
            position = after

    def _stop(self, text: str, start: int) -> int:
        if not self._masks_answers:
            return may_begin(text, start)
        stop = decided_to(text, start)
        if self._custom is not None:
            stop = min(stop, self._custom._decidable(text, start))
            stop = min(stop, decided_to(text[:stop], start)) if stop > start else start
        return stop

    def _matches(self, text: str, start: int, stop: int, *, final: bool) -> list[Match]:
        if start >= stop or (self._custom is None and is_dull(text, start)):
            return []
        matches = [
            (match.start(), match.end(), self._values[match[0]])
            for match in (
                PLACEHOLDER.finditer(text, start) if self._values and self._is_text else ()
            )
            if match.start() < stop and match[0] in self._values
        ]
        if self._masks_answers:
            every = finds(text, start, stop)
            if self._custom is not None:
                every += self._custom_finds(text, start, stop, final=final)
            matches += [
                (find.start, find.end, masked(find.kind))
                for find in _apart(every)
                if self._is_masked(find, "text")
            ]
        return sorted(matches)

    def _is_masked(self, find: Find, place: str) -> bool:
        """Is this to be masked in the answer? Not what the client gets back anyway. Raises
        _Blocked."""
        action = self._answer[find.kind]
        if action == "off" or PLACEHOLDER.search(find.value) or find.value in self._values.values():
            return False
        self._note(find, place, action)
        if action == "block":
            raise _Blocked(find)
        return True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Mask its arguments, and give it its values back, where it may have them."""
        may_restore = self._restore_tools.match(call.name)
        strange = False

        def restored(match: Any) -> str:
            nonlocal strange
            value = self._values.get(match[0]) if may_restore else None
            strange = strange or value is None
            return value or ""

        def change(text: str) -> str:
            every = [f for f in self._search(text) if self._is_masked(f, f"call {call.block}")]
            text = self._put(text, every)
            return PLACEHOLDER.sub(restored, text) if self._restores else text

        try:
            value = map_json(call.value, change)
        except _Blocked as blocked:
            return blocked.block
        except ValueError:
            return Block("redacted", "two keys of its arguments would become the same")
        if strange:
            return Block("placeholder")
        return ALLOW if value == call.value else Replace(dumps(value).decode(), "redacted")

    def _put(self, text: str, every: Sequence[Find]) -> str:
        for find in reversed(every):
            text = text[: find.start] + masked(find.kind) + text[find.end :]
        return text

    def on_other(self, block: OtherBlock) -> Verdict:
        """Withhold what cannot be changed."""
        if self._masks_answers:
            sealed = SEALED_REASONING if block.type == "redacted_thinking" else SEALED_FIELDS
            for text in texts_of(block.body, sealed):
                for find in self._search(text):
                    try:
                        if self._is_masked(find, block.type):
                            return Block("redacted", rule=find.rule)
                    except _Blocked as blocked:
                        return blocked.block
        return ALLOW


def _by_kind(actions: Any) -> dict[str, str]:
    """The action for each class."""
    return {
        kind: actions if isinstance(actions, str) else actions.get(kind, "mask") for kind in _KINDS
    }


def _apart(every: list[Find]) -> list[Find]:
    """In order, without what begins inside another."""
    apart: list[Find] = []
    for find in sorted(every, key=lambda find: (find.start, -find.end)):
        if not apart or find.start >= apart[-1].end:
            apart.append(find)
    return apart
