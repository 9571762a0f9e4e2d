"""Masks secrets and personal data in what goes to a provider and in what comes from it.

A request is masked as a whole, and the same conversation always in the same way, so that providers'
prompt caches hold. With `mask_restore` a value gets a placeholder; what placeholders stand for is
read from the request itself, so only what this client sent now comes back to it: in text, and in
arguments of the tools that `restore_tools` names.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict

from policy.base import (
    ALLOW,
    SEALED_FIELDS,
    SEALED_REASONING,
    Block,
    OtherBlock,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.builtin.text_replace import Match, TextReplace, texts_of
from policy.patterns import NamePattern, NamePatterns, Pattern, literal
from policy.redaction.placeholders import PLACEHOLDER, fingerprint, masked, placeholder
from policy.redaction.search import OFTEN, PIECE_CHARS, Find, apart, decided_to, finds, search
from protocol.bounds import MAX_FINDINGS, MAX_SEARCHED_TEXTS
from protocol.bytes.json_strict import dumps
from protocol.events import BlockKind
from protocol.request import ChatRequest
from protocol.request_texts import map_contents, map_json
from settings.config import Name

Kind = Literal["secret", "email", "card", "iban", "phone", "custom"]
# YAML reads a bare `off` as false
_OFF = BeforeValidator(lambda action: "off" if action is False else action)
RequestAction = Annotated[Literal["mask", "mask_restore", "block", "off"], _OFF]
AnswerAction = Annotated[Literal["mask", "block", "off"], _OFF]
_PLACEHOLDER = "placeholder"
"""The class of what is no find, but may get a value back."""
_EXPOSED = (
    "bash shell terminal run_command execute_command exec powershell local_shell http_request fetch"
    " WebFetch curl browser send_email send_mail email gmail_send"
).split()
"""Names of tools that send their arguments to somebody, or run them."""


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
    custom: dict[Name, Pattern] = {}
    """What else is looked for, by its name in the record: texts, or patterns for at most 256
    characters, for which an answer's text then waits."""


class _Seen(dict[bytes, list[Find]]):
    """What is in texts of requests, by their SHA-256: a conversation comes again with each turn. It
    changes no decision. What is remembered is bounded by texts and finds: a text may be full of
    them."""

    size = 0

    def remember(self, digest: bytes, every: list[Find]) -> None:
        """Remember what is in a text; forget all others where it is too much."""
        self.size += 1 + len(every)
        if self.size > MAX_SEARCHED_TEXTS:
            self.clear()
            self.size = 1 + len(every)
        self[digest] = every


class _Blocked(Exception):
    """What is in a text is to be blocked."""


def _or_block(hook: Callable[..., object]) -> Callable[..., Any]:
    """A hook, with its block in place of `_Blocked`."""

    def blocking(*args: Any) -> object:
        try:
            return hook(*args)
        except _Blocked as blocked:
            return blocked.args[0]
        except ValueError:
            return Block("redacted", "two keys of an object in it would become the same")

    return blocking


