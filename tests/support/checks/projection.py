"""What a client of the other dialect is to get of an answer: docs/change/protocol.md 1.3 to 1.7
applied to what the SDK accumulated of it.

Written apart from the product's codecs, which it judges: it knows messages and completions as the
SDKs hold them, and no events.
"""

from collections.abc import Sequence

from protocol.dialects.anthropic.wire import UNSIGNED
from tests.support.clients.sdk_answers import REASONING, arguments
from tests.support.json_values import Json

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "compaction": "length",
    # where the gateway does not go on itself
    "pause_turn": "length",
}
_STOP = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_CLIENTS = ("text", "thinking", "redacted_thinking", "tool_use")
_WEB = "web_search_result_location"


def completion_facts(segments: Sequence[Json]) -> Json:
    """What chat/completions says of a message of the Messages dialect; several segments are one
    paused turn and its continuations."""
    blocks = [block for segment in segments for block in segment["content"]]
    last = segments[-1]
    texts = [b["text"] for b in blocks if b["type"] == "text"]
    calls = [
        {"id": b["id"], "name": b["name"], "arguments": b["input"]}
        for b in blocks
        if b["type"] == "tool_use"
    ]
    facts = {
        "content": "".join(texts),
        "reasoning": "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
        "calls": calls,
        "finish": FINISH[last["stop_reason"]],
        "usage": _completion_usage(segments),
        "annotations": _annotations(blocks),
        "refusal": None,
        "blocks": [b for b in blocks if b["type"] not in _CLIENTS],
        "citations": [c for b in blocks for c in b.get("citations") or () if c["type"] != _WEB],
        "container": last.get("container"),
    }
    if last["stop_reason"] == "refusal":
        why = (last.get("stop_details") or {}).get("explanation")
        facts["refusal"] = why or (None if texts or calls else "")
    return facts


def _completion_usage(segments: Sequence[Json]) -> dict[str, int]:
    """As docs/change/protocol.md 1.7 says; the sum over segments is the only place where adding is
    right."""
    found = dict.fromkeys(
        (
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
        ),
        0,
    )
    for usage in (s["usage"] for s in segments):
        read, written = (
            usage.get("cache_read_input_tokens") or 0,
            usage.get("cache_creation_input_tokens") or 0,
        )
        prompt = usage["input_tokens"] + read + written
        found["prompt_tokens"] += prompt
        found["completion_tokens"] += usage["output_tokens"]
        found["total_tokens"] += prompt + usage["output_tokens"]
        found["cached_tokens"] += read
        found["cache_write_tokens"] += written
        found["reasoning_tokens"] += (usage.get("output_tokens_details") or {}).get(
            "thinking_tokens"
        ) or 0
    return found


def _annotations(blocks: Sequence[Json]) -> list[Json]:
    found, at = [], 0
    for block in blocks:
        if block["type"] != "text":
            continue
        end = at + len(block["text"])
        for citation in block.get("citations") or ():
            if citation["type"] == _WEB:
                where = {
                    "start_index": at,
                    "end_index": end,
                    "title": citation.get("title") or "",
                    "url": citation.get("url") or "",
                }
                found.append({"type": "url_citation", "url_citation": where})
        at = end
    return found


