"""The Responses dialect. Imports no other dialect."""

from protocol.dialect import Dialect, Way

DIALECT = Dialect(
    package=__name__,
    name="responses",
    client_paths={"/v1/responses": "responses"},
    about={"responses": "the OpenAI API: base URL of a client is this address with /v1"},
    error_paths=("/v1/responses",),
    client_base="/v1",
    answers="responses",
    upstream_paths={"responses": "/responses", "models": "/models"},
    never_in_base=("/responses", "/chat/completions", "/completions", "/models"),
    doors={
        "azure": Way(place="/openai/v1", key_header=("api-key", "{key}"), lists=True),
        # it counts calls from call_0 in each answer
        "bedrock-mantle": Way(place="/openai/v1", lists=True, ids="mint"),
    },
    counts_events=True,
    # clients of this dialect send these statuses again and again: docs/protocol.md
    statuses={403: 400, 404: 400},
    judge_replies=("json_schema", "json_object", "tool", "text"),
    has_turns=True,
    names_text=True,
    kept_path="/v1/responses/",
    checks_asked=True,
)
