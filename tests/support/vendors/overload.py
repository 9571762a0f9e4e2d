"""How each vendor says that it is overloaded: the status, headers and body."""

from tests.support.json_values import Json

OF: dict[str, tuple[int, dict[str, str], Json]] = {
    "openai": (
        503,
        {},
        {
            "error": {
                "message": "The engine is currently overloaded, please try again later",
                "type": "server_error",
            }
        },
    ),
    "anthropic": (
        529,
        {},
        {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Overloaded"},
            "request_id": "req_7",
        },
    ),
    "responses": (
        503,
        {},
        {
            "error": {
                "message": "Our servers are currently overloaded. Please try again later.",
                "code": "server_is_overloaded",
            }
        },
    ),
    "gemini": (
        503,
        {},
        {
            "error": {
                "code": 503,
                "message": "The model is overloaded. Please try again later.",
                "status": "UNAVAILABLE",
            }
        },
    ),
    "converse": (
        503,
        {"x-amzn-errortype": "ServiceUnavailableException"},
        {"message": "Too many connections, please wait before trying again."},
    ),
    "strict": (
        503,
        {"retry-after": "1"},
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
    ),
}
