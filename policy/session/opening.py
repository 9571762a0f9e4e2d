"""The beginning of a call: from a decoded request to an approved one for an upstream, or to a
refusal."""

from collections.abc import Container, Sequence
from hashlib import sha256

import msgspec

from policy.base import Block, Context, Policy
from policy.session import nonces
from policy.session.answer.outbox import Outbox
from policy.session.chain import Chain
from policy.session.effects import CallInfo, Respond, SendUpstream
from policy.session.tracing import TracedChain
from protocol import codecs
from protocol.bounds import MAX_CHAINED, MAX_LOOKUPS
from protocol.bytes.json_strict import dumps
from protocol.conversations import sessions
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.dialects.turns import BaseTurnBuilder, WantedTurns
from protocol.errors import Forbidden, InvalidRequest, NotFound, PipelineError, PolicyFailed
from protocol.events import UpstreamFailed
from protocol.records import CallRecord, CallStart, EventRecord, Record
from protocol.request import ChatRequest, DialectName, ToolUsePart
from protocol.requests.addresses import refuse_private
from protocol.stored_answers import StoredAnswers, WantedAnswers
from protocol.stored_answers import refusal as refusal_of
from protocol.target import Target, Translated
from protocol.usage.estimates import estimate_tokens
from settings.config import BUILT_IN, DEMO_MODELS, SCRIPTS, Config
from settings.routes import RouteTarget

_encode = msgspec.json.Encoder().encode


class Destination(msgspec.Struct, frozen=True):
    """Where a call goes: the provider's name, and what its requests are written for."""

    name: str
    dialect: DialectName
    target: Target
    private_urls: bool = False
    """URLs of the operator's own network may stand in a request."""
    passes_sealed: bool = True
    """May what only the provider can read go to the client?"""
    counts: bool = True
    """Can it count tokens, if its dialect does?"""
    model: str = ""
    """What it calls the model, where that is not the client's word."""


def route(
    call: CallInfo, config: Config, request: ChatRequest, asked: RouteTarget | None = None
) -> Destination:
    """Return the upstream for the request's model: `asked`, if a route says whose
    turn it is. Raises NotFound."""
    model, matched = request.model, config.route_of(request.model)
    name = matched.upstream if matched is not None else config.route(model)
    renamed = ""
    if asked is not None:
        name, renamed = asked.upstream, asked.model or ""
    if name is None:
        raise NotFound(config.unknown_model(model), code="model_not_found", param="model")
    allowed_betas = frozenset(config.betas)
    if name in BUILT_IN:
        dialect: DialectName = (
            SCRIPTS[name] if name in SCRIPTS else DEMO_MODELS.get(model)
        ) or call.dialect
        return Destination(
            name,
            dialect,
            Target(
                dialect=dialect,
                families=frozenset(call.server_tools),
                betas=call.betas,
                allowed_betas=allowed_betas,
            ),
            model=renamed,
        )
    provider = config.upstreams[name]
    target = Target(
        dialect=provider.dialect,
        native_tools=provider.native_tools,
        guided=provider.guided,
        families=frozenset(call.server_tools),
        added_tools=matched.server_tools if matched else (),
        added_mcp_servers=matched.mcp_servers if matched else (),
        betas=call.betas,
        allowed_betas=allowed_betas,
        nonce="" if provider.native_tools else nonces.derived(call.nonce, nonces.TOOLS),
        unknown=frozenset(config.unknown),
        ids=(provider.door != "plain" and provider.way.ids) or DIALECTS[provider.dialect].ids,
    )
    # asked for where it matters: a property of the configuration takes as long as the rest of this
    counts = call.endpoint != "count_tokens" or provider.counts
    return Destination(
        name,
        provider.dialect,
        target,
        config.private_urls == "pass",
        provider.sealed == "allow",
        counts,
        renamed,
    )


