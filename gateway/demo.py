"""The built-in scripted model: it plays an upstream of either dialect, so that everything can be tried with no provider key.

Which script it plays follows from plain words in the last user message and the tools offered; docs/demo.md has the
table. It says what it is. It is the one place in the gateway that reads a request body, because here the gateway is
the upstream. Deterministic: the same body gives the same bytes.
"""

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from gateway import demo_wire
from gateway.demo_wire import Answer, Call
from protocol.request import Dialect

_ABOUT = (
    "I am the demo model inside Sluice, a script and not a language model. Ask for the weather in Paris with a tool get_weather, "
    "or to delete everything with rm -rf with a tool bash."
)
_THOUGHT = "The user wants to see reasoning. I am a script, so this is all there is to it."
_MAX_WORDS = 100_000
_MAX_WAIT_S = 600.0
_WORDS = re.compile(r"\S+\s*")
_CITY = re.compile(r"\bin ([A-Z][\w'-]*(?: [A-Z][\w'-]*)*)(?:,? and (?:in )?([A-Z][\w'-]*(?: [A-Z][\w'-]*)*))?")
_PLACE = re.compile(r"\bweather (?:like )?in ([\w'-]+)", re.IGNORECASE)
_COMMAND = re.compile(r"rm -rf(?: +([/~.*][^\s\"'`]*))?")


@dataclass(slots=True)
class Script:
    """What the upstream answers: pieces of the body, each sent `delay_s` after the one before."""

    status: int = 200
    content_type: str = "application/json"
    retry_after: str | None = None
    steps: list[tuple[float, bytes]] = field(default_factory=list)


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
    if not request.get("stream"):
        whole = demo_wire.whole(dialect, answer)
        return Script(steps=[(answer.wait_s, whole)])
    options = request.get("stream_options")
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Script(content_type="text/event-stream", steps=demo_wire.stream(dialect, answer, include_usage=usage))


def _error(dialect: Dialect, status: int, message: str, retry_after: str | None) -> Script:
    return Script(status, "application/json", retry_after, [(0, demo_wire.error_body(dialect, status, message))])


def _read(request: dict[str, Any]) -> tuple[str, str | None, list[dict[str, Any]]]:
    """Return the words of the last user turn, the text of a tool result that ends the conversation, and the tools."""
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
    for tool in request.get("tools") or []:
        function = tool.get("function") or {}
        schema = function.get("parameters") or tool.get("input_schema") or {}
        tools.append({"name": function.get("name") or tool["name"], "properties": schema.get("properties") or {}})
    return text, result, tools


def _answer(words: str, result: str | None, tools: list[dict[str, Any]]) -> Answer:
    lower = words.lower()
    answer = Answer(pieces=_WORDS.findall(_ABOUT))
    if result is not None:
        answer.pieces = _WORDS.findall(f"The tool said: {result[:2000]}")
    if calls := _calls(words, lower, tools):
        answer.calls, answer.pieces, answer.stop = calls, _WORDS.findall("Let me do that."), "tool_use"
    elif found := re.search(r"\blong (\d+)", lower):
        count = min(int(found[1]), _MAX_WORDS)
        answer.pieces = [f"word{n} " for n in range(1, count + 1)] if "clock" not in lower else [demo_wire.CLOCK.decode()] * count
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
    calls: list[Call] = []
    for tool in tools:
        name, properties = tool["name"], tool["properties"]
        if "weather" in name.lower() and "weather" in lower:
            cities = [c for found in _CITY.finditer(words) for c in found.groups() if c] or _PLACE.findall(words)[:1] or ["Paris"]
            calls += [Call(name, {_property(properties, "city"): city}) for city in cities]
        elif (name == "bash" or "command" in properties) and (found := _COMMAND.search(words)):
            calls.append(Call(name, {_property(properties, "command"): f"rm -rf {found[1] or '/'}"}))
        elif (name == "bash" or "command" in properties) and "list the files" in lower:
            calls.append(Call(name, {_property(properties, "command"): "ls -la"}))
        elif "time" in name.lower() and "time" in lower:
            calls.append(Call(name, {}))
    return calls


def _property(properties: dict[str, Any], wish: str) -> str:
    if wish in properties or not properties:
        return wish
    texts = [n for n, p in properties.items() if isinstance(p, dict) and p.get("type") == "string"]
    return texts[0] if texts else wish
