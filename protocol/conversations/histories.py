"""What tells the history in one request from that in another: a mark a turn, so that a turn that
agents send again and again is shown once.

A mark is the first 16 bytes of SHA-256 over a turn's canonical JSON: keys sorted, a content that is
a string as the block that it stands for, and without `cache_control`, as its place moves from call
to call. System prompts at the beginning get none: they are in the requests of all that an agent
does, and some change with each call. Must not know: SQL, sessions.
"""

import hashlib
import re
import struct
from typing import Any, NamedTuple

import msgspec

from protocol.bounds import MAX_BODY_VALUES, MAX_MESSAGES
from protocol.bytes.value_count import count_values

MARK_BYTES = 16
PREVIEW_CHARS = 160
_MOST_TYPED = 64 * 1024
"""Characters of a text in which injected blocks are looked for."""
_INJECTED = tuple(
    "system-reminder command-name command-message command-args command-contents local-"
    " command-stdout local-command-stderr local-command-caveat environment_context"
    " environment_details user_instructions ide_opened_file ide_selection".split()
)
"""Elements that agents put into a user's turn and nobody typed."""
_BEGIN = re.compile(f"<({'|'.join(_INJECTED)})[> ]")
_OFFSET = struct.Struct(">II")
_SIDE_TOKENS = 1
_MOST_KNOWN = 20_000
_ABSENT = msgspec.Raw()


class History(NamedTuple):
    """The history in one request: as many marks as turns, and where in the body each turn begins
    and ends (big-endian, 4 bytes each)."""

    turns: int = 0
    marks: bytes = b""
    offsets: bytes = b""
    preview: str = ""
    """The first words of the first turn that a person typed."""
    is_side: bool = False
    """Asked beside the conversation: for one token, or for a value of a schema without any
    tools."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw] = []
    input: msgspec.Raw = _ABSENT
    """Responses: items, of which each is a turn here, or one text."""
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    text: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    response_format: msgspec.Raw = _ABSENT
    output_config: msgspec.Raw = _ABSENT
    output_format: msgspec.Raw = _ABSENT


_read = msgspec.json.Decoder(_Body).decode
_read_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="sorted").encode
NONE = History()


def history(body: bytes, known: dict[bytes, bytes] | None = None) -> History:
    """Return the history in a request's body. What is no request, or has more values or turns than
    one may have, has none.

    `known` keeps marks by the hash of a turn's bytes from one request to the next: most turns come
    again as they were. Takes 3 to 4 ms of CPU a MB, and 2 where most are known; a body of 16 MB 0.1
    s at worst.
    """
    if count_values(body, MAX_BODY_VALUES) > MAX_BODY_VALUES:
        return NONE
    try:
        read = _read(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return NONE
    turns = read.messages or _items(read.input)
    if len(turns) > MAX_MESSAGES:
        return NONE
    marks: list[bytes] = []
    offsets: list[bytes] = []
    preview, end = "", 0
    for raw in turns:
        turn_bytes = bytes(raw)
        begin = _place(body, turn_bytes, end)
        end = begin + len(turn_bytes)
        digest = hashlib.sha256(turn_bytes).digest() if known is not None and preview else b""
        if digest and known is not None and (mark := known.get(digest)) is not None:
            marks.append(mark)
            offsets.append(_OFFSET.pack(begin, end))
            continue
        turn = _turn(raw)
        role = turn.get("role") if type(turn) is dict else None
        if not marks and role in ("system", "developer"):
            continue
        if not preview and role == "user":
            preview = typed(turn.get("content"))
        elif not preview and type(turn) is str:
            preview = typed(turn)
        marks.append(_mark(turn, turn_bytes))
        offsets.append(_OFFSET.pack(begin, end))
        if digest and known is not None:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[digest] = marks[-1]
    return History(len(marks), b"".join(marks), b"".join(offsets), preview, _is_side(read))


def _items(raw_input: msgspec.Raw) -> list[msgspec.Raw]:
    """The items of Responses' `input`; one text is one item."""
    input_bytes = bytes(raw_input)
    if input_bytes[:1] == b'"':
        return [raw_input]
    try:
        return _read_items(input_bytes) if input_bytes[:1] == b"[" else []
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def _place(body: bytes, raw: bytes, after: int) -> int:
    """Where a turn begins behind another: behind a comma and blanks, where a search for all of it
    would cost as much as its hash."""
    at = after
    while body[at : at + 1] in (b",", b" ", b"\n", b"\r", b"\t"):
        at += 1
    return at if after and body.startswith(raw, at) else body.index(raw, after)


def spans(offsets: bytes) -> list[tuple[int, int]]:
    """Return where in the body each turn begins and ends."""
    return list(_OFFSET.iter_unpack(offsets[: len(offsets) // _OFFSET.size * _OFFSET.size]))


def split(marks: bytes) -> tuple[bytes, ...]:
    """Return the marks one by one."""
    return tuple(
        marks[at : at + MARK_BYTES] for at in range(0, len(marks) - MARK_BYTES + 1, MARK_BYTES)
    )


def typed(content: object) -> str:
    """Return the first words that a person typed in the content of a user's turn: without what
    agents inject, with single spaces."""
    if isinstance(content, str):
        return _first_words(content)
    for part in content if isinstance(content, list) else ():
        if (
            isinstance(part, dict)
            and isinstance(text := part.get("text"), str)
            and (words := _first_words(text))
        ):
            return words
    return ""


def _first_words(text: str) -> str:
    pieces, at, text = [], 0, text if len(text) <= _MOST_TYPED else text[:_MOST_TYPED]
    # one expression for all names: a text may be made of nothing but "<"
    while (match := _BEGIN.search(text, at)) is not None:
        pieces.append(text[at : match.start()])
        # one that is not closed goes to the end: it was cut
        close = text.find(f"</{match[1]}>", match.end())
        at = close + len(match[1]) + 3 if close >= 0 else len(text)
    words = " ".join("".join([*pieces, text[at:]]).split())
    return words if len(words) <= PREVIEW_CHARS else words[:PREVIEW_CHARS] + "…"


def _turn(raw: msgspec.Raw) -> Any:
    try:
        turn = _value(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if type(turn) is dict and type(content := turn.get("content")) is str:
        turn["content"] = [{"type": "text", "text": content}]
    return turn


def _mark(turn: Any, raw: bytes) -> bytes:
    if type(turn) is dict:
        try:
            if b"cache_control" in raw:
                _leave_out(turn.get("content"))
            return hashlib.sha256(_canonical(turn)).digest()[:MARK_BYTES]
        except (msgspec.MsgspecError, ValueError, UnicodeError, RecursionError):
            pass
    return hashlib.sha256(raw).digest()[:MARK_BYTES]


def _leave_out(content: object) -> None:
    """Take `cache_control` out of blocks, and of blocks in results; what a model reads, as the
    input of a call, stays as it is."""
    for block in content if type(content) is list else ():
        if type(block) is dict:
            block.pop("cache_control", None)
            if block.get("type") == "tool_result":
                _leave_out(block.get("content"))


def _is_side(read: _Body) -> bool:
    most = next(
        (
            n
            for n in (read.max_tokens, read.max_completion_tokens, read.max_output_tokens)
            if n is not None
        ),
        None,
    )
    if type(most) is int and most <= _SIDE_TOKENS:
        return True
    has_tools = len(memoryview(read.tools)) > len("null")
    return not has_tools and any(
        b"schema" in bytes(form)
        for form in (read.response_format, read.output_format, read.output_config, read.text)
    )