def chain_of(call: CallInfo, policies: Sequence[Policy], context: Context, config: Config) -> Chain:
    """Return the series for a call, as its policies were loaded. Raises PolicyFailed."""
    exact = config.exact_keys, config.exact_integers
    if call.tracer is None:
        return Chain(policies, context, searches=config.text_calls == "decide", exact=exact)
    return TracedChain(
        call.tracer, policies, context, searches=config.text_calls == "decide", exact=exact
    )


_NAMED = 10
"""Policies that an error lists."""


def no_policy(
    name: str, *, asked: str, key_policies: Sequence[str], known: Container[str]
) -> PipelineError:
    """Return the error for a policy that the configuration has not, or the key may not use. `asked`
    is the request's header, empty for the key's default; `key_policies` are the key's policies,
    `known` those of the configuration.
    """
    usable = [repr(policy) for policy in key_policies if policy in known]
    may = (
        f"may use {', '.join(usable[:_NAMED])}{' and more' if len(usable) > _NAMED else ''}"
        if usable
        else "may use none of the policies here"
    )
    if name in known:
        return Forbidden(
            f"this key may not use the policy {name!r}; it {may}",
            code="policy_forbidden",
            param="x-sluice-policy",
        )
    if asked:
        return NotFound(
            f"there is no policy {name!r}; this key {may}",
            code="policy_not_found",
            param="x-sluice-policy",
        )
    message = f"there is no policy {name!r}, the default of this key, which {may}"
    return NotFound(
        f"{message}: name one in the header x-sluice-policy, or create a new key",
        code="policy_not_found",
    )


def approve(chain: Chain, request: ChatRequest, out: Outbox) -> ChatRequest:
    """Run the request hooks. Raises Forbidden where a policy blocks; what that says less than why
    is on record besides."""
    outcome, who = chain.on_request(request)
    out.note_findings(chain.policies)
    if isinstance(outcome, Block):
        why = outcome.message or f"the policy {who!r} blocked this request: {outcome.reason}"
        if (message := out.notices.blocked_request(why, outcome)) != why:
            out.note("blocked", 0, why)
        raise Forbidden(message, code="blocked_by_policy")
    chain.approve(outcome)
    return outcome


def check_model(request: ChatRequest, model: str) -> None:
    """Refuse a turn that goes on with another model than it began with. Raises PolicyFailed."""
    if request.model != model:
        raise PolicyFailed("a policy changed the model in the middle of a turn")


def kept_answers(call: CallInfo, body: bytes | None) -> WantedAnswers | None:
    """Return what must be looked up in the record before a request can be read at all."""
    keeper = CLIENTS[call.dialect].keeper()
    return keeper.wanted(body) if body is not None and keeper is not None else None


_NAMED_RESULTS = 10


def continued(
    call: CallInfo, body: bytes, stored_answers: StoredAnswers, config: Config, out: Outbox
) -> bytes:
    """Return the body with the conversation that it goes on with; what was put in is on record.
    Raises InvalidRequest, AuditUnavailable."""
    keeper = CLIENTS[call.dialect].keeper()
    assert keeper is not None
    most = config.limits.body_bytes
    refused = refusal_of(stored_answers, most_answers=MAX_CHAINED, most_bytes=most)
    if refused is None and not (
        stored_answers.answers or stored_answers.before or stored_answers.items
    ):
        return body
    whole = keeper.with_kept(body, stored_answers) if refused is None else b""
    if len(whole) > most:
        refused = refusal_of(StoredAnswers("bytes"), most_answers=MAX_CHAINED, most_bytes=most)
    if refused is not None:
        raise refused
    put = dumps([stored_answers.before, stored_answers.items])
    what = (
        f"{len(stored_answers.before)} items of {stored_answers.answers} earlier answers stand before the input,"
        f" {len(stored_answers.items)} in it"
    )
    out.note("continued", 0, f"{what}; {len(put)} bytes, sha256 {sha256(put).hexdigest()}")
    if stored_answers.before and (strange := keeper.strange(body, stored_answers)):
        more = f" and {len(strange) - _NAMED_RESULTS} more" if len(strange) > _NAMED_RESULTS else ""
        named = ", ".join(repr(reference[:80]) for reference in strange[:_NAMED_RESULTS])
        out.note(
            "strange_result",
            0,
            f"results of tool calls that the client was not given: {named}{more}",
        )
    return whole


