"""Answers of Gemini, with all that it sends: where fuzzing begins; and what must hold for each
request to it."""

from tests.support.json_values import Json, as_json
from tests.support.upstreams.gemini import answer, body_of, call, check_request, piece

MODELS = (
    "gemini-3-pro",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.0-flash",
    "gemma-3-27b",
    "other",
)
_SUPPORT = {"segment": {"startIndex": 0, "endIndex": 2, "text": "Gr"}, "groundingChunkIndices": [0]}
_SOURCES = {
    "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
    "groundingSupports": [_SUPPORT],
    "webSearchQueries": ["q"],
}
_THOUGHT = {"text": "hm", "thought": True, "thoughtSignature": "QUFB"}
_CODE = {
    "executableCode": {"language": "PYTHON", "code": "1", "id": "c"},
    "thoughtSignature": "QUFB",
}
_RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "c"}}
_SEARCH = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "args": {"q": "x"}}}
_FOUND = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "response": {"a": 1}}}
_TEXT = {"text": "Gr\u00fc\u00dfe"}
_SEAL = {"text": "", "thoughtSignature": "QUFB"}
_PIECES = [
    piece(name="bash"),
    piece("$.command", "l", text_goes_on=True),
    piece("$.command", "s"),
    piece("$.a[0].b", 1),
    piece(goes_on=False),
]
_PARTS: list[list[Json]] = [
    [_TEXT, _TEXT, _SEAL],
    [_THOUGHT, _TEXT, call("bash", "QUFB", command="ls"), call("bash", command="x"), _SEAL],
    _PIECES,
    [_CODE, _RAN, _TEXT],
    [_SEARCH, _FOUND, _TEXT, call("bash", command="ls")],
    [{"inlineData": {"mimeType": "image/png", "data": "aa"}}],
]


def streams() -> list[bytes]:
    """Streams: a part a chunk, and all in one."""
    apart = [
        body_of(*(answer(part, finish=None) for part in parts), answer(groundingMetadata=_SOURCES))
        for parts in _PARTS
    ]
    together = [body_of(answer(*parts, groundingMetadata=_SOURCES)) for parts in _PARTS]
    ends = [body_of(answer(_TEXT, finish=finish)) for finish in ("MAX_TOKENS", "SAFETY", "OTHER")]
    failed = [
        body_of(answer(_TEXT, finish=None), {"error": {"code": 503, "message": "m"}}),
        body_of({"promptFeedback": {"blockReason": "SAFETY"}}),
    ]
    return apart + together + ends + failed


def answers() -> list[bytes]:
    """Whole answers."""
    return [as_json(answer(*parts, groundingMetadata=_SOURCES)) for parts in _PARTS]


def check(sent: Json) -> None:
    """Raise where the official SDK has no such request."""
    assert sent.keys() <= {
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
    }
    check_request(sent)
