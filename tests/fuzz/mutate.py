"""Damage done to what an upstream or a client would send: to the JSON in it, to the order of its
events, to its bytes."""

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

ODD: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "two words",
    "x" * 300,
    1 << 70,
    "\ud83d",
    "\u2028",
    [None],
    {"type": "text"},
    {"type": "x"},
    "text",
    "thinking",
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "redacted_thinking",
    "web_search_tool_result",
    "compaction",
    "text_delta",
    "input_json_delta",
    "signature_delta",
    "citations_delta",
    "message_start",
    "message_stop",
    "content_block_stop",
    "error",
    "ping",
    "tool_calls",
    "length",
    "pause_turn",
    "refusal",
    "content_filter",
    "function",
    "custom",
    "auto",
    '{"a":1}',
    '{"a":',
    '<tool_call>{"name":"bash","arguments":{"command":"ls"}}</tool_call>',
    {"a": {"b": [1, "two words"]}},
]
"""Values that something may read as something else."""
_BYTES = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b":",
    b"data:",
    b"data: ",
    b"event: x\n",
    b"{",
    b"}",
    b'"',
    b"\\",
]
_BYTES += [
    b"\\ud800",
    b"1e999",
    b"NaN",
    b"data: [DONE]\n\n",
    b"[" * 300,
    b'{"name":"bash","arguments":{}}',
    b"```json\n",
    b"<tool_call>",
]
_MAX_BYTES = 40_000


def mutate(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return `data` with one to four things done to it, some with pieces of `seeds`."""
    for _ in range(rng.randint(1, 4)):
        change: Callable[[bytes, Sequence[bytes], random.Random], bytes] = rng.choice(
            [_in_json, _in_json, _events, _bytes, _splice]
        )
        data = change(data, seeds, rng)[:_MAX_BYTES]
    return data


def _in_json(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Change one value in the JSON of one line, or in the body."""
    lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    head = b"data: " if lines[number].startswith(b"data: ") else b""
    try:
        value = json.loads(lines[number][len(head) :])
    except (ValueError, RecursionError):
        return data if len(lines) > 1 else _bytes(data, seeds, rng)
    if isinstance(value, dict | list) and value:
        damage(value, rng)
    lines[number] = head + json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )
    return b"\n".join(lines)


def damage(value: Any, rng: random.Random) -> None:
    """Set, add, drop or repeat something anywhere in `value`."""
    *way, key = rng.choice(places(value))
    holder = value
    for step in way:
        holder = holder[step]
    what = rng.choice(["set", "set", "add", "drop", "twice"])
    if what == "add" and isinstance(holder, dict):
        holder["novelty"] = deepcopy(rng.choice(ODD))
    elif what == "twice" and isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    elif what == "drop":
        del holder[key]
    else:
        holder[key] = deepcopy(rng.choice([*ODD, rng.randint(-3, 9)]))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything in `value`."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, below in items for place in [(*at, key), *places(below, (*at, key))]]


def _events(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Drop, repeat, move or cut off events, or end lines in another way."""
    parts = data.split(b"\n\n")
    at = rng.randrange(len(parts))
    match rng.randrange(5):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case 2:
            parts.insert(rng.randrange(len(parts)), parts.pop(at))
        case 3:
            parts = parts[: at + 1]
        case _:
            return data.replace(b"\n", rng.choice([b"\r", b"\r\n"]))
    return b"\n\n".join(parts)


def _bytes(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Put bytes in, take some out, or change one."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice([0, 0, 1, 1, 3, 30]))
    return data[:start] + rng.choice([*_BYTES, b"", bytes([rng.randrange(256)])]) + data[end:]


def _splice(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Put events of another seed among these."""
    other = rng.choice(seeds).split(b"\n\n")
    at = rng.randrange(len(other))
    parts = data.split(b"\n\n")
    place = rng.randrange(len(parts) + 1)
    return b"\n\n".join([*parts[:place], *other[at : at + rng.randint(1, 4)], *parts[place:]])
