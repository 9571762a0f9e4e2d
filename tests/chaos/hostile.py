"""What a hostile client sends, and what an upstream that is with it answers: each attack that was
found, as data.

An attack is a request and, where it needs one, an answer; both are made from a random source, so
that no two are alike. Attacks whose answer is None are answered by the demo script of their words,
or are over before anybody answers. None may cost another call anything, what they get must be on
record like everything else, and `tests.chaos.check_hostile` says what they may not get.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from protocol.request import DialectName
from tests.chaos import hostile_answers as answers
from tests.chaos.hostile_answers import FORBIDDEN, PHRASES
from tests.chaos.hostile_wire import (
    Answer,
)
from tests.support.json_values import Json

POLICIES = {
    "replaced": [
        {
            "use": "text_replace",
            "rules": [
                *({"find": p, "replace": "it"} for p in PHRASES),
                {"pattern": answers.SECRET, "replace": "[key]"},
            ],
        }
    ],
    "selects": [
        {
            "use": "tool_rules",
            "allow": [
                {
                    "tool": "query",
                    "sql": {"argument": "sql", "kinds": ["select"], "dialect": "tsql"},
                }
            ],
        }
    ],
    "offered": [
        {
            "use": "tool_rules",
            "deny": [{"tool": "*", "argument_matches": FORBIDDEN}],
            "validate_schema": True,
        }
    ],
    "asked": [{"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}],
}
"""The hostile key's own, beside `default`, which denies FORBIDDEN."""

ROUTING = (
    "lora",
    "adapter_id",
    "chat_template",
    "base_url",
    "mcp_servers",
    "provider",
    "store",
    "file_ids",
)
"""Fields of requests that upstream may not see: they choose who answers, or by what."""


@dataclass(frozen=True)
class Attack:
    """One way to do harm. `request` changes an ordinary body; `answer` is what upstream says;
    `model` if not the hostile upstream's."""

    request: Callable[[Json, DialectName, random.Random], None] | None = None
    answer: Callable[[random.Random], Answer] | None = None
    model: str = ""
    policy: str = "default"
    slow: bool = False
    """Its body never ends."""
    unread: bool = False
    """Its client does not read the answer."""
    twice: bool = False
    """It sends headers twice that decide."""
    chained: bool = False
    """Some responses of which each goes on with the one before; `request` changes the first."""
    at_once: int = 1
    """So many of them begin at the same moment."""
    refused: bool = False
    """It may never be served."""
    tools: tuple[str, ...] | None = None
    """The names of the only calls that may come through, once each; None: those of any name."""


def _schema(body: Json, dialect: DialectName, schema: Json) -> None:
    tool = body["tools"][0]
    if dialect == "openai":
        tool["function"]["parameters"] = schema
    else:
        tool["input_schema"] = schema