def begun(request: ChatRequest, stored_answers: StoredAnswers | None) -> ChatRequest:
    """Return a client's request as one that holds its whole conversation. Raises InvalidRequest
    where it lets a call run that nobody decided: the client may have written the provider's
    question itself."""
    state, keeper = request.state, CLIENTS[request.dialect].keeper()
    if (
        state is not None
        and state.lets_run
        and keeper is not None
        and (undecided := keeper.undecided(request, stored_answers or StoredAnswers()))
    ):
        message = (
            "the input approves a call that this key was not asked about in this form, or whose"
            f" record is gone: {undecided[:80]!r}"
        )
        raise InvalidRequest(message, code="approval_not_found", param="input")
    return rebuilt(request) if stored_answers is not None else request


def rebuilt(request: ChatRequest) -> ChatRequest:
    """Return a request, read from what `continued` gave, as one that holds its whole
    conversation."""
    if request.state is None or not request.state.previous:
        return request
    return msgspec.structs.replace(
        request, state=msgspec.structs.replace(request.state, previous="", is_rebuilt=True)
    )


def lookup(call: CallInfo, upstream: Destination, request: ChatRequest) -> WantedTurns | None:
    """The turns that must be looked up in the record, by the last tool calls of the request and its
    answers without calls: this client cannot send them back whole, or the gateway has put them
    there."""
    lacks_seals = request.state is not None and (
        request.state.is_rebuilt or not request.state.keeps_seals
    )
    is_due = call.dialect != upstream.dialect or lacks_seals
    if not is_due or upstream.name in BUILT_IN or not upstream.target.native_tools:
        return None
    if DIALECTS[upstream.dialect].turns is None:
        return None
    ids: dict[str, None] = {}
    answers: dict[str, None] = {}
    for turn in request.turns:
        called = (
            [p.id for p in turn.parts if isinstance(p, ToolUsePart) and p.id]
            if turn.role == "assistant"
            else []
        )
        ids |= dict.fromkeys(called)
        if turn.answer and not called:
            answers[turn.answer] = None
    wanted = WantedTurns(upstream.dialect, tuple(ids)[-MAX_LOOKUPS:], tuple(answers)[-MAX_LOOKUPS:])
    return wanted if ids or answers else None


def turn_builder(call: CallInfo, upstream: Destination) -> BaseTurnBuilder | None:
    """Return what builds the turn that is to go on after a pause, where this upstream may pause its
    turn and the client does not know what that is. Only turns with server tools are paused."""
    dialect = DIALECTS[upstream.dialect]
    may_pause = dialect.pauses and not DIALECTS[call.dialect].pauses and bool(call.server_tools)
    turns = dialect.turns if may_pause else None
    return None if turns is None else turns.TurnBuilder()


