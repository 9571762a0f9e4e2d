"""Passes an answer's other data through the policies: ids, bookkeeping, and fields that the setting
`unknown` names.

The decoders keep only words and numbers (`protocol.bytes.bookkeeping`) and what the operator named
in `unknown`. Every policy that reads blocks carried whole sees it, words included: a secret may
look like a word. Values that a server may choose freely (ids, models) are passed as a single word
or not at all."""

import re
from hashlib import sha256
from typing import Any

import msgspec

from policy.base import SEALED_FIELDS, SEALED_REASONING, Block, OtherBlock
from policy.session.answer.text_call_search import holds_call
from policy.session.chain import Chain
from protocol.bounds import MAX_ID_CHARS, MAX_NAME_CHARS, MAX_SIGNATURE_CHARS
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    MessageStart,
    MessageStop,
    RawDelta,
    SignatureDelta,
    UpstreamFailed,
)
from protocol.records import to_bytes

_NAME = re.compile(rf"[A-Za-z0-9_./~-][\w.:/@+=~-]{{0,{MAX_ID_CHARS - 1}}}", re.ASCII)
"""Ids and models: paths of files, too."""
_TOOL_NAME = re.compile(rf"[\w.:/@-]{{1,{MAX_NAME_CHARS}}}")
"""A tool that the client did not offer: no client has one with blanks in its name."""
_SEALED = re.compile(rf"[A-Za-z0-9+/=_-]{{0,{MAX_SIGNATURE_CHARS}}}")
"""Signatures: base64 in its two alphabets."""
_OURS = frozenset(("dialect", "finish_reason", "message"))
"""What the decoders say of their own."""
_OF_START = ("system_fingerprint", "service_tier")
_MODELLED = frozenset(("type", "citations", "executor", "item", "part", "phase"))
"""Words of the decoders' own tables, and numbers."""


def read_start(event: MessageStart, chain: Chain) -> tuple[MessageStart, list[str]]:
    """Return the beginning of a message as it may go out, and the names of what is withheld."""
    withheld = []
    for name, text in ("id", event.id), ("model", event.model):
        if text and not (_NAME.fullmatch(text) and read_word(name, text, chain) == text):
            withheld.append(name)
    extra = event.extra
    for name in _OF_START:
        if (word := extra.get(name)) and not (isinstance(word, str) and _NAME.fullmatch(word)):
            withheld.append(name)
    if withheld:
        extra = {name: value for name, value in extra.items() if name not in withheld}
    extra, more = read_extra(extra, chain)
    if not withheld and not more:
        return event, []
    emptied = {name: "" for name in ("id", "model") if name in withheld}
    return msgspec.structs.replace(event, extra=extra, **emptied), [*withheld, *more]


def read_stop(event: MessageStop, chain: Chain) -> tuple[MessageStop, list[str]]:
    """Return the end of a message as it may go out, and the names of what is withheld: the
    explanation of a refusal is text like any other, and so is a stop sequence."""
    extra, withheld = read_extra(event.extra, chain)
    # no window of the answer's text, which judges would decide about
    explanation = "" if chain.window is not None else read_text(event.explanation, chain)
    sequence = event.stop_sequence
    if explanation != event.explanation:
        withheld.append("explanation")
    if sequence and read_text(sequence, chain) != sequence:
        withheld.append("stop_sequence")
        sequence = None
    if not withheld:
        return event, withheld
    return (
        msgspec.structs.replace(
            event, explanation=explanation, stop_sequence=sequence, extra=extra
        ),
        withheld,
    )


def read_failure(event: UpstreamFailed, chain: Chain) -> UpstreamFailed:
    """Let the policies read upstream's own sentence: servers quote what a model wrote."""
    message = read_text(event.message, chain) or "the upstream reported an error"
    code, param = (read_word("error", word, chain) for word in (event.code, event.param))
    return msgspec.structs.replace(event, message=message, code=code, param=param)


def read_extra(extra: dict[str, Any], chain: Chain) -> tuple[dict[str, Any], list[str]]:
    """Return the extra fields of a message that the policies let go, and the names of the
    others."""
    if not chain.reads_other:
        return extra, []
    withheld: list[str] = []
    allowed: dict[str, Any] = {}
    for name, value in extra.items():
        if name in _OURS or value is None or isinstance(value, bool | int | float):
            allowed[name] = value
        elif name == "fields":
            allowed[name] = {
                at: _read(at, inner, chain, withheld) if at.endswith("field") else inner
                for at, inner in value.items()
                if at.endswith("field") or not _is_blocked(at, {at: inner}, chain, withheld)
            }
        elif name in ("usage", "stop_details", "choice") and isinstance(value, dict):
            # field by field only where something in it is blocked, else each frame would cost a
            # question a field
            allowed[name] = (
                value
                if not _is_blocked(name, {name: value}, chain, [])
                else _read(name, value, chain, withheld)
            )
        elif not _is_blocked(name, {name: value}, chain, withheld):
            allowed[name] = value
    return allowed, withheld


