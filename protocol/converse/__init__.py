"""Bedrock's Converse API, which upstreams alone speak here. Imports no other dialect."""

from protocol.dialect import Dialect, Way

DIALECT = Dialect(
    package=__name__,
    name="converse",
    answers="converse",
    streams="converse-stream",
    upstream_paths={
        "converse": "/model/{model}/converse",
        "converse-stream": "/model/{model}/converse-stream",
    },
    never_in_base=("/model",),
    framing="eventstream",
    error_kind_header="x-amzn-errortype",
    doors={"bedrock": Way()},
    judge_replies=("tool", "json_schema", "text"),
    has_turns=True,
)