def dispatch(
    call: CallInfo, upstream: Destination, request: ChatRequest, container: str, *, changed: bool
) -> tuple[SendUpstream | Respond, Translated | None]:
    """Translate an approved request. Raises RequestError where the upstream's dialect cannot say
    it."""
    if not upstream.private_urls:
        refuse_private(request)
    target = (
        upstream.target
        if not container
        else msgspec.structs.replace(upstream.target, container=container)
    )
    dialect = DIALECTS[target.dialect]
    if upstream.model and upstream.model != request.model:
        request, changed = msgspec.structs.replace(request, model=upstream.model), True
    if call.endpoint == "count_tokens":
        client = CLIENTS[call.dialect].token_counts
        assert client is not None
        if not upstream.counts or dialect.token_counts is None:
            body = client.encode_count(estimate_tokens(request), estimated=True)
            return (
                Respond(
                    200,
                    {"content-type": "application/json", "x-sluice-estimated": "true"},
                    body,
                    b"",
                    "complete",
                ),
                None,
            )
        translated = codecs.encode_request(request, target, changed=changed)
        asked = None if translated.body is None else dialect.token_counts.as_count(translated.body)
        return (
            SendUpstream(
                upstream.name,
                target.dialect,
                dialect.asked("count_tokens", request.model),
                asked,
                translated.betas,
            ),
            None,
        )
    endpoint = dialect.asked(
        dialect.streams or dialect.answers if request.stream else dialect.answers, request.model
    )
    translated = codecs.encode_request(request, target, changed=changed)
    return (
        SendUpstream(upstream.name, target.dialect, endpoint, translated.body, translated.betas),
        translated,
    )


_ACCOUNT = {"authentication_error": "upstream_authentication", "billing_error": "upstream_billing"}
"""Failures of the operator's account at a provider, and the kinds of the events that name them:
clients see less."""


def note_account(out: Outbox, failed: UpstreamFailed, config: Config, upstream: str) -> None:
    """Record that a provider rejected the operator's key, and where the configuration says that key
    is, or refused for billing reasons."""
    if (kind := _ACCOUNT.get(failed.kind)) is None or upstream not in config.upstreams:
        return
    place = config.upstreams[upstream].key_place
    key = (
        f"the key in {place}"
        if place
        else "requests without a key (the configuration names no api_key_env)"
    )
    what = (
        f"the provider rejected {key}"
        if kind == "upstream_authentication"
        else f"the provider refused for billing reasons, with {key}"
    )
    out.note(kind, -1, f"{what}; status {failed.status}")


def refusal(dialect: DialectName, error: PipelineError) -> Respond:
    """The answer to a request that cannot be taken."""
    headers = {"content-type": "application/json"}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if error.error_code == "blocked_by_policy":
        headers["x-should-retry"] = "false"
    body = DIALECTS[dialect].error_body(error)
    frame = CLIENTS[dialect].error_frame("invalid_request_error", error.message, error.error_code)
    status = CLIENTS[dialect].statuses.get(error.http_status, error.http_status)
    return Respond(status, headers, body, frame, error.error_code)


def identified(call: CallInfo, request: ChatRequest) -> CallInfo:
    """Return the call with its session: what a header named, or else what the body says."""
    if call.session:
        return call
    session, source = sessions.of_body(request.user, request.extra)
    return msgspec.structs.replace(call, session=session, source=source) if session else call


def records(call: CallInfo, request: ChatRequest | None, model: str, upstream: str) -> list[Record]:
    """The first records of a call: that it began, and what named its session. `request` is None
    where it could not be read."""
    begun: list[Record] = [_record(call, request, model, upstream)]
    if call.source or call.agent or call.parent:
        detail = sessions.detail(call.source, call.agent, call.parent)
        begun.append(
            EventRecord(
                call_id=call.call_id, kind="identified", number=0, at=call.at, detail=detail
            )
        )
    return begun


def _record(call: CallInfo, request: ChatRequest | None, model: str, upstream: str) -> CallRecord:
    return CallRecord(
        call_id=call.call_id,
        at=call.at,
        dialect=call.dialect,
        endpoint=call.endpoint,
        key=call.key,
        session=call.session,
        model=model,
        upstream=upstream,
        policy=call.policy,
        policy_revision=call.revision,
        stream=request is not None and request.stream,
        gateway=call.gateway,
        key_id=call.key_id,
        policy_set=call.policy_set,
        body_sha256=call.body_sha256,
        facts=call.facts,
        start=_encode(
            CallStart(call.nonce, call.betas, call.server_tools, call.project, call.allowed)
        ).decode(),
    )
