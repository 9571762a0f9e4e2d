"""The built-in scripted model: it plays an upstream of any client dialect, so that everything can
be tried with no provider key.

Which script it plays follows from plain words in the last user message and the tools offered;
docs/use/demo.md has the table. It says what it is. It reads request bodies, because here Sluice is
the upstream: in a process of its own (`demo_server`), and of a body no more than its bounds, before
anything is made of it. Deterministic: the same body gives the same bytes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from demo import answer as demo_answer
from demo.answer import DemoAnswer, DemoCall, RepeatedWords
from demo.schema import SizeBudget, TooMuch, instance, required
from protocol.bounds import DEMO_CALLS, DEMO_CHARS, DEMO_TOOLS, DEMO_WORDS
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.events import StopReason
from protocol.request import ChatRequest, DialectName, TextPart, Tool, ToolResultPart

_ABOUT = (
    "I am the demo model inside Sluice, a script and not a language model. Ask for the weather in"
    " Paris with a tool get_weather, or to delete everything with rm -rf with a tool bash."
)
_THOUGHT = "The user wants to see reasoning. I am a script, so this is all there is to it."
_LEFT = "I may not do that, so I leave it."
_MAX_WAIT_S = 600.0
_WORDS = re.compile(r"\S+\s*")
_CITY = re.compile(
    r"\bin ([A-Z][\w'-]*(?: [A-Z][\w'-]*)*)(?:,? and (?:in )?([A-Z][\w'-]*(?: [A-Z][\w'-]*)*))?"
)
_PLACE = re.compile(r"\bweather (?:like )?in ([\w'-]+)", re.IGNORECASE)
_WRITTEN_SCHEMA = re.compile(r"schema:?\s*(?:```(?:json)?\s*)?(?=\{)", re.IGNORECASE)
_COMMAND = re.compile(r"rm -rf(?: +([/~.*][^\s\"'`]*))?")


@dataclass(slots=True)
class ScriptedAnswer:
    """The upstream's answer: pieces of the body, each made when it is asked for and sent `delay_s`
    after the one before."""

    status: int = 200
    content_type: str = "application/json"
    retry_after: str | None = None
    steps: Iterable[tuple[float, bytes]] = ()


def script(dialect: DialectName, endpoint: str, body: bytes) -> ScriptedAnswer:
    """Return the answer to a request body. Never raises: what cannot be read is answered with the
    dialect's 400."""
    try:
        return _script(dialect, endpoint, body)
    except (TooMuch, InvalidRequest) as error:
        return _error(dialect, 400, str(error), None)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, ArithmeticError):
        return _error(dialect, 400, "the demo model cannot read this request", None)


