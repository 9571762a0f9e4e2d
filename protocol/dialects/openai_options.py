"""Options that OpenAI's two APIs have alike, written for a request that crosses."""

from hashlib import sha256
from typing import Any

from protocol.dialects.models import OpenAiModelRow
from protocol.request import ChatRequest, Reasoning
from protocol.requests.fields import invalid
from protocol.requests.media import IMAGES, is_address
from protocol.requests.neutral import MediaPart
from protocol.target import RequestNotes

_MAX_USER = 64
_BUDGETS = ((2048, "low"), (8192, "medium"))
"""Thinking tokens up to which an effort is meant; beyond, it is high."""


def write_sampling(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any]:
    """Return temperature and top_p, where the model takes them."""
    body: dict[str, Any] = {}
    request = draft.request
    for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
        if value is not None and (row.sampling or value == 1):
            body[name] = value
        elif value is not None:
            draft.drop(name)
    return body


def write_user(request: ChatRequest, row: OpenAiModelRow) -> dict[str, Any]:
    """Return the field that names the user. The vendor's is shorter than what applications write
    there."""
    user = request.user
    if not user:
        return {}
    if len(user) > _MAX_USER:
        user = sha256(user.encode("utf-8", "replace")).hexdigest()
    return {"safety_identifier" if row.vendor else "user": user}


def effort_of(tokens: int) -> str:
    """Return the effort that so many thinking tokens mean."""
    return next((effort for limit, effort in _BUDGETS if tokens <= limit), "high")


def wanted_effort(reasoning: Reasoning) -> str | None:
    """Return the effort that a client wants: what it says, or what its thinking tokens mean."""
    if reasoning.mode == "off":
        return "none"
    if reasoning.effort is None and reasoning.budget_tokens is not None:
        return effort_of(reasoning.budget_tokens)
    return reasoning.effort


def image_url(part: MediaPart) -> str:
    """Return the URL of an image, a data: URL where it came in base64. Raises InvalidRequest."""
    if part.data is not None and part.media_type in IMAGES:
        return f"data:{part.media_type};base64,{part.data}"
    if part.url is not None and is_address(part.url):
        return part.url
    invalid(
        "an image in messages must be a JPEG, PNG, GIF or WebP in base64, or have an http(s) URL",
        "messages",
    )


def pdf_file(part: MediaPart) -> dict[str, Any] | None:
    """Return the fields of a PDF that came in base64; None for another document."""
    if part.data is None or part.media_type != "application/pdf":
        return None
    return {
        "filename": part.title or "document.pdf",
        "file_data": f"data:application/pdf;base64,{part.data}",
    }