def read_id(identity: str, chain: Chain) -> str:
    """Return a tool call's id as the client gets it: another one, the same for each mention, where
    it is no id or a policy blocks it."""
    if _NAME.fullmatch(identity) and not _is_blocked("tool call id", {"id": identity}, chain, []):
        return identity
    return f"call_{sha256(to_bytes(identity)).hexdigest()[:24]}"


def is_name(name: str, *, offered: bool) -> bool:
    """May a tool call of this name go out? The model writes it, and no policy reads it as text."""
    if offered:
        return len(name) <= MAX_NAME_CHARS and name.isprintable()
    return _TOOL_NAME.fullmatch(name) is not None


def is_sealed(signature: str) -> bool:
    """Can only its provider read this signature? Prose in its place would pass by the policies."""
    return _SEALED.fullmatch(signature) is not None


def without_sealed(what: str, value: Any) -> tuple[Any, list[int]]:
    """Return a copy of what is carried whole in which the fields that only its provider can read
    are empty, and how long each of them was.

    JSON may be deeper than Python's stack.
    """
    names = (
        SEALED_REASONING
        if what in ("redacted_thinking", "reasoning_details", "thinking_blocks")
        else SEALED_FIELDS
    )
    whole, lengths = [value], list[int]()
    waiting: list[Any] = [whole]
    while waiting:
        at = waiting.pop()
        for key, inner in at.items() if isinstance(at, dict) else enumerate(at):
            if isinstance(inner, dict | list):
                at[key] = inner.copy()
                waiting.append(at[key])
            elif key in names and isinstance(inner, str) and inner:
                at[key] = ""
                lengths.append(len(inner))
    return whole[0], lengths


def is_all_sealed(what: str, body: dict[str, Any]) -> bool:
    """Is a block nothing without what only its provider can read?"""
    return what == "redacted_thinking" or (what == "compaction" and not body.get("content"))


def read_body(event: BlockStart, chain: Chain) -> tuple[BlockStart, list[str]]:
    """Return the beginning of a block of text or of a call without the extra fields that a policy
    blocks, and their names."""
    is_whole = event.kind is BlockKind.OTHER
    if is_whole or not event.body or not chain.reads_other or _MODELLED.issuperset(event.body):
        return event, []
    withheld: list[str] = []
    body = {
        name: value
        for name, value in event.body.items()
        if name in _MODELLED
        or not _is_blocked(f"{event.kind} field {name}", {name: value}, chain, withheld)
    }
    return msgspec.structs.replace(event, body=body), withheld


def read_text(text: str, chain: Chain) -> str:
    """Let the policies read a text that is no block: what they make of it, nothing where they block
    it or it holds a call."""
    if text and chain.reads_text:
        text = chain.read(text) or ""
    return "" if text and chain.searches and holds_call(text) else text


def read_notice(text: str, chain: Chain, least: str) -> str:
    """Let the policies read what Sluice says in place of something: it quotes the model, and the
    rules' own messages.

    `least` is returned where they block that.
    """
    # a policy that fails may fail on this, too
    return read_text(text, chain) or least


def read_word(what: str, word: str, chain: Chain) -> str:
    """Return a name that a server may write at will, or nothing where a policy blocks it."""
    return "" if word and chain.reads_other and _is_blocked(what, {what: word}, chain, []) else word


def name_of(event: SignatureDelta | AttachmentDelta | RawDelta) -> str:
    """The name of what goes with a text, as notes have it."""
    match event:
        case AttachmentDelta():
            return event.field
        case RawDelta():
            return event.what
        case _:
            return "signature"


def _read(at: str, body: dict[str, Any], chain: Chain, withheld: list[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in body.items()
        if not _is_blocked(f"{at} {name}", {name: value}, chain, withheld)
    }


def _is_blocked(what: str, body: dict[str, Any], chain: Chain, withheld: list[str]) -> bool:
    verdict, who = chain.on_other(OtherBlock(-1, what, body))
    if isinstance(verdict, Block):
        withheld.append(f"{what}: {verdict.reason} ({who})")
        return True
    return False
