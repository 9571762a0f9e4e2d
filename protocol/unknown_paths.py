"""Errors for unknown paths and methods. The usual cause is a wrong base URL, or a provider endpoint
that this gateway does not serve, so the error says what to change. Runs only for refused requests,
never for a call."""

import re
from collections.abc import Iterable, Sequence

from protocol.dialects.table import CLIENTS, client_paths
from protocol.errors import MethodNotAllowed, NotFound

SERVED = (
    *(f"POST {path}" for path in client_paths()),
    *(
        f"GET {dialect.kept_path}ID{suffix}"
        for dialect in CLIENTS.values()
        if dialect.kept_path
        for suffix in ("", "/input_items")
    ),
    "GET /v1/models",
    "GET /v1/models/ID",
)
_MOST_CHARS = 200
_ADDRESS = re.compile(rb"[A-Za-z0-9.-]{1,200}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,50}\](:[0-9]{1,5})?")
_PATH_OF = {
    path.removeprefix("/v1"): path for path in (served.partition(" ")[2] for served in SERVED)
}
_INSTEAD = {
    "/responses": (
        "of the Responses API, answers are served over HTTP: there is no WebSocket, no compaction"
        " and no stored conversation"
    ),
    "/completions": "the older completions API is not served; use chat/completions",
    "/complete": "the older completions API is not served; use messages",
}
"""By the path behind /v1, its first part: what to do instead."""
_OTHER_APIS = {
    "Gemini": (":generateContent", ":streamGenerateContent", ":countTokens"),
    "Bedrock": ("/converse", "/converse-stream", "/invoke", "/invoke-with-response-stream"),
    "Ollama": ("/api/chat", "/api/generate", "/api/tags"),
}
"""APIs that no client is served, by the ends of their paths."""


def unknown_path(
    method: str, path: str, headers: Iterable[tuple[bytes, bytes]], record: Sequence[str] = ()
) -> NotFound:
    """Return the error for a path that is not served: what to change where that is known, and what
    is served. `record`: the paths of the audit API, where that was asked."""
    if record:
        hint, served = "", f"The record is at {', '.join(record)}"
    else:
        hint, served = _hint(path, _address(headers)), f"This gateway serves {', '.join(SERVED)}"
    problem = f"{method[:16]} {path[:_MOST_CHARS]} is not served here"
    return NotFound(f"{problem}{': ' if hint else ''}{hint}. {served}", code="unknown_path")


def wrong_method(method: str, path: str, right: str) -> MethodNotAllowed:
    """Return the error for a path that is served, with another method."""
    cors = (
        "; scripts in browsers cannot call a gateway (CORS is not served)"
        if method == "OPTIONS"
        else ""
    )
    return MethodNotAllowed(f"{method[:16]} {path[:_MOST_CHARS]} is not served; {right} is{cors}")


def _hint(path: str, address: str) -> str:
    bare = re.sub("/+", "/", path).rstrip("/")
    if other := next((name for name, ends in _OTHER_APIS.items() if bare.endswith(ends)), ""):
        wanted = (
            f"use a client that speaks chat/completions or Responses (base URL {address}/v1) or"
            f" Messages ({address})"
        )
        return f"the API of {other} is served to no client; {wanted}, and name the model there"
    while bare.startswith("/v1/"):
        bare = bare.removeprefix("/v1")
    if right := _PATH_OF.get("/models/ID" if bare.startswith("/models/") else bare, ""):
        if not path.startswith("/v1/") or re.search("/v1/+v1/", path):
            # OpenAI's clients add /chat/completions to the base URL, Anthropic's /v1/messages,
            # Vercel's for Anthropic /messages
            if right.startswith("/v1/messages") and "/v1/" in path:
                return f"set the base URL to {address} (without /v1, which Anthropic's clients add)"
            return f"set the base URL to {address}/v1 (with /v1 at its end, once)"
        return f"the path is {right}" if path != right else ""
    first = "/" + bare.removeprefix("/").partition("/")[0]
    if instead := _INSTEAD.get(first):
        return instead
    ending = next((right for end, right in _PATH_OF.items() if bare.endswith(end)), "")
    return f"the path is {ending}, with nothing before it" if ending else ""


def _address(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """This gateway's address as its client has it, as far as that is known here: a proxy before us
    may speak TLS."""
    host = next(
        (value for name, value in headers if name == b"host" and _ADDRESS.fullmatch(value)), b""
    )
    return f"http://{host.decode()}" if host else "this gateway's address"
