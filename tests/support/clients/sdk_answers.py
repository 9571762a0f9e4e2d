"""What the official SDKs make of an answer, in each way in which applications take one, as plain
values.

The same functions read a recording directly (`Direct`: the SDK over a transport that answers with
its bytes) and through the product, so that both can be compared whole. `problems` is what an
application would stumble over: order, repetitions, gaps.
"""

import json
from collections.abc import Callable
from typing import Any, Literal

import anthropic
import httpx2
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

from protocol.request import DialectName
from tests.support.json_values import Json

Way = Literal["iterate", "helper", "beta helper", "create", "beta create"]
WAYS: dict[DialectName, dict[bool, tuple[Way, ...]]] = {
    "openai": {True: ("iterate", "helper"), False: ("create",)},
    "anthropic": {True: ("iterate", "helper", "beta helper"), False: ("create", "beta create")},
}
"""By dialect, and whether the answer is streamed."""
REASONING = ("reasoning_content", "reasoning")
Dump = Callable[[Any], Json]
_JOINED = {"text_delta": "text", "thinking_delta": "thinking"}
_LISTS = ("annotations", "reasoning_details")
_QUESTION: list[Any] = [{"role": "user", "content": "go on"}]


def arguments(text: str) -> Any:
    """The value of a tool call's arguments; what is no JSON stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def full(model: Any) -> Json:
    """All that an application can read of an SDK's object: fields that it knows and were not sent
    are None."""
    dumped: Json = model.model_dump(mode="json", by_alias=True, warnings=False)
    return dumped


def sent(model: Any) -> Json:
    """What of it was sent."""
    dumped: Json = model.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return dumped


class Clients:
    """One client of each SDK, unchanged but for address and key."""

    def __init__(
        self,
        url: str,
        key: str,
        http: httpx2.Client | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.openai = openai.OpenAI(
            base_url=f"{url}/v1",
            api_key=key,
            http_client=http,
            max_retries=0,
            timeout=30,
            default_headers=headers,
        )
        self.anthropic = anthropic.Anthropic(
            base_url=url,
            api_key=key,
            http_client=http,
            max_retries=0,
            timeout=30,
            default_headers=headers,
        )

    def tell(self, dialect: DialectName, way: Way, model: str, dump: Dump = full) -> Json:
        """Ask and return what the application holds at the end. Raises the SDK's errors."""
        return (
            _openai(self.openai, way, model, dump)
            if dialect == "openai"
            else _anthropic(self.anthropic, way, model, dump)
        )

    def close(self) -> None:
        """Close both."""
        self.openai.close()
        self.anthropic.close()


class Direct(Clients):
    """Both SDKs on bytes instead of a server."""

    def __init__(self) -> None:
        self._body, self._streams = b"", False
        super().__init__(
            "http://upstream", "k", httpx2.Client(transport=httpx2.MockTransport(self._answer))
        )

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        kind = "text/event-stream; charset=utf-8" if self._streams else "application/json"
        return httpx2.Response(200, headers={"content-type": kind}, content=self._body)

    def read(self, dialect: DialectName, way: Way, body: bytes, dump: Dump = full) -> Json:
        """Return what the SDK makes of these bytes."""
        self._body, self._streams = body, way in WAYS[dialect][True]
        return self.tell(dialect, way, "m", dump)

    def accumulated(self, body: bytes) -> Json:
        """Return the completion that the SDK's own state makes of a stream."""
        self._body, self._streams = body, True
        state: Any = ChatCompletionStreamState()
        for chunk in self.openai.chat.completions.create(
            model="m", messages=_QUESTION, stream=True
        ):
            state.handle_chunk(chunk)
        return sent(state.current_completion_snapshot)


def _openai(client: openai.OpenAI, way: Way, model: str, dump: Dump) -> Json:
    completions = client.chat.completions
    if way == "create":
        return dump(completions.create(model=model, messages=_QUESTION))
    options: Any = {"include_usage": True}
    if way == "iterate":
        with completions.create(
            model=model, messages=_QUESTION, stream=True, stream_options=options
        ) as chunks:
            return _iterated_chunks(chunks, dump)
    with completions.stream(model=model, messages=_QUESTION, stream_options=options) as events:
        for _ in events:
            pass
        try:
            return dump(events.get_final_completion())
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
            # the helper's last call raises on these two finish reasons, whoever answers; what it
            # holds is complete
            return dump(events.current_completion_snapshot)


