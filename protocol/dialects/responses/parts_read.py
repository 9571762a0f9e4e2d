"""What Responses items hold, read: the parts of messages, and the outputs of calls as text."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.dialects.responses.items import TYPED_TOOLS
from protocol.request import OtherPart, Part, TextPart
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.server_tools.data import table

_OF_PARTS = (
    "type text refusal image_url file_id detail file_url file_data filename annotations"
    " logprobs".split()
)
_MEDIA = ("input_image", "input_file")
_TEXTS = ("input_text", "output_text")


def need_strings(at: str, value: dict[str, Any], *names: str) -> None:
    """Refuse an object without these strings."""
    for name in names:
        if type(value.get(name)) is not str or (not value[name] and name in ("call_id", "name")):
            invalid(f"{at}.{name} must be a string", "input")


def result_text(content: Any, at: str) -> str:
    """Return the output of a call as text; parts that are no text are named. Raises
    InvalidRequest."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        invalid(f"{at} must be a string or a list of parts", "input")
    return "".join(_result_piece(part, at) for part in content)


def _result_piece(part: Any, at: str) -> str:
    if not isinstance(part, dict):
        invalid(f"{at} has a part that is not an object", "input")
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return text
        case {"type": "input_image" | "input_file" | "computer_screenshot" as kind}:
            return f"[{kind}]"
        case {"stdout": str(out), "stderr": str(err)}:
            return out + err
        case {"type": str(kind)} if (
            kind
            in (
                "function",
                "custom",
                "namespace",
            )
            or kind in _tool_types()
        ):
            return dumps(part).decode()
    invalid(f"{at} has a part of a type that the gateway does not know", "input")


def _tool_types() -> frozenset[str]:
    return frozenset(TYPED_TOOLS) | frozenset(table().responses_tools)


def read_parts(content: Any, at: str) -> tuple[Part, ...]:
    """Return the parts of a message. Raises InvalidRequest."""
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        invalid(f"{at} must be a string or a list of parts", "input")
    return tuple(_part(part, at) for part in content)


def _part(part: Any, at: str) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS:
        if not isinstance(part.get("text"), str):
            invalid(f"{at} has a text part without a text", "input")
        return TextPart(part["text"], fields.exclude_known(part, "type", "text"))
    if kind == "refusal":
        if not isinstance(part.get("refusal"), str):
            invalid(f"{at} has a refusal without its text", "input")
        return OtherPart("refusal", part, "responses")
    if kind in _MEDIA:
        fields.refuse_lookalikes(part, _OF_PARTS)
        for name in ("image_url", "file_id", "file_url", "file_data", "filename"):
            if not isinstance(part.get(name), str | None):
                invalid(f"{at} has a part whose {name} is not a string", "input")
        return OtherPart(kind, part, "responses")
    invalid(
        f"{at} has a part of a type that the gateway does not know: {str(kind)[:80]!r}", "input"
    )


def text_of(item: dict[str, Any], at: str) -> str:
    """Return the text of a system or developer message. Raises InvalidRequest."""
    parts = read_parts(item.get("content"), f"{at}.content")
    texts = [p.text for p in parts if isinstance(p, TextPart)]
    if len(texts) != len(parts):
        invalid(f"{at}.content must be text", "input")
    return "".join(texts)
