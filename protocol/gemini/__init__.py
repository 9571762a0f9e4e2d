"""The dialect of the Gemini API and of Vertex AI (generateContent). Only upstreams speak it.
Imports no other dialect."""

from protocol.dialect import Dialect, Way

DIALECT = Dialect(
    package=__name__,
    name="gemini",
    answers="generate",
    streams="stream",
    upstream_paths={
        "generate": "/models/{model}:generateContent",
        # without alt=sse the stream would be one JSON array
        "stream": "/models/{model}:streamGenerateContent?alt=sse",
        "models": "/models",
    },
    key_header=("x-goog-api-key", "{key}"),
    base_ends="/v1beta",
    never_in_base=("/models", "/openai"),
    doors={"vertex": Way(place="/publishers/google")},
    judge_replies=("json_schema", "json_object", "tool", "text"),
    has_turns=True,
    ids="mint",
)
