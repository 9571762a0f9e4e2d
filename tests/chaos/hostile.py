"""What a hostile client sends, and what an upstream that is with it answers: each attack that was found, as data.

An attack is a request and, where it needs one, an answer; both are made from a random source, so that no two are alike. Attacks whose
answer is None are answered by the demo script of their words, or are over before anybody answers. None may cost another call anything,
and what they get must be on record like everything else.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.request import Dialect

Json = dict[str, Any]
Answer = list[tuple[str, Json]]
"""Tool calls and texts of an answer: (`text`, {"text"}) or (`call`, {"id", "name", "arguments"}), the last being JSON text."""
FORBIDDEN = "rm -rf"
"""What no attack may get through: a rule of its policy denies it."""
_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Attack:
    """One way to do harm. `request` changes an ordinary body; `answer` is what upstream says; `slow`: its body never ends."""

    request: Callable[[Json, Dialect, random.Random], None] | None = None
    answer: Callable[[random.Random], Answer] | None = None
    model: str = ""
    slow: bool = False


def _schema(body: Json, dialect: Dialect, schema: Json) -> None:
    tool = body["tools"][0]
    if dialect == "openai":
        tool["function"]["parameters"] = schema
    else:
        tool["input_schema"] = schema


def _expanding(body: Json, dialect: Dialect, source: random.Random) -> None:
    depth = source.randrange(25, 60)
    way = source.choice(("allOf", "anyOf", "oneOf"))
    defs: Json = {f"a{n}": {way: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    _schema(body, dialect, {"type": "object", "$ref": "#/$defs/a0", "$defs": defs | {f"a{depth}": {"type": "object"}}})


def _many_messages(body: Json, dialect: Dialect, source: random.Random) -> None:
    body["messages"] += [{"role": "user", "content": "a"}] * source.randrange(50_000, 400_000)


def _many_parts(body: Json, dialect: Dialect, source: random.Random) -> None:
    body["messages"].append({"role": "user", "content": [{"type": "text", "text": "a"}] * source.randrange(100_000, 300_000)})


def _many_tools(body: Json, dialect: Dialect, source: random.Random) -> None:
    body["tools"] *= source.randrange(2_000, 60_000)


def _deep(body: Json, dialect: Dialect, source: random.Random) -> None:
    schema: Json = {"type": "object"}
    for _ in range(source.randrange(50, 150)):
        schema = {"type": "object", "properties": {"a": schema}, "not": {"enum": [1e308, 10**400]}}
    _schema(body, dialect, schema)


def _many_cities(body: Json, dialect: Dialect, source: random.Random) -> None:
    body["tools"] = [tool for tool in body["tools"] if "get_weather" in json.dumps(tool)]
    body["messages"][0]["content"] += " weather " + "in A " * source.randrange(5_000, 100_000)


def _long_script(body: Json, dialect: Dialect, source: random.Random) -> None:
    body["messages"][0]["content"] += f" demo long {source.randrange(100_000, 10**6)}"


def _calls(*calls: tuple[str, str, str]) -> Answer:
    return [("text", {"text": "now "}), *(("call", {"id": i, "name": n, "arguments": a}) for i, n, a in calls)]


def _random(source: random.Random, length: int) -> str:
    return "".join(source.choices(_HEX, k=length))


def _id(source: random.Random) -> str:
    return "call_" + _random(source, 16)


def _harmful(source: random.Random) -> str:
    return json.dumps({"command": f"{FORBIDDEN} /{_random(source, 4)}"})


def _surrogates(source: random.Random) -> Answer:
    where, half = source.randrange(3), source.choice(("\ud83d", "\udc00"))
    return _calls((_id(source) + half * (where == 0), "bash" + half * (where == 1), json.dumps({"command" + half * (where == 2): "ls"})))


def _long_names(source: random.Random) -> Answer:
    return _calls(*((_id(source), _random(source, source.randrange(2_700, 4_000)), "{}") for _ in range(source.randrange(1, 60))))


def _long_ids(source: random.Random) -> Answer:
    return _calls((_random(source, source.randrange(300, 9_000)), "bash", json.dumps({"command": "ls"})))


def _calls_in_text(source: random.Random) -> Answer:
    one = source.choice(
        ('{"name":"bash","arguments":{"a":1}}', '"name":}', "<tool_call>", '{"name":"bash","arguments":{"command":"rm -rf /"}} ')
    )
    return [("text", {"text": one * (source.randrange(50_000, 400_000) // len(one))})]


def _many_calls(source: random.Random) -> Answer:
    return _calls(*((_id(source), "bash", json.dumps({"command": f"ls {n}"})) for n in range(source.randrange(130, 2_500))))


def _keys(source: random.Random) -> Answer:
    harm = f"{FORBIDDEN} /"
    arguments = source.choice((
        json.dumps({"command": "ls", "Command": harm}), json.dumps({"__proto__": {"command": harm}}),
        '{"command":"ls","command":"rm -rf /"}', json.dumps({"command\x00": harm}), json.dumps({"ｃommand": harm}),
        json.dumps({"command": ["ls", {"x": harm}]}), '{"command":"rm \\u002drf /"}',
    ))  # fmt: skip
    return _calls((_id(source), source.choice(("bash", "Bash", " bash", "functions.bash")), arguments))


def _large_arguments(source: random.Random) -> Answer:
    return _calls((_id(source), "bash", json.dumps({"command": "echo " + "x" * source.randrange(10**5, 10**6), "then": f"{FORBIDDEN} /"})))


def _nested_arguments(source: random.Random) -> Answer:
    depth = source.randrange(50, 20_000)
    return _calls((_id(source), "bash", '{"command":' + "[" * depth + "]" * depth + "}"))


def _odd_numbers(source: random.Random) -> Answer:
    return _calls((_id(source), "bash", source.choice(('{"command":1e999}', '{"command":' + "9" * 5_000 + "}", '{"command":NaN}'))))


def _many_blocks(source: random.Random) -> Answer:
    return [("text", {"text": "a "})] * source.randrange(1_000, 5_000)


def _harmless(source: random.Random) -> Answer:
    return _calls((_id(source), "bash", json.dumps({"command": "ls"})))


ATTACKS: dict[str, Attack] = {
    "a schema that expands": Attack(_expanding, _harmless),
    "a deep schema": Attack(_deep, _harmless),
    "many small messages": Attack(_many_messages, _harmless),
    "many parts": Attack(_many_parts, _harmless),
    "many tools": Attack(_many_tools, _harmless),
    "many cities for the demo model": Attack(_many_cities, model="demo"),
    "a long script of the demo model": Attack(_long_script, model="demo"),
    "surrogates": Attack(answer=_surrogates),
    "long names": Attack(answer=_long_names),
    "long ids": Attack(answer=_long_ids),
    "calls in text": Attack(answer=_calls_in_text),
    "many calls": Attack(answer=_many_calls),
    "ambiguous keys": Attack(answer=_keys),
    "large arguments": Attack(answer=_large_arguments),
    "nested arguments": Attack(answer=_nested_arguments),
    "odd numbers": Attack(answer=_odd_numbers),
    "many blocks": Attack(answer=_many_blocks),
    "harm": Attack(answer=lambda source: _calls((_id(source), "bash", _harmful(source)))),
    "a slow upload": Attack(slow=True),
}


def answered(name: str, number: int) -> Answer:
    """What upstream says to the call of an attack: the same each time it is asked."""
    made = ATTACKS[name].answer
    assert made is not None
    return made(random.Random(number))


def in_openai(said: Answer, *, stream: bool) -> bytes:
    """An answer as chat/completions has it."""
    text = "".join(what["text"] for kind, what in said if kind == "text")
    calls = [
        {"index": n, "id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for n, c in enumerate(what for kind, what in said if kind == "call")
    ]
    stop = "tool_calls" if calls else "stop"
    head = {"id": "chatcmpl-hostile", "created": 1, "model": "hostile"}
    if not stream:
        message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        return json.dumps(
            head | {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": stop}]}
        ).encode()
    deltas: list[Json] = [{"role": "assistant"}, *({"content": what["text"]} for kind, what in said if kind == "text")]
    deltas += [{"tool_calls": [call]} for call in calls]
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": stop})
    frames = [f"data: {json.dumps(head | {'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n" for choice in choices]
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


def in_anthropic(said: Answer, *, stream: bool) -> bytes:
    """An answer as the Messages API has it."""
    stop = "tool_use" if any(kind == "call" for kind, _ in said) else "end_turn"
    head = {"id": "msg_hostile", "type": "message", "role": "assistant", "model": "hostile", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    if not stream:
        blocks = [
            {"type": "text", "text": what["text"]}
            if kind == "text"
            else {"type": "tool_use", "id": what["id"], "name": what["name"], "input": _value(what["arguments"])}
            for kind, what in said
        ]
        return json.dumps(head | {"content": blocks, "stop_reason": stop, "usage": usage}).encode()
    events: list[Json] = [{"type": "message_start", "message": head | {"content": [], "stop_reason": None, "usage": usage}}]
    for index, (kind, what) in enumerate(said):
        if kind == "text":
            block, delta = dict[str, Any](type="text", text=""), {"type": "text_delta", "text": what["text"]}
        else:
            block = {"type": "tool_use", "id": what["id"], "name": what["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": what["arguments"]}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def _value(arguments: str) -> Any:
    """Arguments as a value; what is none of Python's is given as text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return {"command": arguments}
