"""The response object around the items of a Responses answer: what it repeats of the request, and
how it ended."""

from typing import Any

from protocol.dialects.responses.ids import response_id
from protocol.request import ChatRequest

_DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": {},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""The values of parameters that the client did not set."""


def head(request: ChatRequest, call_id: str, created: int, echo: dict[str, Any]) -> dict[str, Any]:
    """Return the object as it is when the answer begins. `created` is Unix seconds, `echo` what it
    repeats of the request."""
    body: dict[str, Any] = {
        "id": response_id(call_id),
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": request.model,
        "output": [],
        "usage": None,
        "service_tier": "default",
    }
    body |= {name: echo.get(name, value) for name, value in _DEFAULTS.items()}
    body["text"] = {"format": {"type": "text"}, "verbosity": "medium", **body["text"]}
    body["reasoning"] = {"effort": None, "summary": None, **body["reasoning"]}
    return body
