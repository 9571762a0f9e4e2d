"""A session whose request may be sent again, as long as nothing of an answer has gone out.

Theory. The gateway puts each failed attempt onto the call's stream, as it always did. The session
looks up what follows (`routes.failures`, `routes.plan`) and, if something does, begins anew from
the client's own request: the policies run afresh, the request is written for the next target, and
another numbered dispatch goes out. Decisions about texts of the request stay as they are. What the
failed answer left is thrown away; its blocks keep their numbers, so facts about them that come
later change nothing. If an attempt failed inside its answer, the gateway still has that answer
open: the rest of it, up to its one end entry, is withheld (phase `superseded`).
"""

import msgspec

from policy.session import opening
from policy.session.answer import metadata
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import WITHHELD, Mark
from policy.session.effects import CallInfo, Respond, SendUpstream
from policy.session.exchange import Exchange
from policy.session.phases import RESTING
from policy.session.request_side import RequestSide
from policy.session.routes import failures
from policy.session.routes.failures import Failure, of_event
from policy.session.routes.gate import GatedOutbox
from policy.session.routes.plan import NextAttempt, Plan, attempt_row, plan_of
from protocol import errors_wire
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import PipelineError
from protocol.events import UpstreamFailed, Usage
from protocol.records import AttemptRecord
from protocol.request import ChatRequest
from protocol.usage.estimates import BYTES_PER_TOKEN, estimate_tokens
from protocol.usage.prices import TokenPrices, total
from settings.config import Config