def _expanding(body: Json, dialect: DialectName, source: random.Random) -> None:
    depth = source.randrange(25, 60)
    way = source.choice(("allOf", "anyOf", "oneOf"))
    defs: Json = {f"a{n}": {way: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    _schema(
        body,
        dialect,
        {"type": "object", "$ref": "#/$defs/a0", "$defs": defs | {f"a{depth}": {"type": "object"}}},
    )


def _many_messages(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["messages"] += [{"role": "user", "content": "a"}] * source.randrange(50_000, 400_000)


def _many_parts(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["messages"].append(
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}] * source.randrange(100_000, 300_000),
        }
    )


def _many_tools(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["tools"] *= source.randrange(2_000, 60_000)


def _deep(body: Json, dialect: DialectName, source: random.Random) -> None:
    schema: Json = {"type": "object"}
    for _ in range(source.randrange(50, 150)):
        schema = {"type": "object", "properties": {"a": schema}, "not": {"enum": [1e308, 10**400]}}
    _schema(body, dialect, schema)


def _many_cities(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["tools"] = [tool for tool in body["tools"] if "get_weather" in json.dumps(tool)]
    body["messages"][0]["content"] += " weather " + "in A " * source.randrange(5_000, 100_000)


def _long_script(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["messages"][0]["content"] += f" demo long {source.randrange(100_000, 10**6)}"


def _ruled_out(body: Json, dialect: DialectName, source: random.Random) -> None:
    body["tool_choice"] = "none" if dialect == "openai" else {"type": "none"}


def _one_alone(body: Json, dialect: DialectName, source: random.Random) -> None:
    if dialect == "openai":
        body["parallel_tool_calls"] = False
    else:
        body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}


def _large_body(body: Json, dialect: DialectName, source: random.Random) -> None:
    said = body["input" if dialect == "responses" else "messages"]
    said.append({"role": "user", "content": "a" * source.randrange(14_000_000, 15_500_000)})


def _routing(body: Json, dialect: DialectName, source: random.Random) -> None:
    name = source.choice(ROUTING)
    body[name] = [{"url": "http://x"}] if name == "mcp_servers" else "x"


def _private_address(body: Json, dialect: DialectName, source: random.Random) -> None:
    host = source.choice(
        (
            "169.254.169.254",
            "localhost",
            "0x7f000001",
            "2130706433",
            "a@10.0.0.1",
            "[::ffff:127.0.0.1]",
            "metadata",
        )
    )
    url = {"url": f"http://{host}/latest"}
    part: Json = (
        {"type": "image_url", "image_url": url}
        if dialect == "openai"
        else {"type": "image", "source": {"type": "url", **url}}
    )
    words = body["messages"][0]["content"]
    body["messages"][0]["content"] = [{"type": "text", "text": words}, part]


ATTACKS: dict[str, Attack] = {
    "a schema that expands": Attack(_expanding, answers.harmless),
    "a deep schema": Attack(_deep, answers.harmless),
    "many small messages": Attack(_many_messages, answers.harmless),
    "many parts": Attack(_many_parts, answers.harmless),
    "many tools": Attack(_many_tools, answers.harmless),
    "many cities for the demo model": Attack(_many_cities, model="demo"),
    "a long script of the demo model": Attack(_long_script, model="demo"),
    "surrogates": Attack(answer=answers.surrogates),
    "long names": Attack(answer=answers.long_names),
    "long ids": Attack(answer=answers.long_ids),
    "calls in text": Attack(answer=answers.calls_in_text),
    "many calls": Attack(answer=answers.many_calls),
    "ambiguous keys": Attack(answer=answers.keys),
    "large arguments": Attack(answer=answers.large_arguments),
    "nested arguments": Attack(answer=answers.nested_arguments),
    "odd numbers": Attack(answer=answers.odd_numbers),
    "many blocks": Attack(answer=answers.many_blocks),
    "harm": Attack(answer=answers.harm),
    "a slow upload": Attack(slow=True),
    "calls in every spelling": Attack(answer=answers.spelled_calls),
    "calls over blocks": Attack(answer=answers.spelled_calls_over_blocks),
    "phrases over blocks": Attack(answer=answers.split_phrases, policy="replaced"),
    "split characters": Attack(answer=answers.split_characters, policy="replaced"),
    "prose in names": Attack(answer=answers.prose, policy="replaced"),
    "separated lines": Attack(answer=answers.separated_lines),
    "odd commands": Attack(answer=answers.odd_commands),
    "own nonce": Attack(answer=answers.own_nonce, policy="asked"),
    "many questions": Attack(answer=answers.many_questions, policy="asked"),
    "a tool that was not offered": Attack(answer=answers.not_offered, policy="offered", tools=()),
    "a call that was ruled out": Attack(_ruled_out, answers.harmless, tools=()),
    "a second call": Attack(_one_alone, answers.several, tools=("bash",)),
    "statements": Attack(answer=answers.sql, policy="selects", tools=()),
    "odd frames": Attack(answer=answers.odd_frames),
    "routing": Attack(_routing, answers.harmless),
    "private addresses": Attack(_private_address, answers.harmless, refused=True),
    "headers twice": Attack(answer=answers.harmless, twice=True, refused=True),
    "a burst": Attack(answer=answers.harmless, at_once=300),
    "large bodies": Attack(_large_body, answers.words, at_once=4),
    "a chain": Attack(answer=answers.words, chained=True),
    "a chain on a large body": Attack(_large_body, answers.words, chained=True),
    "an answer that nobody reads": Attack(answer=answers.much, unread=True),
}


def answered(name: str, number: int) -> Answer:
    """What upstream says to the call of an attack: the same each time it is asked."""
    made = ATTACKS[name].answer
    assert made is not None
    return made(random.Random(number))