def _usage(usage: Json | None) -> dict[str, int]:
    """A completion's usage in the words of `_completion_usage`."""
    usage = usage or {}
    before, after = (
        usage.get("prompt_tokens_details") or {},
        usage.get("completion_tokens_details") or {},
    )
    counts = {
        name: usage.get(name) or 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    cached = {name: before.get(name) or 0 for name in ("cached_tokens", "cache_write_tokens")}
    return counts | cached | {"reasoning_tokens": after.get("reasoning_tokens") or 0}


def _completion_reasoning(message: Json) -> str:
    return next((message[f] for f in REASONING if message.get(f)), "")


def told_completion(told: Json) -> Json:
    """What a chat/completions client was told, in the words of `completion_facts`; `told` is
    iterated, helped or whole."""
    if "choices" not in told:
        own = told["top"].get("sluice") or {}
        calls = [c | {"arguments": arguments(c["arguments"])} for c in told["calls"]]
        finish = told["finish"][0] if told["finish"] else None
        said = {k: told[k] for k in ("content", "reasoning", "refusal", "annotations")} | {
            "calls": calls,
            "finish": finish,
        }
        return said | {"usage": _usage(told["usage"])} | _own(own)
    choice = told["choices"][0]
    message = choice["message"]
    calls = [
        {
            "id": c["id"],
            "name": c["function"]["name"],
            "arguments": arguments(c["function"]["arguments"]),
        }
        for c in message.get("tool_calls") or ()
    ]
    said = {
        "content": message.get("content") or "",
        "reasoning": _completion_reasoning(message),
        "refusal": message.get("refusal"),
        "annotations": message.get("annotations") or [],
        "calls": calls,
        "finish": choice["finish_reason"],
        "usage": _usage(told.get("usage")),
    }
    return said | _own(told["sluice"]) if "sluice" in told else said


def _own(own: Json) -> Json:
    citations = [c["citation"] for c in own.get("citations", ())]
    return {
        "blocks": own.get("blocks", []),
        "citations": citations,
        "container": own.get("container"),
    }


def message_facts(told: Json, order: Sequence[str] = ()) -> Json:
    """What the Messages dialect says of a completion, which is whole; `order` is that in which a
    stream's parts began.

    An id that upstream left out is anything: None.
    """
    facts = told_completion(told)
    order = order or [
        "reasoning",
        "content",
        "refusal",
        *(f"call {n}" for n in range(len(facts["calls"]))),
    ]
    blocks: list[Json] = []
    for part in order:
        if part == "reasoning" and facts["reasoning"]:
            blocks.append({"type": "thinking", "thinking": facts["reasoning"]})
        elif part in ("content", "refusal") and facts[part]:
            blocks.append({"type": "text", "text": facts[part]})
        elif part.startswith("call "):
            call = facts["calls"][int(part[5:])]
            blocks.append(
                {
                    "type": "tool_use",
                    "id": call["id"] or None,
                    "name": call["name"],
                    "input": call["arguments"],
                }
            )
    stop = _STOP[facts["finish"]]
    usage = facts["usage"]
    rest = usage["prompt_tokens"] - usage["cached_tokens"] - usage["cache_write_tokens"]
    counted = {
        "input_tokens": max(0, rest),
        "output_tokens": usage["completion_tokens"],
        "cache_read_input_tokens": usage["cached_tokens"],
        "cache_creation_input_tokens": usage["cache_write_tokens"],
        "thinking_tokens": usage["reasoning_tokens"],
    }
    # vendors end an answer with calls in it with other words
    stop = "tool_use" if facts["calls"] and stop == "end_turn" else stop
    return {
        "blocks": blocks,
        "stop_reason": stop,
        "usage": counted,
        "annotations": facts["annotations"],
    }


def told_message(told: Json) -> Json:
    """What a Messages client was told, in the words of `message_facts`."""
    blocks = []
    for block in told["content"]:
        found = {
            k: v
            for k, v in block.items()
            if k in ("type", "text", "thinking", "id", "name", "input", "signature") and v
        }
        if found.get("signature") == UNSIGNED:
            # of no provider
            del found["signature"]
        if block["type"] == "tool_use":
            found["input"] = block["input"]
        blocks.append(found)
    usage = told["usage"]
    counted = {
        name: usage.get(name) or 0
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
    }
    counted["thinking_tokens"] = (usage.get("output_tokens_details") or {}).get(
        "thinking_tokens"
    ) or 0
    # a citation of this dialect cannot be made up of an annotation: it is beside the message
    annotations = (told.get("sluice") or {}).get("annotations", [])
    return {
        "blocks": blocks,
        "stop_reason": told["stop_reason"],
        "usage": counted,
        "annotations": annotations,
    }