def _script(dialect: DialectName, endpoint: str, body: bytes) -> ScriptedAnswer:
    if endpoint == "count_tokens":
        return ScriptedAnswer(
            steps=[(0, json.dumps({"input_tokens": max(1, len(body) // 4)}).encode())]
        )
    request = CLIENTS[dialect].decode_request(body)
    asked = _read(request)
    if (match := re.search(r"fail with (\d{3})", asked.words)) and 400 <= int(match[1]) <= 599:
        return _error(
            dialect,
            int(match[1]),
            "the demo model fails as asked",
            "1" if match[1] in ("429", "529", "503") else None,
        )
    answer = _answer(asked)
    answer.id = sha256(body).hexdigest()[:24]
    answer.model = request.model
    answer.input_tokens = max(1, len(body) // 4)
    parts = [
        answer.model,
        *(
            json.dumps([c.name, c.arguments], ensure_ascii=False, allow_nan=False)
            for c in answer.calls
        ),
    ]
    # a lone surrogate: a stream that has begun could not say so
    "".join(parts + answer.pieces if isinstance(answer.pieces, list) else parts).encode()
    steps = demo_answer.steps(
        dialect, answer, stream=request.stream, include_usage=request.include_usage
    )
    return ScriptedAnswer(
        content_type="text/event-stream" if request.stream else "application/json", steps=steps
    )


def _error(
    dialect: DialectName, status: int, message: str, retry_after: str | None
) -> ScriptedAnswer:
    return ScriptedAnswer(
        status,
        "application/json",
        retry_after,
        [(0, demo_answer.error_body(dialect, status, message))],
    )


class _Asked(NamedTuple):
    """The parts of a request that scripts use, each up to its bound: the words of the last user
    turn, the text of a tool result at the end of the conversation, the callable tools, whether a
    call is required, and the schema of the answer (True: any object).
    """

    words: str
    result: str | None
    tools: list[Tool]
    must_call: bool
    schema: Any


def _read(request: ChatRequest) -> _Asked:
    last = request.turns[-1].parts if request.turns else ()
    text = " ".join(part.text for part in last if isinstance(part, TextPart))
    results = [part.text for part in last if isinstance(part, ToolResultPart)]
    tools, must_call = list(request.tools[:DEMO_TOOLS]), False
    if (choice := request.tool_choice) is not None:
        must_call = choice.mode in ("any", "tool")
        only = (choice.name,) if choice.mode == "tool" else choice.allowed
        tools = (
            []
            if choice.mode == "none"
            else [tool for tool in tools if not only or tool.name in only]
        )
    wish = request.response_format
    schema = None if wish is None else wish.schema or True
    # a tool for any object: so JSON is asked for where the dialect has no such format
    is_open = must_call and len(tools) == 1 and not _properties(tools[0])
    if schema is True or (schema is None and (is_open or not tools)):
        written = _written_schema((*request.system, text))
        if is_open and written:
            tools = [msgspec.structs.replace(tools[0], schema=written)]
        else:
            schema = written or schema
    return _Asked(text[:DEMO_CHARS], results[-1] if results else None, tools, must_call, schema)


def _properties(tool: Tool) -> dict[str, Any]:
    properties: dict[str, Any] = tool.schema.get("properties") or {}
    return properties


def _written_schema(texts: Iterable[str]) -> dict[str, Any] | None:
    """A schema in the instructions or in the last words: so clients ask models that know no
    structured answers."""
    for text in texts:
        looked = text[:DEMO_CHARS]
        if begin := _WRITTEN_SCHEMA.search(looked):
            try:
                schema, _ = json.JSONDecoder().raw_decode(looked, begin.end())
            except (ValueError, RecursionError):
                continue
            if "properties" in schema or "$ref" in schema:
                return dict(schema)
    return None


def _answer(asked: _Asked) -> DemoAnswer:
    budget, lower = SizeBudget(), asked.words.lower()
    answer = DemoAnswer(pieces=_WORDS.findall(_ABOUT))
    if asked.result is not None:
        is_blocked = asked.result.removeprefix("[error] ").startswith("[Sluice blocked ")
        text = _LEFT if is_blocked else f"The tool said: {asked.result[:2000]}"
        answer.pieces = _WORDS.findall(text)
    if calls := _calls(asked, budget):
        answer.calls, answer.pieces, answer.stop = (
            calls,
            _WORDS.findall("Let me do that."),
            StopReason.TOOL_USE,
        )
    elif asked.schema is not None:
        made = {"answer": _ABOUT} if asked.schema is True else instance(asked.schema, budget)
        answer.pieces = _WORDS.findall(json.dumps(made, ensure_ascii=False))
    elif match := re.search(r"\blong (\d+)", lower):
        count = min(int(match[1]), DEMO_WORDS)
        answer.pieces = RepeatedWords(count, demo_answer.CLOCK.decode() if "clock" in lower else "")
    if re.search(r"\bthink", lower):
        answer.thoughts = _WORDS.findall(_THOUGHT)
    _pace(answer, lower)
    return answer


def _pace(answer: DemoAnswer, lower: str) -> None:
    """What the words say of when the answer comes, and how it ends."""
    if match := re.search(r"wait (\d+(?:\.\d+)?) ?s", lower):
        answer.wait_s = min(float(match[1]), _MAX_WAIT_S)
    if "slow" in lower:
        match = re.search(r"gap (\d+) ?ms", lower)
        answer.gap_s, answer.wait_s = (
            int(match[1]) / 1000 if match else 0.3,
            answer.wait_s or (0.0 if match else 1.0),
        )
    if "max tokens" in lower:
        answer.stop = StopReason.MAX_TOKENS
    if "fail in the middle" in lower:
        answer.ending = "error"
    elif re.search(r"\bcut\b", lower):
        answer.ending = "cut"


def _calls(asked: _Asked, budget: SizeBudget) -> list[DemoCall]:
    """The calls with what their tools' schemas require. Raises TooMuch where not even one can be
    made."""
    calls = list[DemoCall]()
    wanted = list(islice(_wanted(asked.words, asked.tools), DEMO_CALLS))
    if asked.must_call and not wanted:
        # after a result the last: agents that must call put the tool for their final answer there
        wanted = [
            (tool, {})
            for tool in (asked.tools[-1:] if asked.result is not None else asked.tools[:1])
        ]
    for tool, known in wanted:
        try:
            calls.append(DemoCall(tool.name, required(tool.schema, known, budget)))
        except TooMuch:
            if not calls:
                raise
            break
    return calls


def _wanted(words: str, tools: list[Tool]) -> Iterator[tuple[Tool, dict[str, Any]]]:
    """The calls that the words ask for, of the tool that fits each wish best, in the order of the
    tools."""
    lower = words.lower()
    weather = _best(
        tools, "get_weather", lambda tool: "weather" in lower and "weather" in tool.name.lower()
    )
    clock = _best(tools, "get_time", lambda tool: "time" in lower and "time" in tool.name.lower())
    deploy = _best(
        tools, "deploy", lambda tool: "deploy" in lower and "deploy" in tool.name.lower()
    )
    command = _COMMAND.search(words)
    line = (
        f"rm -rf {command[1] or '/'}" if command else "ls -la" if "list the files" in lower else ""
    )
    shell = _best(
        tools,
        "bash",
        lambda tool: bool(line) and (tool.name.lower() == "bash" or "command" in _properties(tool)),
    )
    for tool in tools:
        if tool is weather:
            wish = _property(_properties(tool), "city")
            yield from ((tool, {wish: city}) for city in _cities(words))
        elif tool is shell:
            wish = _property(_properties(tool), "command")
            is_list = (
                isinstance(declared := _properties(tool).get(wish), dict)
                and declared.get("type") == "array"
            )
            yield tool, {wish: line.split() if is_list else line}
        elif tool is clock or tool is deploy:
            yield tool, {}


def _best(tools: list[Tool], name: str, fits: Callable[[Tool], bool]) -> Tool | None:
    """Of the tools that fit the one of that name, else the first of those that require least."""
    return min(
        (tool for tool in tools if fits(tool)),
        key=lambda tool: (tool.name.lower() != name, len(tool.schema.get("required") or ())),
        default=None,
    )


def _cities(words: str) -> list[str]:
    cities = [
        city
        for match in islice(_CITY.finditer(words), DEMO_CALLS)
        for city in match.groups()
        if city
    ]
    return cities or _PLACE.findall(words)[:1] or ["Paris"]


def _property(properties: dict[str, Any], wish: str) -> str:
    if wish in properties or not properties:
        return wish
    return next(
        (n for n, p in properties.items() if isinstance(p, dict) and p.get("type") == "string"),
        wish,
    )
