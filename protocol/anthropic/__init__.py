"""The Messages dialect. Imports no other dialect."""

from protocol.dialect import Dialect, Way

DIALECT = Dialect(
    package=__name__,
    name="anthropic",
    client_paths={"/v1/messages": "messages", "/v1/messages/count_tokens": "count_tokens"},
    about={
        "messages": "the Anthropic API: base URL of a client is this address without /v1",
        "count_tokens": "counts the tokens of a Messages request",
    },
    error_paths=("/v1/messages",),
    error_headers=frozenset((b"anthropic-version",)),
    answers="messages",
    counts=True,
    upstream_paths={
        "messages": "/v1/messages",
        "count_tokens": "/v1/messages/count_tokens",
        "models": "/v1/models",
    },
    base_overlap="/v1",
    never_in_base=("/v1", "/v1/messages", "/messages"),
    headers={"anthropic-version": "2023-06-01"},
    key_header=("x-api-key", "{key}"),
    doors={
        "azure": Way(place="/anthropic"),
        "vertex": Way(place="/publishers/anthropic", version="vertex-2023-10-16", models="claude"),
        "bedrock": Way(version="bedrock-2023-05-31", models="claude"),
        "bedrock-mantle": Way(place="/anthropic"),
    },
    betas_header="anthropic-beta",
    keepalive=b'event: ping\ndata: {"type": "ping"}\n\n',
    judge_replies=("tool", "json_schema", "text"),
    needs_max_tokens=True,
    takes_server_tools=True,
    pauses=True,
    has_turns=True,
    hides_foreign=True,
)
