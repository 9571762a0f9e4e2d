"""The built-in scripted model: it plays an upstream of either dialect, so that everything can be tried with no provider key.

Which script it plays follows from plain words in the last user message and the tools offered; docs/demo.md has the
table. It says what it is. It reads request bodies, because here Sluice is the upstream: in a process of its own (`demo_server`),
and of a body no more than its bounds, before anything is made of it. Deterministic: the same body gives the same bytes.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

from gateway import demo_wire
from gateway.demo_wire import Answer, Call, Words
from protocol.bounds import DEMO_CALLS, DEMO_CHARS, DEMO_TOOLS, DEMO_WORDS
from protocol.request import Dialect

_ABOUT = (
    "I am the demo model inside Sluice, a script and not a language model. Ask for the weather in Paris with a tool get_weather, "
    "or to delete everything with rm -rf with a tool bash."
)
_THOUGHT = "The user wants to see reasoning. I am a script, so this is all there is to it."
_MAX_WAIT_S = 600.0
_WORDS = re.compile(r"\S+\s*")
_CITY = re.compile(r"\bin ([A-Z][\w'-]*(?: [A-Z][\w'-]*)*)(?:,? and (?:in )?([A-Z][\w'-]*(?: [A-Z][\w'-]*)*))?")
_PLACE = re.compile(r"\bweather (?:like )?in ([\w'-]+)", re.IGNORECASE)
_COMMAND = re.compile(r"rm -rf(?: +([/~.*][^\s\"'`]*))?")


@dataclass(slots=True)
class Script:
    """What the upstream answers: pieces of the body, each made when it is asked for and sent `delay_s` after the one before."""

    status: int = 200
    content_type: str = "application/json"
    retry_after: str | None = None
    steps: Iterable[tuple[float, bytes]] = ()


def script(dialect: Dialect, endpoint: str, body: bytes) -> Script:
    """Return the answer to a request body. Never raises: what cannot be read is answered with the dialect's 400."""
    try:
        return _script(dialect, endpoint, body)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return _error(dialect, 400, "the demo model cannot read this request", None)


def _script(dialect: Dialect, endpoint: str, body: bytes) -> Script:
    request = json.loads(body)
    words, result, tools = _read(request)
    if endpoint == "count_tokens":
        return Script(steps=[(0, json.dumps({"input_tokens": max(1, len(body) // 4)}).encode())])
    if (found := re.search(r"fail with (\d{3})", words)) and 400 <= int(found[1]) <= 599:
        return _error(dialect, int(found[1]), "the demo model fails as asked", "1" if found[1] in ("429", "529", "503") else None)
    answer = _answer(words, result, tools)
    answer.id = sha256(body).hexdigest()[:24]
    answer.model = str(request.get("model") or "demo")
    answer.input_tokens = max(1, len(body) // 4)
    said = [answer.model, *(json.dumps([c.name, c.arguments], ensure_ascii=False) for c in answer.calls)]
    # a lone surrogate: a stream that has begun could not say so
    "".join(said + answer.pieces if isinstance(answer.pieces, list) else said).encode()
    if not request.get("stream"):
        whole = demo_wire.whole(dialect, answer)
        return Script(steps=[(answer.wait_s, whole)])
    options = request.get("stream_options")
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Script(content_type="text/event-stream", steps=demo_wire.stream(dialect, answer, include_usage=usage))


def _error(dialect: Dialect, status: int, message: str, retry_after: str | None) -> Script:
    return Script(status, "application/json", retry_after, [(0, demo_wire.error_body(dialect, status, message))])


def _read(request: dict[str, Any]) -> tuple[str, str | None, list[dict[str, Any]]]:
    """Return the words of the last user turn, the text of a tool result that ends the conversation, and the tools; each to its bound."""
    last = request["messages"][-1]
    content = last.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    results = [p for p in parts if p.get("type") == "tool_result"]
    text = " ".join(str(p.get("text") or "") for p in parts if p.get("type") == "text")
    result = None
    if last.get("role") == "tool":
        result, text = text, ""
    elif results:
        said = results[-1].get("content") or ""
        result = said if isinstance(said, str) else " ".join(str(p.get("text") or "") for p in said)
    tools = []
    for tool in (request.get("tools") or [])[:DEMO_TOOLS]:
        function = tool.get("function") or {}
        schema = function.get("parameters") or tool.get("input_schema") or {}
        tools.append({"name": function.get("name") or tool["name"], "properties": schema.get("properties") or {}})
    return text[:DEMO_CHARS], result, tools


def _answer(words: str, result: str | None, tools: list[dict[str, Any]]) -> Answer:
    lower = words.lower()
    answer = Answer(pieces=_WORDS.findall(_ABOUT))
    if result is not None:
        answer.pieces = _WORDS.findall(f"The tool said: {result[:2000]}")
    if calls := _calls(words, lower, tools):
        answer.calls, answer.pieces, answer.stop = calls, _WORDS.findall("Let me do that."), "tool_use"
    elif found := re.search(r"\blong (\d+)", lower):
        count = min(int(found[1]), DEMO_WORDS)
        answer.pieces = Words(count, demo_wire.CLOCK.decode() if "clock" in lower else "")
    if re.search(r"\bthink", lower):
        answer.thoughts = _WORDS.findall(_THOUGHT)
    if found := re.search(r"wait (\d+(?:\.\d+)?) ?s", lower):
        answer.wait_s = min(float(found[1]), _MAX_WAIT_S)
    if "slow" in lower:
        found = re.search(r"gap (\d+) ?ms", lower)
        answer.gap_s, answer.wait_s = int(found[1]) / 1000 if found else 0.3, answer.wait_s or (0.0 if found else 1.0)
    if "max tokens" in lower:
        answer.stop = "max_tokens"
    if "fail in the middle" in lower:
        answer.ending = "error"
    elif re.search(r"\bcut\b", lower):
        answer.ending = "cut"
    return answer


def _calls(words: str, lower: str, tools: list[dict[str, Any]]) -> list[Call]:
    return list(islice(_all_calls(words, lower, tools), DEMO_CALLS))


def _all_calls(words: str, lower: str, tools: list[dict[str, Any]]) -> Iterator[Call]:
    cities, command = _cities(words) if "weather" in lower else [], _COMMAND.search(words)
    for tool in tools:
        name, properties = tool["name"], tool["properties"]
        if cities and "weather" in name.lower():
            wish = _property(properties, "city")
            yield from (Call(name, {wish: city}) for city in cities)
        elif (name == "bash" or "command" in properties) and command:
            yield Call(name, {_property(properties, "command"): f"rm -rf {command[1] or '/'}"})
        elif (name == "bash" or "command" in properties) and "list the files" in lower:
            yield Call(name, {_property(properties, "command"): "ls -la"})
        elif "time" in name.lower() and "time" in lower:
            yield Call(name, {})


def _cities(words: str) -> list[str]:
    found = [city for one in islice(_CITY.finditer(words), DEMO_CALLS) for city in one.groups() if city]
    return found or _PLACE.findall(words)[:1] or ["Paris"]


def _property(properties: dict[str, Any], wish: str) -> str:
    if wish in properties or not properties:
        return wish
    return next((n for n, p in properties.items() if isinstance(p, dict) and p.get("type") == "string"), wish)
