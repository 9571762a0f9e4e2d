"""The side of a session that is about the request: from the body that the client sent to what goes
upstream, or to a refusal. Must not know: events of an answer.
"""

from collections.abc import Sequence

from policy.base import Context, Policy
from policy.claims.claims import NO_CLAIMS, ProjectClaims
from policy.claims.reading import own_texts
from policy.session import nonces, opening
from policy.session.answer.blocks import CallBlocks
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import Mark
from policy.session.answer.windows import TextWindow
from policy.session.chain import Chain
from policy.session.effects import CallInfo, Respond, SendUpstream, State
from policy.session.exchange import Exchange
from policy.session.phases import PHASES, Phase, Step
from policy.session.reviews import reviewed, without
from protocol.conversations.earlier_turns import EarlierTurns, WantedCalls
from protocol.dialects.table import CLIENTS
from protocol.dialects.turns import Lost, StoredTurn
from protocol.errors import InvalidRequest, PipelineError, key_memory
from protocol.events import UpstreamFailed
from protocol.records import Record
from protocol.request import ChatRequest
from protocol.stored_answers import StoredAnswers
from settings.config import Config


class RequestSide:
    """What a session does until its request is sent: it may first wait for kept answers, then for
    recorded turns."""

    may_defer = False
    """May it send its request to another model, too?"""
    may_rewrite = False
    """May a step have to write the request again?"""
    may_continue = False
    """May it give blocked calls back to their model?"""

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        self.call, self.out = call, self._make_outbox(call, config)
        self.at = self.out.set_time
        """Sets the time of what is taken in next (Unix ms); only records carry it."""
        self.drain = self.out.drain
        """Returns what is wanted since the last time."""
        self.follow, self.ping = self.out.hash.follow, self.out.ping
        self._policies, self._config = policies, config
        self._phase: Phase = "new"
        self.state: State = "ACTIVE"
        self.stop_reason, self.status = "", 200
        self.request: ChatRequest | None = None
        """As the client sent it; without its history once that is not needed any more."""
        self.dropped: tuple[str, ...] = ()
        """Parameters of the request that were left out on its way to another dialect."""
        self._awaiting = b""
        """The request that waits for kept answers."""
        self._exchange: Exchange | None = None
        """There is one once the request is approved."""
        self._reviewed: Sequence[TextWindow] = ()
        """The texts of the request that judges decide about."""
        self._container: str | None = None
        """What a request goes on in that waits for them alone."""
        self._stored: Sequence[StoredTurn] = ()
        self._earlier = EarlierTurns()

    def _make_outbox(self, call: CallInfo, config: Config) -> Outbox:
        return Outbox(call, config.notices)

    def _take(self, step: Step) -> None:
        self._phase = PHASES[self._phase, step]

    # --- what the worker calls ---

    def begin(self, body: bytes | None) -> None:
        """Validate the request, run the request hooks, translate; gives Dispatch or Respond, or
        first asks for kept answers or recorded turns."""
        wanted = opening.kept_answers(self.call, body)
        if wanted is None or body is None:
            self._begin(body, None)
            return
        self._take("wait")
        self._awaiting = body
        self.out.look_up(wanted)

    def answers(self, stored_answers: StoredAnswers) -> None:
        """Take the kept answers that were asked for, and begin."""
        if self.awaits_answers:
            body, self._awaiting = self._awaiting, b""
            self._begin(body, stored_answers)

    @property
    def awaits_answers(self) -> bool:
        """Has it not begun yet?"""
        return self._phase == "waiting"

    @property
    def awaiting_bytes(self) -> int:
        """The size of the request that begins with them."""
        return len(self._awaiting)

    def unbegun(self) -> list[Record]:
        """The first records of a call that ends before it begins."""
        return opening.records(self.call, None, "", "") if self.awaits_answers else []

    def turns(self, stored: Sequence[StoredTurn], *, lost: Sequence[Lost] = ()) -> None:
        """Take the recorded turns that were asked for, and send the request. `lost`: why others are
        missing."""
        exchange = self._exchange
        if exchange is None or self._phase != "approved":
            return
        if "memory" in lost:
            self._refuse(key_memory())
            return
        if lost:
            self.out.note(
                "turns_lost",
                0,
                f"earlier turns may be missing from the request: {', '.join(dict.fromkeys(lost))}",
            )
        self._stored = stored
        container, self.dropped = exchange.put_turns(stored)
        self._send(exchange, container)

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning (unknown policy, a revision that cannot be
        loaded)."""
        self._awaiting = b""
        self.out.records += opening.records(self.call, None, "", "")
        self._refuse(error)

    @property
    def checkpoint_digest(self) -> str:
        """The running hash there."""
        return self.out.hash.checkpoint_digest

    def has_verdict(self, block: int) -> bool:
        """Is the verdict on this block on record?"""
        return block in self.out.recorded

    # --- steps ---

    def _begin(self, body: bytes | None, stored_answers: StoredAnswers | None) -> None:
        call, model, upstream = self.call, "", ""
        try:
            if body is None:
                raise InvalidRequest(
                    "the request body was lost before a worker could read it", code="body_lost"
                )
            if stored_answers is not None:
                body = opening.continued(call, body, stored_answers, self._config, self.out)
            self._take_body(body)
            request = CLIENTS[call.dialect].decode_request(body, endpoint=call.endpoint)
            request = self.request = opening.begun(request, stored_answers)
            model = request.model
            if request.stream:
                self.out.stream()
            call = self.call = opening.identified(call, request)
            destination = self._route(request, body)
            upstream = destination.name
            chain = self._make_chain(request)
            approved = self._approve(chain, request)
            if approved.model != model:
                destination = self._route(approved, body)
                upstream = destination.name
            blocks = self._make_blocks(chain, request.without_history())
            if chain.text_judges and call.endpoint != "count_tokens":
                self._reviewed = reviewed(approved, chain)
        except PipelineError as error:
            self.out.records += opening.records(call, self.request, model, upstream)
            self._refuse(error)
            return
        self._take("approve")
        self._exchange = Exchange(chain, destination, approved, blocks)
        self.out.records += opening.records(call, request, model, upstream)
        for window in self._reviewed:
            blocks.judge(window)
        if call.session and request.tools and any(policy.remembers for policy in self._policies):
            self.out.look_up(WantedCalls(call.session, self._earlier.ids))
        else:
            self._find_turns(self._exchange)

    def _route(self, request: ChatRequest, body: bytes) -> opening.Destination:
        """Where the request goes, which may be sent again as `body`. Raises NotFound."""
        return opening.route(self.call, self._config, request)

    def calls(self, packed: bytes) -> None:
        """Take the session's calls that were asked for, and go on."""
        if self._exchange is not None and self._phase == "approved":
            if self._recall(packed):
                self.out.note("session_lost", 0, "what the session did before could not be read")
            self._find_turns(self._exchange)

    def _recall(self, packed: bytes) -> bool:
        """Tell policies what the session did before; returns whether that is lost."""
        self._earlier.recall(packed)
        is_lost = self._earlier.is_lost
        # where calls go on while the record is away, they do so by what the client sent
        self._earlier.is_lost = is_lost and self.call.durable
        return is_lost

    def _find_turns(self, exchange: Exchange) -> None:
        # policies that remember have it
        self._earlier = EarlierTurns()
        wanted = opening.lookup(self.call, exchange.upstream, exchange.request)
        self.out.look_up(wanted)
        if wanted is None:
            self._send(exchange, "")

    def _send(self, exchange: Exchange, container: str | None) -> None:
        """Send the request once judges have decided about its texts, or answer it. It waits where it
        has a `container` to go on in, which may be empty."""
        self._container = container
        if container is None or not all(window.done for window in self._reviewed):
            return
        self._container = None
        for window in self._reviewed:
            if window.name == "request" and window.verdict == "block":
                what = "did not send your message to the model"
                self._answer(exchange, self.out.notices.judged(window.final, what))
                return
        self._dispatch(exchange, container)

    def _answer(self, exchange: Exchange, text: str) -> None:
        """Answer in place of the model: the answer's side."""
        raise NotImplementedError

    def _take_body(self, body: bytes) -> None:
        """Take the request as it is read."""

    def _make_chain(self, request: ChatRequest) -> Chain:
        call = self.call
        self._earlier = EarlierTurns(request.turns)
        context = Context(
            call.call_id,
            nonces.derived(call.nonce, nonces.POLICIES),
            call.key,
            call.session,
            request,
            claims=self._claims(request),
            earlier=self._earlier,
        )
        return opening.chain_of(call, self._policies, context, self._config)

    def _claims(self, request: ChatRequest) -> ProjectClaims:
        call = self.call
        if any(policy.reads_project for policy in self._policies):
            return ProjectClaims(own_texts(request), *call.project, allowed=call.allowed)
        return ProjectClaims(allowed=call.allowed) if call.allowed else NO_CLAIMS

    def _approve(self, chain: Chain, request: ChatRequest) -> ChatRequest:
        """The request as it goes upstream. Raises Forbidden where a policy blocks it."""
        return opening.approve(chain, request, self.out)

    def _make_blocks(self, chain: Chain, request: ChatRequest) -> CallBlocks:
        return CallBlocks(self.out, chain, request)

    def _refuse(self, error: PipelineError) -> None:
        self._take("stop")
        self.state, self.status = "FAILED", error.http_status
        self.out.put(opening.refusal(self.call.dialect, error))

    def _dispatch(self, exchange: Exchange, container: str) -> None:
        try:
            request = without(exchange.request, self._reviewed, self.out.notices)
            exchange.ask(request)
            sent, translated = opening.dispatch(
                self.call,
                exchange.upstream,
                request,
                container,
                changed=request is not self.request or not request.is_as_written,
            )
        except PipelineError as error:
            if exchange.segment:
                self._failed(UpstreamFailed("api_error", error.message))
            elif not self._skips(error):
                self._refuse(error)
            return
        sent = self._numbered(sent)
        self._take("send")
        if isinstance(sent, Respond):
            self._take("stop")
        exchange.sent(translated)
        if not exchange.segment:
            if translated is not None and translated.dropped:
                self.dropped += tuple(n for n in translated.dropped if n not in self.dropped)
            if self.dropped:
                self.out.note("dropped", 0, ", ".join(self.dropped))
            exchange.collect_turn(opening.turn_builder(self.call, exchange.upstream))
        self.out.put(sent)
        if exchange.continuation is None and self.request is not None:
            self.request = self.request.without_history()
            exchange.forget_history()

    def _numbered(self, sent: SendUpstream | Respond) -> SendUpstream | Respond:
        """Say which attempt a request is: the answer's side."""
        return sent

    def _skips(self, error: PipelineError) -> bool:
        """Go on without a target that cannot be sent the request: the answer's side."""
        raise NotImplementedError

    def _failed(self, event: UpstreamFailed, seq: int = -1) -> Mark:
        """End the answer, of which there may be a part already: the answer's side."""
        raise NotImplementedError
