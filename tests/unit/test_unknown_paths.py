"""What is said at paths that are not served: which base URL to use, or what instead."""

import pytest

from pages.audit.api import served
from protocol.unknown_paths import SERVED, unknown_path, wrong_method

HOST = [(b"host", b"localhost:8080")]
OPENAI, ANTHROPIC = (
    "set the base URL to http://localhost:8080/v1 ",
    "set the base URL to http://localhost:8080 (without /v1",
)
OTHERS = (
    "/v1beta/models/gemini-3:streamGenerateContent",
    "/v1/models/x:generateContent",
    "/model/x/converse-stream",
    "/api/chat",
)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", OPENAI),
        ("/models", OPENAI),
        ("/v1/v1/chat/completions", OPENAI),
        ("/v1//v1/chat/completions", OPENAI),
        ("//v1/chat/completions", OPENAI),
        ("/v1/v1/messages", ANTHROPIC),
        ("/v1/v1/messages/count_tokens", ANTHROPIC),
        ("//v1/messages", ANTHROPIC),
        ("/messages", OPENAI),
        ("/models/gpt-4o", "/v1 (with /v1 at its end, once)"),
        ("/v1/chat/completions/", "the path is /v1/chat/completions"),
        ("/openai/v1/chat/completions", "the path is /v1/chat/completions, with nothing before it"),
        ("/anthropic/v1/messages", "the path is /v1/messages, with nothing before it"),
        ("/v1/responses/compact", "no compaction"),
        ("/v1/responses/resp_1/cancel", "no compaction"),
        ("/responses", "/v1 (with /v1 at its end, once)"),
        ("/v1/completions", "use chat/completions"),
        ("/v1/complete", "use messages"),
        *((path, "use a client that speaks chat/completions") for path in OTHERS),
    ],
)
def test_a_wrong_path_says_what_to_change(path: str, hint: str) -> None:
    error = unknown_path("POST", path, HOST)
    assert error.message.startswith(f"POST {path} is not served here: ") and hint in error.message
    assert all(one in error.message for one in SERVED)
    assert (error.http_status, error.error_code) == (404, "unknown_path")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/embeddings",
        "/v1/files",
        "/v1/messages/batches",
        "/x",
        "/v1",
        "/",
        "/audits",
        "/v1/models",
    ],
)
def test_where_nothing_is_known_what_is_served_is_said(path: str) -> None:
    assert (
        unknown_path("GET", path, HOST).message
        == f"GET {path} is not served here. This gateway serves {', '.join(SERVED)}"
    )


@pytest.mark.parametrize("path", ["/audit", "/audit/", "/audit/tool_calls"])
def test_of_the_record_its_paths_are_said(path: str) -> None:
    said = unknown_path("GET", path, HOST, served()).message
    assert (
        said.startswith(f"GET {path} is not served here. The record is at GET /audit/calls, ")
        and "/audit/tool-calls" in said
    )


def test_what_a_client_made_up_is_cut_and_never_taken_for_an_address() -> None:
    long = unknown_path("POST" * 100, "/" + "x" * 5000, HOST).message
    assert len(long) < 500
    for host in (b"evil\r\nx", b'a"b', b"a b", b"x" * 300, b"", "é".encode()):
        assert (
            "this gateway's address/v1"
            in unknown_path("POST", "/chat/completions", [(b"host", host)]).message
        )
    assert (
        "http://[::1]:8080/v1"
        in unknown_path("POST", "/chat/completions", [(b"host", b"[::1]:8080")]).message
    )


def test_another_method_names_the_right_one() -> None:
    error = wrong_method("GET", "/v1/messages", "POST")
    assert (error.message, error.error_code) == (
        "GET /v1/messages is not served; POST is",
        "method_not_allowed",
    )
    assert "CORS is not served" in wrong_method("OPTIONS", "/v1/messages", "POST").message
