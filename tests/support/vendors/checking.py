"""What vendors check of a request, in the words of all of them."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from tests.support.json_values import Json
from tests.support.vendors.story import Refused


def need(holds: object, message: str, *, status: int = 400, code: str = "") -> None:
    """Refuse the request unless it holds."""
    if not holds:
        raise Refused(message, status, code)


def known(value: Json, names: Iterable[str], where: str) -> None:
    """Refuse names that are none of `names`."""
    unknown = sorted(set(value) - set(names))
    need(
        not unknown,
        f"Unknown parameter: '{where}{'.' if where else ''}{unknown[0] if unknown else ''}'.",
        code="unknown_parameter",
    )


def loaded(text: Any, where: str) -> Json:
    """An object from its JSON text."""
    need(isinstance(text, str), f"{where} must be a string")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Refused(f"{where} is not JSON: {error}") from None
    need(isinstance(value, dict), f"{where} must be an object")
    return dict(value)


def seal(text: str) -> str:
    """What a vendor gives as sealed state for a thought."""
    return base64.b64encode(b"sealed\xff\xfe:" + text.encode()).decode()


def is_sealed(value: Any, text: str | None = None) -> bool:
    """Whether sealed state is ours, in either alphabet of base64; `text`: for this very thought."""
    if not isinstance(value, str):
        return False
    try:
        raw = base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        return False
    return raw.startswith(b"sealed\xff\xfe:") and (
        text is None or raw == b"sealed\xff\xfe:" + text.encode()
    )


def cut(text: str, size: int = 7) -> list[str]:
    """A text in the pieces in which it streams."""
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