def _iterated_chunks(chunks: Any, dump: Dump) -> Json:
    """An application's own loop over chunks."""
    said: Json = {
        "content": "",
        "refusal": None,
        "reasoning": "",
        "order": [],
        "calls": [],
        "finish": [],
        "usage": None,
    }
    said |= {"annotations": [], "reasoning_details": [], "logprobs": [], "top": {}, "problems": []}
    ids, problems = set(), said["problems"]
    for chunk in chunks:
        if said["usage"] is not None:
            problems.append("chunk after the usage")
        ids.add(chunk.id)
        said["top"] |= {"id": chunk.id, "model": chunk.model, **(chunk.model_extra or {})}
        if chunk.usage is not None:
            said["usage"] = dump(chunk.usage)
        for choice in chunk.choices:
            if said["finish"] and choice.delta.model_dump(exclude_none=True):
                problems.append("delta after the finish reason")
            _take_delta(said, choice.delta, problems)
            if choice.finish_reason:
                said["finish"].append(choice.finish_reason)
            if choice.logprobs is not None:
                said["logprobs"].append(dump(choice.logprobs))
    if len(ids) > 1:
        problems.append(f"ids {sorted(ids)}")
    if len(said["finish"]) > 1:
        problems.append("finish reason twice")
    return said


def _take_delta(said: Json, delta: Any, problems: list[str]) -> None:
    extra = delta.model_extra or {}
    parts = {
        "reasoning": next((extra[f] for f in REASONING if extra.get(f)), ""),
        "content": delta.content,
        "refusal": delta.refusal,
    }
    for field, part in parts.items():
        if part and field not in said["order"]:
            said["order"].append(field)
        if part is not None and (part or field == "refusal"):
            said[field] = (said[field] or "") + part
    if delta.role and (said["content"] or said["calls"]):
        problems.append("role in the middle")
    for field in _LISTS:
        said[field] += extra.get(field) or []
    for call in delta.tool_calls or ():
        calls = said["calls"]
        if call.index == len(calls):
            calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
            said["order"].append(f"call {call.index}")
        elif call.index is None or call.index > len(calls):
            problems.append(f"tool index {call.index} where {len(calls)} is next")
            continue
        elif call.id or call.function.name:
            problems.append(f"id or name of tool call {call.index} twice")
        calls[call.index]["arguments"] += call.function.arguments or ""


def _anthropic(client: anthropic.Anthropic, way: Way, model: str, dump: Dump) -> Json:
    ask: Json = {"model": model, "max_tokens": 1000, "messages": _QUESTION}
    if way == "create":
        return dump(client.messages.create(**ask))
    if way == "beta create":
        return dump(client.beta.messages.create(**ask))
    if way == "iterate":
        with client.messages.create(stream=True, **ask) as events:
            return _iterated_events(events, dump)
    messages: Any = client.messages if way == "helper" else client.beta.messages
    with messages.stream(**ask) as events:
        return dump(events.get_final_message())


def _iterated_events(events: Any, dump: Dump) -> Json:
    """An application's own loop over events."""
    said: Json = {"content": [], "problems": []}
    problems: list[str] = said["problems"]
    is_open = ended = False
    for event in events:
        told = dump(event)
        if ended:
            problems.append(f"{event.type} after the end")
        match event.type:
            case "message_start":
                if "id" in said:
                    problems.append("message_start twice")
                said |= told["message"] | {"content": list(told["message"].get("content") or ())}
            case "content_block_start":
                if is_open or event.index != len(said["content"]):
                    problems.append(
                        f"block {event.index} where {len(said['content'])} is next, or one is open"
                    )
                said["content"].append(told["content_block"])
                is_open = True
            case "content_block_delta":
                if not is_open or event.index != len(said["content"]) - 1:
                    problems.append(f"delta for block {event.index}, which is not open")
                _join(said["content"][event.index], told["delta"])
            case "content_block_stop":
                if not is_open:
                    problems.append(f"stop of block {event.index}, which is not open")
                is_open = False
                block = said["content"][event.index]
                if text := block.pop("json", ""):
                    block["input"] = arguments(text)
            case "message_delta":
                said |= {
                    k: v
                    for k, v in (told | told["delta"]).items()
                    if v is not None and k not in ("type", "delta", "usage")
                }
                # cumulative: the last value wins
                said["usage"] = {
                    **said.get("usage", {}),
                    **{k: v for k, v in told["usage"].items() if v is not None},
                }
            case "message_stop":
                ended = True
    if is_open or not ended:
        problems.append("no end")
    return said


def _join(block: Json, delta: Json) -> None:
    kind = delta["type"]
    if kind in _JOINED:
        block[_JOINED[kind]] += delta[_JOINED[kind]]
    elif kind == "input_json_delta":
        block["json"] = block.get("json", "") + delta["partial_json"]
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    else:
        block |= {k: v for k, v in delta.items() if k != "type"}