class Redact(TextReplace):
    """Mask what requests and answers must not have in them."""

    name = "redact"
    _is_text = True
    keeps_request = False

    def __init__(self, **options: object) -> None:
        made = RedactOptions.model_validate(options)
        self._names = [*made.custom]
        rules = [
            {("find" if literal(p) else "pattern"): p, "replace": f"\0{number}"}
            for number, p in enumerate(made.custom.values())
        ]
        super().__init__(rules=rules or [{"find": "\0", "replace": ""}])
        self._request, self._answer = _by_kind(made.request), _by_kind(made.answer)
        self._restore_tools = NamePatterns(made.restore_tools)
        self.needs_key = "mask_restore" in self._request.values()
        self._masks_answers = {*self._answer.values()} != {"off"}
        # rules are read and compiled now, not while a call waits
        search("1234567")
        self._seen = _Seen()
        self._values: dict[str, str] = {}
        """What placeholders of the request stand for."""
        self._sent = set[str]()
        self.warnings = [
            f"restore_tools takes {tool!r}: who can make the model call it gets the values"
            for tool in _EXPOSED
            if self.needs_key and self._restore_tools.match(tool)
        ][:1]

    def why_idle(self) -> str:
        """Where all is off."""
        is_idle = {*self._request.values(), *self._answer.values()} == {"off"}
        return "`request` and `answer` are off: mask or block something" if is_idle else ""

    # --- the request ---

    @_or_block
    def on_request(self, request: ChatRequest) -> ChatRequest | None:
        """Mask its texts."""
        values: dict[str, str] = {}

        def mask(text: str, place: str) -> str:
            every = self._known(text)
            if not every:
                return text
            every = _counting(every, self._request)

            def instead(find: Find) -> str | None:
                action = self._action(self._request, find, place)
                if action != "mask_restore":
                    return action and masked(find.kind)
                name = placeholder(self.key, self.context.key, find.kind, find.value)
                values.setdefault(name, text[find.start : find.end])
                if place.startswith("system"):
                    # not to come back, whoever else says it
                    values[name] = ""
                return name

            return _put(text, every, instead)

        self.findings = []
        changed = map_contents(request, mask)
        self._values, self._sent = values, {*values.values()}
        return changed if self.findings else None

    def _known(self, text: str) -> list[Find]:
        """What is in a text; it may have been searched before."""
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        every = self._seen.get(digest)
        if every is None:
            every = self._all(text)
            self._seen.remember(digest, every)
        return every

    def _all(self, text: str) -> list[Find]:
        """What is in a whole text."""
        return [*search(text), *self._custom(text, 0, final=True)]

    def _custom(self, text: str, start: int, *, final: bool) -> Iterator[Find]:
        for begin, end, rule in (
            super()._decided(text, start, final=final)[1] if self._names else ()
        ):
            yield Find(begin, end, "custom", self._names[int(rule[1:])], text[begin:end])

    def _action(self, actions: dict[str, str], find: Find, place: str) -> str | None:
        """What is to be done about a find, None for nothing; it is noted. Raises _Blocked."""
        action = actions[find.kind]
        if action == "off" or PLACEHOLDER.fullmatch(find.value):
            return None
        mark = fingerprint(self.key or self.context.nonce.encode(), find.kind, find.value)
        words = f"{place}: {action} {find.kind} {find.rule} {len(find.value)} {mark}"
        if len(self.findings) < MAX_FINDINGS and words not in self.findings:
            self.findings = (*self.findings, words)
        if action == "block":
            message = f"it has what looks like a {find.kind} in it"
            raise _Blocked(Block("redacted", message, rule=find.rule))
        return action

    # --- the answer ---

    def _instead(self, find: Find, place: str, *, restores: bool) -> str | None:
        """What a client gets in place of a find; None where it stays. Values that come back are no
        finds. Raises _Blocked."""
        if find.kind == _PLACEHOLDER:
            value = (restores and self._values.get(find.value)) or None
            if value is None and place != "text":
                raise _Blocked(Block("placeholder"))
            return value
        if find.value in self._sent:
            return None
        return self._action(self._answer, find, place) and masked(find.kind)

    def _placeholders(self, text: str, start: int = 0) -> Iterator[Find]:
        for match in PLACEHOLDER.finditer(text, start) if self.needs_key else ():
            yield Find(*match.span(), _PLACEHOLDER, "", match[0])

    @_or_block
    def on_text(self, text: str, block: TextBlock) -> str:
        """Return what is decided."""
        self._is_text = block.kind is BlockKind.TEXT
        if not (self._masks_answers or self._values):
            return text
        return self._advance(self._taken(text, block), final=False)

    @_or_block
    def on_text_end(self, block: TextBlock) -> str:
        """Return what is left."""
        self._is_text = block.kind is BlockKind.TEXT
        return super().on_text_end(block)

    def _decided(self, text: str, position: int, *, final: bool) -> tuple[int, list[Match]]:
        matches: list[Match] = []
        while True:
            known = text[: self._decidable(text, position)] if self._names else text
            stop = len(text) if final else decided_to(known, position)
            is_dull = not self._names and OFTEN.search(text, position, stop) is None
            for find in () if is_dull else self._between(text, position, stop, final=final):
                instead = self._instead(find, "text", restores=self._is_text)
                if instead is not None:
                    matches.append((find.start, find.end, instead))
            after = max(stop, matches[-1][1] if matches else 0)
            if final or after == position or len(text) - after < PIECE_CHARS:
                return stop, matches
            # a long run is decided in pieces
            position = after

    def _between(self, text: str, start: int, stop: int, *, final: bool) -> Iterator[Find]:
        every = [*self._placeholders(text, start), *self._custom(text, start, final=final)]
        if self._masks_answers:
            every += finds(text, start, stop)
        return (find for find in _counting(every, self._answer) if find.start < stop)

    @_or_block
    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Mask its arguments, and give it its values back, where it may have them."""
        place, restores = f"call {call.block}", self._restore_tools.match(call.name)

        def change(text: str) -> str:
            every = _counting((*self._all(text), *self._placeholders(text)), self._answer)
            return _put(text, every, partial(self._instead, place=place, restores=restores))

        value = map_json(call.value, change)
        return ALLOW if value == call.value else Replace(dumps(value).decode(), "redacted")

    @_or_block
    def on_other(self, block: OtherBlock) -> Verdict:
        """Withhold what cannot be changed."""
        sealed = SEALED_REASONING if block.type == "redacted_thinking" else SEALED_FIELDS
        for text in texts_of(block.body, sealed) if self._masks_answers else ():
            for find in self._all(text):
                if self._instead(find, block.type, restores=False) is not None:
                    return Block("redacted", rule=find.rule)
        return ALLOW


def _by_kind(actions: Any) -> dict[str, str]:
    """What is done about each class."""
    every = actions if isinstance(actions, dict) else dict.fromkeys(get_args(Kind), actions)
    return dict.fromkeys(get_args(Kind), "mask") | every


def _counting(every: Iterable[Find], actions: dict[str, str]) -> list[Find]:
    """Those whose class is not off, apart: what is off hides nothing that overlaps it."""
    return apart(find for find in every if actions.get(find.kind) != "off")


def _put(text: str, every: Iterable[Find], instead: Callable[[Find], str | None]) -> str:
    """The text with what stands in place of each find."""
    parts, at = list[str](), 0
    for find in every:
        new = instead(find)
        if new is not None:
            parts += (text[at : find.start], new)
            at = find.end
    return "".join((*parts, text[at:]))