class RoutedSide(RequestSide):
    """What a session does about attempts."""

    _plan: Plan | None = None
    """The targets, where the route says more than one upstream."""
    _recalled: bytes | None = None
    """The session's calls, for as long as another attempt may need them."""
    _streamed = 0
    """Characters of the upstream's last answer."""
    _at_eof = False
    """Has the upstream's last answer ended?"""
    _is_rest_due = False
    """Must the end of a replaced answer still come?"""
    _last_failure: Failure | None = None
    _failure: Failure | None = None
    """How the answer failed of a call whose route has one target and one attempt."""
    _lost_usage = Usage()
    """What failed attempts were counted."""

    def _make_outbox(self, call: CallInfo, config: Config) -> Outbox:
        return GatedOutbox(call, config.notices) if call.may_retry else Outbox(call, config.notices)

    def _route(self, request: ChatRequest, body: bytes) -> opening.Destination:
        """As every call's; keeps what another attempt needs. Raises NotFound."""
        plan = self._plan = plan_of(self.call, self._config, request)
        if plan is not None and plan.has_more and isinstance(self.out, GatedOutbox):
            self.out.keep(body)
            self.may_rewrite = True
        return opening.route(
            self.call, self._config, request, plan.target if plan is not None else None
        )

    def calls(self, packed: bytes) -> None:
        """As every session's."""
        if self.may_rewrite:
            self._recalled = packed
        super().calls(packed)

    def error_status(self, status: int, raw: bytes, retry_after: str, *, seq: int = -1) -> Mark:
        """Take an error answer; its meaning is kept, its payload is not forwarded."""
        exchange = self._exchange
        if exchange is None or self._outlasts(seq):
            return WITHHELD
        upstream = exchange.upstream
        failed = metadata.read_failure(
            DIALECTS[upstream.dialect].decode_error(status, raw, retry_after or None),
            exchange.chain,
        )
        opening.note_account(self.out, failed, self._config, upstream.name)
        self._at_eof = self._at_eof or self._plan is not None
        self._ended_with(failures.of_status(status, raw, failed))
        # in a later segment the answer was already paid for
        return self._failed(
            msgspec.structs.replace(failed, status=0) if exchange.segment else failed, seq
        )

    def failed(self, code: str, *, seq: int = -1) -> None:
        """Upstream could not be reached, was silent too long, or sent too much."""
        if self._outlasts(seq, code):
            return
        event = self._unsent(code) or errors_wire.gateway_failure(code)
        self._at_eof = self._at_eof or self._plan is not None
        if code != errors_wire.REPEAT_REFUSED:
            self._ended_with(failures.of_code(code, event))
        self._failed(event, seq)

    def _ended_with(self, failure: Failure) -> None:
        """Take that the upstream's answer failed, whose rest may still come; one that was whole
        stays so."""
        if self._phase in RESTING:
            return
        if self._plan is not None:
            self._plan.fail(failure)
        elif self._failure is None:
            self._failure = failure

    def _fails_over(self, event: UpstreamFailed, seq: int) -> bool:
        """Let another attempt follow the one that failed with `event`, at the chunk `seq`; False
        where the client is to be told."""
        plan, exchange, out = self._plan, self._exchange, self.out
        if plan is None:
            self._ended_with(of_event(event))
            return False
        if exchange is None or exchange.segment or plan.is_recorded or self._phase in RESTING:
            return False
        failure = plan.failure or of_event(event)
        plan.fail(failure)
        is_kept = isinstance(out, GatedOutbox) and out.body is not None
        if not is_kept or self._phase not in ("answering", "approved") or self._is_bound(exchange):
            return False
        left_s = self._config.limits.call_s - (out.at - self.call.at) / 1000
        step = plan.next(failure, left_s)
        if step is None:
            return False
        exchange.blocks.abandon()
        spent = exchange.usage.spent
        self._lost_usage = self._lost_usage.plus(spent)
        out.records.append(self._costed(plan.record(out.at, seq, spent, is_chosen=False), spent))
        self._try(plan, step, exchange, failure, seq)
        return True

    def _is_bound(self, exchange: Exchange) -> bool:
        """Must this answer be kept though nothing of it has gone out?"""
        return False

    def _try(
        self, plan: Plan, step: NextAttempt, before: Exchange, failure: Failure, seq: int
    ) -> None:
        call, out = self.call, self.out
        assert isinstance(out, GatedOutbox) and out.body is not None
        out.drop_opening()
        plan.go(step, seq, out.at)
        self._last_failure = failure
        if self._phase == "answering":
            self._is_rest_due = not self._at_eof
            self._take("ask_again")
        try:
            request = self.request = opening.rebuilt(
                CLIENTS[call.dialect].decode_request(out.body, endpoint=call.endpoint)
            )
            chain = self._make_chain(request)
            if self._recalled is not None:
                self._recall(self._recalled)
            approved = self._approve(chain, request)
            opening.check_model(approved, plan.model)
            upstream = opening.route(call, self._config, approved, plan.target)
            blocks = self._make_blocks(chain, request.without_history())
        except PipelineError as error:
            # what a policy blocks stays blocked, whoever would be asked next
            plan.take_back(failure)
            self._refuse(error)
            return
        blocks.slots.go_on_from(before.blocks.slots)
        exchange = self._exchange = Exchange(
            chain, upstream, approved, blocks, offset=blocks.slots.next_index
        )
        self._begin_attempt(seq)
        if DIALECTS[upstream.dialect] is DIALECTS[before.upstream.dialect] and self._stored:
            exchange.put_turns(self._stored)
        self._dispatch(exchange, "")
        if self._is_rest_due and self._phase == "answering":
            self._is_rest_due = False
            self._take("outlast")

    def _numbered(self, sent: SendUpstream | Respond) -> SendUpstream | Respond:
        exchange = self._exchange
        if self._plan is None or not isinstance(sent, SendUpstream):
            return sent
        if exchange is not None and exchange.segment:
            # a turn that goes on is no attempt: nothing failed
            return sent
        return self._plan.stamped(
            sent, self.out.body if isinstance(self.out, GatedOutbox) else None
        )

    def _begin_attempt(self, seq: int) -> None:
        """Forget what the answer before came to, whose last chunk was `seq`."""
        self._at_eof = False

    def _skips(self, error: PipelineError) -> bool:
        """Pass over a target whose dialect cannot say the request; False where no attempt was made
        before: the client is told what it cannot ask."""
        plan, last = self._plan, self._last_failure
        if plan is None:
            return False
        event = last.event if last else UpstreamFailed("invalid_request_error", error.message)
        plan.fail(Failure("untranslatable", event))
        if self._fails_over(event, plan.first_seq - 1):
            return True
        if last is not None:
            self._failed(event)
        return last is not None

    def _outlasts(self, seq: int, code: str = "") -> bool:
        """Was this the end of an answer that another attempt has replaced?"""
        if self._phase != "superseded" or code == "call_deadline":
            return False
        self._take("go_on")
        if self._plan is not None:
            self._plan.begin_behind(seq)
        self._begin_attempt(seq)
        return True

    def _unsent(self, code: str) -> UpstreamFailed | None:
        """Return how the attempt before failed, where the gateway did not send this one: it had
        sent too many."""
        plan, last = self._plan, self._last_failure
        if code != errors_wire.REPEAT_REFUSED or plan is None or last is None:
            return None
        plan.take_back(last)
        return last.event

    def last_attempt(self, at: int, seq: int) -> list[AttemptRecord]:
        """Return the row of the last attempt, with the whole turn that it gave, if there were
        several or it failed: the only one of a call that went well is the call itself."""
        plan, exchange, failure = self._plan, self._exchange, self._failure
        if exchange is None:
            return []
        if plan is None:
            if exchange.segment or failure is None or self.may_defer or self.may_continue:
                return []
            alone = exchange.upstream.name, exchange.model
            spent = exchange.usage.spent
            return [self._costed(attempt_row(self.call, *alone, failure, at, seq, spent), spent)]
        if plan.is_recorded or not (plan.number or plan.failure):
            return []
        is_chosen = isinstance(self.out, GatedOutbox) and self.out.is_open
        spent = exchange.usage.spent
        row = self._costed(plan.record(at, seq, spent, is_chosen=is_chosen), spent)
        if plan.failure is None and not self._at_eof and self._phase not in RESTING:
            # nobody waited for its end
            row = msgspec.structs.replace(row, outcome=None, status=None)
        return [row]

    @property
    def retries(self) -> int:
        """How many attempts were made before this one."""
        return self._plan.number if self._plan is not None else 0

    @property
    def route_headers(self) -> dict[str, str]:
        """What the client is told of where its answer comes from, if a route says more than
        that."""
        return self._plan.headers() if self._plan is not None else {}

    # --- what the attempts took ---

    @property
    def spent(self) -> Usage:
        """The usage that upstream counted, whether or not the client saw it."""
        spent = self._exchange.usage.spent if self._exchange is not None else Usage()
        return spent if self._last_failure is None else self._lost_usage.plus(spent)

    @property
    def estimated(self) -> Usage | None:
        """The best estimate of the call's usage if its upstream never got to count its last answer;
        None if it did."""
        exchange = self._exchange
        missing = exchange.usage.missing(self._streamed) if exchange is not None else None
        return None if missing is None else self.spent.plus(missing)

    @property
    def price(self) -> TokenPrices | None:
        """What the model costs that was asked, None if nobody knows."""
        exchange = self._exchange
        if exchange is not None:
            return self.cost_of(exchange.model)
        return None if self.request is None else self.cost_of(self.request.model)

    def _costed(self, row: AttemptRecord, usage: Usage) -> AttemptRecord:
        """Return the row of an attempt with its cost, where it took something that has a price."""
        price = self.cost_of(row.model) if total(usage) else None
        return msgspec.structs.replace(row, cost_nanousd=price.cost(usage)) if price else row

    def cost_of(self, model: str) -> TokenPrices | None:
        """Return what a model costs, None if nobody knows."""
        return self._config.cost_of(model)

    def cost_of_judge(self, model: str) -> TokenPrices | None:
        """Return what a judge's model costs, None if nobody knows."""
        return self._config.cost_of(self._config.judge_model(model))

    def uncounted(self) -> Usage:
        """Return the usage of an answer of which its upstream counted nothing, by what was asked
        and streamed. One that the upstream refused took nothing."""
        exchange = self._exchange
        if exchange is None or self._phase == "approved":
            # nothing was sent
            return Usage()
        if self.status >= 400 or self.call.endpoint == "count_tokens":
            return Usage()
        asked = exchange.usage.asked or estimate_tokens(exchange.request)
        return Usage(asked, round(self._streamed / BYTES_PER_TOKEN) or None)
