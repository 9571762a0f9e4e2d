"""The beginning of a call: from a decoded request to an approved one for an upstream, or to a refusal."""

from policy.base import Block
from policy.chain import Chain
from policy.effects import CallInfo, Dispatch, Respond
from protocol import codecs, count_tokens, errors_wire
from protocol.config import DEMO, DEMO_MODELS, Config
from protocol.errors import Forbidden, InvalidRequest, NotFound, PipelineError
from protocol.records import CallRecord
from protocol.request import ChatRequest, Dialect, Endpoint
from protocol.target import Target


def route(config: Config, model: str) -> str:
    """Return the upstream's name for `model`. Raises NotFound."""
    upstream = config.route(model)
    if upstream is None:
        raise NotFound(f"there is no model {model[:100]!r} here; GET /v1/models lists them", code="model_not_found", param="model")
    return upstream


def dispatch(call: CallInfo, config: Config, chain: Chain, request: ChatRequest, upstream: str) -> Dispatch | Respond:
    """Run the request hooks and translate. Raises RequestError where a policy blocks or the upstream's dialect cannot say it."""
    said, who = chain.on_request(request)
    if isinstance(said, Block):
        raise Forbidden(said.message or f"the policy {who!r} blocked this request: {said.reason}", code="blocked_by_policy")
    dialect: Dialect = call.dialect
    if upstream == DEMO:
        dialect = DEMO_MODELS.get(request.model) or call.dialect
    else:
        provider = config.upstreams[upstream]
        dialect = provider.dialect
        if not provider.native_tools and said.tools:
            raise InvalidRequest(f"the model {request.model!r} has no native tool calls, which tools need in this version", param="tools")
    if call.endpoint == "count_tokens":
        if dialect != "anthropic":
            body = count_tokens.encode_count(count_tokens.estimate_tokens(request), estimated=True)
            return Respond(200, {"content-type": "application/json", "x-sluice-estimated": "true"}, body, b"", "complete")
        return Dispatch(upstream, dialect, "count_tokens", None)
    endpoint: Endpoint = "messages" if dialect == "anthropic" else "chat"
    written = codecs.encode_request(said, Target(dialect=dialect), changed=said is not request)
    return Dispatch(upstream, dialect, endpoint, written.body, written.betas)


def refusal(dialect: Dialect, error: PipelineError) -> Respond:
    """The answer to a request that cannot be taken."""
    headers = {"content-type": "application/json"}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if error.error_code == "blocked_by_policy":
        headers["x-should-retry"] = "false"
    body = errors_wire.error_body(dialect, error)
    frame = errors_wire.error_frame(dialect, "invalid_request_error", error.message, error.error_code)
    return Respond(error.http_status, headers, body, frame, error.error_code)


def record(call: CallInfo, request: ChatRequest | None, model: str, upstream: str) -> CallRecord:
    """The first record of a call; `request` is None where it could not be read."""
    return CallRecord(
        call_id=call.call_id, at=call.at, dialect=call.dialect, endpoint=call.endpoint, key=call.key, session=call.session,
        model=model, upstream=upstream, policy=call.policy, policy_revision=call.revision,
        stream=request is not None and request.stream, gateway=call.gateway,
    )  # fmt: skip
