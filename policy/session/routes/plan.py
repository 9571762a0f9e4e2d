"""Which target is asked next. Pure: what looks random is drawn from the call's id."""

from typing import NamedTuple

import msgspec

from policy.session.effects import CallInfo, SendUpstream
from policy.session.routes.failures import FAILURES, ONCE, Failure, Outcome
from protocol.events import Usage
from protocol.records import AttemptRecord
from protocol.request import ChatRequest
from settings.config import Config, ModelRoute
from settings.routes import Retry, RouteTarget, draw

_FIRST_WAIT_S, _JITTER = 0.5, 0.25
_LEAST_S = 1.0
"""What must be left of the call's time for another attempt; clocks differ by less."""


class NextAttempt(NamedTuple):
    """The next attempt: which of the targets, and how long it waits."""

    place: int
    wait_s: float = 0.0


class Plan:
    """The targets of one call, and its attempts so far. `may_retry`: its gateway can send more than
    one."""

    def __init__(self, route: ModelRoute, call: CallInfo, model: str, *, may_retry: bool) -> None:
        self.model = model
        """The client's word for it."""
        self._call, self._retry = call, route.retry or Retry()
        self._targets = route.order(call.call_id)
        self._attempts = route.attempts if may_retry else 1
        self._place = self._before = self._wait_ms = 0
        self._seen = set[Outcome]()
        self.number = 0
        """Of this attempt, from 0."""
        self.first_seq = 1
        """The first chunk that can be of it."""
        self.failure: Failure | None = None
        """How this attempt ended, once it failed."""
        self.began_at = call.at
        self.is_recorded = False
        """Is the row of this attempt made?"""

    @property
    def target(self) -> RouteTarget:
        """Whom this attempt asks."""
        return self._targets[self._place]

    @property
    def has_more(self) -> bool:
        """May another attempt follow?"""
        return self.number + 1 < self._attempts

    def next(self, failure: Failure, left_s: float) -> NextAttempt | None:
        """Return what is tried after this failure, with `left_s` of the call's time left; None: the
        client is told."""
        outcome, retry = failure.outcome, self._retry
        rule = FAILURES[outcome]
        is_second = outcome in self._seen and outcome in ONCE
        self._seen.add(outcome)
        if (
            not self.has_more
            or is_second
            or left_s < _LEAST_S
            or (rule.acts and self._call.server_tools)
            or (outcome == "silent" and not retry.uncertain)
            or (outcome == "auth" and not retry.failover_auth)
        ):
            return None
        if rule.other and self._place + 1 < len(self._targets):
            return NextAttempt(self._place + 1)
        if rule.same == "never" or (
            rule.same == "alone" and (len(self._targets) > 1 or failure.retry_after_s is None)
        ):
            return None
        drawn = draw(self._call.call_id, f"wait {self.number}")
        usual_s = _FIRST_WAIT_S * 2**self.number * (1 + _JITTER * (2 * drawn - 1))
        wait_s = usual_s if failure.retry_after_s is None else failure.retry_after_s
        return NextAttempt(self._place, wait_s) if wait_s <= min(retry.max_wait_s, left_s) else None

    def go(self, step: NextAttempt, seq: int, at: int) -> None:
        """Begin the next attempt, whose answer comes behind `seq`."""
        self._before, self._place = self._place, step.place
        self._wait_ms = round(step.wait_s * 1000)
        self.number += 1
        self.first_seq, self.began_at = seq + 1, at + self._wait_ms
        self.failure, self.is_recorded = None, False

    def begin_behind(self, seq: int) -> None:
        """Take that the rest of the answer before came up to `seq`."""
        self.first_seq = seq + 1

    def take_back(self, failure: Failure) -> None:
        """Take that this attempt was not made: the one before failed so, and its row is there."""
        self._place = self._before
        self.number -= 1
        self.failure, self.is_recorded = failure, True

    def fail(self, failure: Failure) -> None:
        """Take how this attempt ended."""
        self.failure = failure

    def is_shown(self) -> None:
        """Take that the row of this attempt is made."""
        self.is_recorded = True

    def stamped(self, sent: SendUpstream, body: bytes | None) -> SendUpstream:
        """Return the request of this attempt; a gateway has the client's `body` for the first one
        alone."""
        if not self.number:
            return sent
        return msgspec.structs.replace(
            sent,
            body=body if sent.body is None else sent.body,
            attempt=self.number,
            wait_ms=self._wait_ms,
        )

    def headers(self) -> dict[str, str]:
        """What the client is told of where its answer comes from."""
        named = {
            "x-sluice-attempts": str(self.number + 1),
            "x-sluice-upstream": self.target.upstream,
        }
        if self.target.model not in (None, self.model):
            named["x-sluice-model"] = str(self.target.model)
        return named

    def ending(self, headers: dict[str, str]) -> dict[str, str]:
        """What an error's headers say besides: that the client need not try what was tried here,
        unless the upstream names a time within a minute."""
        after = self.failure.retry_after_s if self.failure is not None else None
        is_soon = after is not None and float(headers.get("retry-after") or 0) <= after
        return {} if not self.number or is_soon else {"x-should-retry": "false"}

    def record(self, at: int, seq: int, usage: Usage, *, is_chosen: bool) -> AttemptRecord:
        """The row of this attempt, which ended with chunk `seq`. `is_chosen`: it went out."""
        target = self.target
        return attempt_row(
            self._call,
            target.upstream,
            target.model or self.model,
            self.failure,
            at,
            seq,
            usage,
            number=self.number,
            first_seq=self.first_seq,
            began_at=self.began_at,
            is_chosen=is_chosen,
        )


def attempt_row(
    call: CallInfo,
    upstream: str,
    model: str,
    failure: Failure | None,
    at: int,
    seq: int,
    usage: Usage,
    *,
    number: int = 0,
    first_seq: int = 1,
    began_at: int = 0,
    is_chosen: bool = False,
) -> AttemptRecord:
    """The row of an attempt, whose answer ended with chunk `seq` at `at` (Unix ms), as `failure`
    says or well."""
    after = failure.retry_after_s if failure is not None else None
    return AttemptRecord(
        call_id=call.call_id,
        segment=0,
        attempt=number,
        at=at,
        kind="retry" if number else "first",
        upstream=upstream,
        model=model,
        first_seq=first_seq,
        end_seq=max(seq, first_seq - 1),
        chosen=is_chosen,
        outcome=failure.outcome if failure is not None else "ok",
        status=(failure.status if failure is not None else 200) or None,
        ms=max(at - (began_at or call.at), 0),
        retry_after_ms=None if after is None else round(after * 1000),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )


def plan_of(call: CallInfo, config: Config, request: ChatRequest) -> Plan | None:
    """Return the plan for a request, None for one that goes to its only upstream as it is."""
    route = config.route_of(request.model)
    if route is None or not (route.targets or route.then or route.model or route.retry):
        return None
    may_retry = call.may_retry and call.endpoint != "count_tokens"
    return Plan(route, call, request.model, may_retry=may_retry)
