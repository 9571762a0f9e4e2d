"""A provider that speaks Gemini's API, as strict about signatures as version 3 is."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.json_values import Json, as_json
from tests.support.vendors.checking import (
    cut,
    is_sealed,
    known,
    need,
    seal,
)
from tests.support.vendors.story import Do, Offered, Part, Refused, Result, Say, Seen

_FIELDS = (
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
)
_GENERATION = (
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "stopSequences",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseMimeType",
    "responseJsonSchema",
    "responseSchema",
    "candidateCount",
    "thinkingConfig",
    "responseLogprobs",
    "logprobs",
)
_PART = (
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
)
_DUMMY = "skip_thought_signature_validator"
_USAGE = {
    "promptTokenCount": 40,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 52,
}


def read(body: Json, path: str) -> Seen:
    """Check and read a request; the path says the model and whether it streams. Raises Refused."""
    model, _, method = path.rpartition("/")[2].partition(":")
    known(body, _FIELDS, "")
    known(body.get("generationConfig") or {}, _GENERATION, "generation_config")
    seen = Seen(model, method.startswith("stream"), _offered(body.get("tools") or []), [])
    contents: Any = body.get("contents")
    need(isinstance(contents, list) and contents, "contents is not specified")
    system = body.get("systemInstruction")
    need(system is None or system.get("parts"), "systemInstruction.parts is empty")
    need(
        not any(c.get("role") == "system" for c in contents),
        "Please use a valid role: user, model.",
    )
    seen.thinks = bool(
        (body.get("generationConfig") or {}).get("thinkingConfig", {}).get("includeThoughts")
    )
    turn = max(
        (
            n
            for n, c in enumerate(contents)
            if c["role"] == "user" and not any("functionResponse" in p for p in c["parts"])
        ),
        default=0,
    )
    before: Json = {"role": "model", "parts": []}
    for number, content in enumerate(contents):
        known(content, ("role", "parts"), f"contents[{number}]")
        need(
            content["role"] in ("user", "model") and content.get("parts"),
            f"contents[{number}]: role or parts",
        )
        need(
            content["role"] != before["role"],
            f"contents[{number}]: roles must alternate between user and model, beginning with user",
        )
        _content(seen, content, before, number, number > turn)
        before = content
    need(before["role"] == "user", "the last content must be of the role user")
    return seen


def _offered(tools: list[Json]) -> list[Offered]:
    made = []
    for tool in tools:
        known(
            tool, ("functionDeclarations", "googleSearch", "urlContext", "codeExecution"), "tools"
        )
        need(tool.get("functionDeclarations", [1]), "functionDeclarations is empty")
        for one in tool.get("functionDeclarations", []):
            known(
                one,
                (
                    "name",
                    "description",
                    "parameters",
                    "parametersJsonSchema",
                    "response",
                    "behavior",
                ),
                "function_declarations",
            )
            need(
                not ("parameters" in one and "parametersJsonSchema" in one),
                "parameters and parameters_json_schema are exclusive",
            )
            made.append(
                Offered(one["name"], one.get("parametersJsonSchema") or one.get("parameters") or {})
            )
    return made


def _content(seen: Seen, content: Json, before: Json, number: int, is_current: bool) -> None:
    calls = [p["functionCall"] for p in before["parts"] if "functionCall" in p]
    answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
    counts = (
        "Please ensure that the number of function response parts is equal to the number of"
        " function call parts of the function call turn."
    )
    need(content["role"] == "model" or len(answers) == len(calls), counts)
    for call, one in zip(calls, answers, strict=False):
        known(one, ("id", "name", "response", "parts"), "function_response")
        need(
            one["name"] == call["name"],
            f"function_response.name: {one['name']} answers a call of {call['name']}",
        )
        need(isinstance(one.get("response"), dict), "function_response.response must be an object")
        need(
            "id" not in one or one["id"] == call.get("id"),
            f"function_response.id: {one.get('id')} is not the call's",
        )
        seen.results.append(Result(one.get("id", ""), json.dumps(one["response"])))
    is_first = True
    for position, part in enumerate(content["parts"]):
        known(part, _PART, f"contents[{number}].parts[{position}]")
        signature = part.get("thoughtSignature")
        if signature == _DUMMY:
            seen.dummies += 1
        elif signature is not None:
            need(is_sealed(signature), "Corrupted thought signature.")
            seen.sealed += 1
        if "functionCall" in part:
            need(content["role"] == "model", "function call parts are of the role model")
            known(part["functionCall"], ("id", "name", "args"), "function_call")
            need(
                isinstance(part["functionCall"].get("args", {}), dict),
                "function_call.args must be an object",
            )
            need(
                "id" not in part["functionCall"],
                'Invalid JSON payload received. Unknown name "id": this provider gives none',
            )
            need(
                signature or not is_first or not is_current,
                "Function call is missing a thought_signature in functionCall parts. Function call"
                f" `{part['functionCall']['name']}`, position {position + 1}.",
            )
            is_first = False
            seen.calls.append(part["functionCall"]["name"])
        elif "text" in part:
            need(
                part["text"] or signature, "contents.parts: data must be initialized: an empty text"
            )
            seen.texts.append(part["text"])


def _parts(seen: Seen, parts: list[Part]) -> list[Json]:
    made: list[Json] = []
    is_first = True
    for part in parts:
        if isinstance(part, Say):
            made += [{"text": piece} for piece in cut(part.text, 12)]
        elif isinstance(part, Do):
            call: Json = {"functionCall": {"name": part.name, "args": part.arguments}}
            made.append(call | ({"thoughtSignature": seal(part.id)} if is_first else {}))
            is_first = False
        elif seen.thinks:
            made.append({"text": part.text, "thought": True})
    return made if not is_first else [*made, {"text": "", "thoughtSignature": seal("end")}]


def _chunk(seen: Seen, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0} | (
        {"finishReason": "STOP"} if last else {}
    )
    return {
        "candidates": [candidate],
        "usageMetadata": _USAGE,
        "modelVersion": seen.model,
        "responseId": "r7",
    }


def whole(seen: Seen, parts: list[Part]) -> Json:
    """An answer that is not streamed."""
    return _chunk(seen, _parts(seen, parts), last=True)


def frames(seen: Seen, parts: list[Part]) -> Iterator[bytes]:
    """A streamed answer."""
    made = _parts(seen, parts)
    for number, part in enumerate(made):
        yield (
            b"data: " + as_json(_chunk(seen, [part], last=number == len(made) - 1)) + b"\r\n\r\n"
        )


def error(refused: Refused) -> Json:
    """The body of an error."""
    return {
        "error": {"code": refused.status, "message": refused.message, "status": "INVALID_ARGUMENT"}
    }
