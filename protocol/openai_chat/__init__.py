"""The chat/completions dialect. Imports no other dialect."""

from protocol.dialect import Dialect, Way

DIALECT = Dialect(
    package=__name__,
    name="openai",
    client_paths={"/v1/chat/completions": "chat"},
    about={"chat": "the OpenAI API: base URL of a client is this address with /v1"},
    client_base="/v1",
    answers="chat",
    upstream_paths={"chat": "/chat/completions", "models": "/models"},
    never_in_base=("/chat/completions", "/completions", "/responses", "/models"),
    read_elsewhere="protocol.responses",
    keepalive=b": keepalive\n\n",  # a comment: SDKs skip it
    doors={
        "azure": Way(place="/openai/v1", key_header=("api-key", "{key}"), deploys=True, lists=True),
        "bedrock-mantle": Way(place="/v1", lists=True, ids="mint"),
    },
    judge_replies=("json_schema", "json_object", "tool", "text"),
    takes_guided=True,
    has_turns=True,
    names_text=True,
    thinking_field="reasoning_content",
)
