"""Which target is asked after a failure, and what a session makes of it."""

import itertools
import json
from typing import Any

import pytest
from pydantic import ValidationError

from policy.base import Block, Policy
from policy.session.choosing import session_of
from policy.session.effects import Respond, SendUpstream
from policy.session.routes.failures import FAILURES, Failure, Outcome, read_retry_after
from policy.session.routes.plan import Plan
from policy.session.session import Session
from protocol.errors_wire import REPEAT_REFUSED, SUPERSEDED
from protocol.events import MessageStart, TextDelta, UpstreamFailed
from protocol.records import AttemptRecord, EndRecord
from protocol.request import ChatRequest
from settings.config import Config, ModelRoute
from streams.layout import Entry
from tests.support.checks.blocked import answered
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import CALL, call_info, owned, start_of

FAILED = UpstreamFailed("api_error", "it failed")
TWO: Json = {"targets": [{"upstream": "a"}, {"upstream": "b"}]}


def config(prices: Json | None = None, **route: Any) -> Config:
    where = {"a": "openai", "b": "openai", "c": "anthropic"}
    return Config.model_validate(
        {
            "upstreams": {
                name: {"dialect": dialect, "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
                for name, dialect in where.items()
            },
            "models": [{"match": "*", **route}],
            "prices": prices or {},
        }
    )


def plan(route: Json, *, call: str = "c", **more: Any) -> Plan:
    made = ModelRoute.model_validate({"match": "*", **route})
    return Plan(made, call_info(call, **more), "m", may_retry=True)


ONE_MORE = {"connect", "open", "reset", "cut", "error_event", "server", "rate", "money"}


@pytest.mark.parametrize("outcome", sorted(FAILURES))
def test_what_follows_each_failure(outcome: Outcome) -> None:
    def tried(route: Json, after: float | None = None, **more: Any) -> tuple[int, float] | None:
        failure = Failure(outcome, FAILED, retry_after_s=after)
        step = plan(route, **more).next(failure, 100)
        return None if step is None else (step.place, step.wait_s)

    allowed = ONE_MORE | {"untranslatable"}
    assert (tried(TWO) == (1, 0.0)) == (outcome in allowed)
    may = TWO | {"retry": {"uncertain": True, "failover_auth": True}}
    assert (tried(may) == (1, 0.0)) == (outcome in allowed | {"silent", "auth"})
    # a request that may have acted is not sent again
    safe = {"connect", "open", "rate", "money", "untranslatable"}
    assert (tried(TWO, server_tools=("web_search",)) is not None) == (outcome in safe)
    one: Json = {"upstream": "a", "retry": {}}
    again = tried(one)
    assert (again is not None) == (outcome in {"server", "conflict"})
    if again is not None:
        assert again[0] == 0 and 0.375 <= again[1] <= 0.625
    assert (tried(one, 2.0) == (0, 2.0)) == (outcome in {"server", "conflict", "rate"})
    assert tried(one, 6.0) is None and tried(one | {"retry": {"attempts": 1}}, 1.0) is None


def test_attempts_are_bounded_and_waits_grow() -> None:
    made = plan({"upstream": "a", "retry": {"attempts": 4, "max_wait_s": 60}})
    waits = []
    while (step := made.next(Failure("server", FAILED), 100)) is not None:
        waits.append(step.wait_s)
        made.go(step, 1, 1)
    assert len(waits) == 3 and waits[0] < waits[1] < waits[2] <= 2.5
    assert plan(TWO).next(Failure("server", FAILED), 100) is not None
    last = plan({"upstream": "a", "retry": {}})
    assert last.next(Failure("server", FAILED), 0.1) is None, "the call's own time counts"


def test_targets_are_drawn_by_weight_and_always_alike() -> None:
    route = {
        "targets": [{"upstream": "a", "weight": 3}, {"upstream": "b"}],
        "then": [{"upstream": "c"}],
    }
    orders = [ModelRoute.model_validate({"match": "*", **route}).order(str(n)) for n in range(2000)]
    first = sum(order[0].upstream == "a" for order in orders) / 2000
    assert 0.71 < first < 0.79 and {order[-1].upstream for order in orders} == {"c"}
    assert plan(route, call="7").target == plan(route, call="7").target


@pytest.mark.parametrize(
    "text", ["-1", "1e9", "inf", "nan", "Tue, 01 Dec 2026 00:00:00 GMT", "5, 5", "9" * 40, "", "٣"]
)
def test_junk_says_no_time(text: str) -> None:
    assert read_retry_after(text) is None
    assert read_retry_after("3600") == 60 and read_retry_after(" 1.5 ") == 1.5


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ({}, "needs `upstream` or `targets`"),
        (TWO | {"upstream": "c"}, "take `upstream` and `model` out"),
        ({"upstream": "a", "then": [{"upstream": "x"}]}, "the upstream 'x' is not under upstreams"),
        ({"upstream": "a", "retry": {"attempts": 9}}, "less than or equal to 8"),
    ],
)
def test_routes_that_cannot_be(route: Json, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        config(**route)


def test_trust_does_not_fall_unless_it_may() -> None:
    raw = config(**TWO).model_dump(mode="json", exclude_unset=True)
    raw["upstreams"]["b"]["trust"] = "untrusted"
    for route in (TWO, {"upstream": "a", "then": [{"upstream": "b"}]}):
        raw["models"] = [{"match": "*", **route}]
        with pytest.raises(ValidationError, match="'b', which is untrusted"):
            Config.model_validate(raw)
        raw["models"][0]["allow_less_trust"] = True
        Config.model_validate(raw)
    raw["models"] = [{"match": "*", "upstream": "b", "then": [{"upstream": "a"}]}]
    Config.model_validate(raw)


class Call:
    """A call in a session; `sent`: the requests of its attempts."""

    def __init__(self, route: Json, *policies: Policy, streams: bool = True, **more: Any) -> None:
        info = call_info("c", may_retry=True, **more)
        self.session: Session = session_of(info, policies, config(**route))
        self.seq, self.sent, self.records = 1, list[SendUpstream](), list[Any]()
        self.outputs: list[Any] = []
        body: Json = {
            "model": "m",
            "stream": streams,
            "messages": [{"role": "user", "content": "go"}],
        }
        self.session.begin(as_json(body))
        self.take()

    def take(self) -> "Call":
        effects = self.session.drain()
        self.sent += [o for o in effects.outputs if isinstance(o, SendUpstream)]
        self.outputs += [o for o in effects.outputs if not isinstance(o, SendUpstream)]
        self.records += effects.records
        return self

    def status(self, status: int, body: bytes = b"{}", after: str = "") -> "Call":
        self.session.error_status(status, body, after, seq=self.seq)
        self.seq += 1
        return self.take()

    def failed(self, code: str) -> "Call":
        self.session.failed(code, seq=self.seq)
        self.seq += 1
        return self.take()

    def chunks(self, *chunks: bytes, ends: bool = True) -> "Call":
        for chunk in chunks:
            self.session.chunks(self.seq, [chunk])
            self.seq += 1
        if ends:
            self.session.eof(self.seq)
            self.seq += 1
        return self.take()

    @property
    def said(self) -> str:
        return "".join(o.text for o in self.outputs if isinstance(o, TextDelta))

    @property
    def attempts(self) -> list[tuple[Any, ...]]:
        rows = [r for r in self.records if isinstance(r, AttemptRecord)]
        rows += self.session.last_attempt(self.session.out.at, self.seq - 1)
        return [(r.attempt, r.upstream, r.outcome, r.status, r.chosen) for r in rows]


GOOD = answered("openai", "Hello.")
START = GOOD[0].replace(b"Hello.", b"")
"""Of another answer: a beginning without content."""
BROKEN = b"data: {no json}\n\n"
ERROR = b'data: {"error": {"message": "busy", "type": "server_error"}}\n\n'


@pytest.mark.parametrize(
    "way", ["refused", "status", "event", "cut", "start and error", "start and junk"]
)
def test_another_target_answers_in_place_of_one_that_failed(way: str) -> None:
    call = Call(TWO)
    first = call.sent[0].upstream
    match way:
        case "refused":
            call.failed("upstream_refused")
        case "status":
            call.status(503)
        case "event":
            call.chunks(ERROR, ends=False)
        case "cut":
            call.chunks(START, ends=False).failed("upstream_cut")
        case "start and error":
            call.chunks(START, ERROR, ends=False)
        case _:
            call.chunks(START, BROKEN, ends=False)
    assert len(call.sent) == 2 and not call.outputs, "and the client has seen nothing"
    assert call.sent[1].attempt == 1 and call.sent[1].upstream != first and call.sent[1].body
    if way in ("event", "start and error", "start and junk"):
        # the rest of the first answer, and its end
        call.chunks(GOOD[0], GOOD[1], ends=False).failed(SUPERSEDED)
        assert not call.outputs
    call.chunks(*GOOD)
    assert call.said == "Hello." and call.session.state == "ENDED"
    assert sum(isinstance(o, MessageStart) for o in call.outputs) == 1
    assert [row[0] for row in call.attempts] == [0, 1] and call.attempts[1][2:] == ("ok", 200, True)
    assert call.session.route_headers["x-sluice-attempts"] == "2"


def test_nothing_is_tried_again_once_something_went_out() -> None:
    call = Call(TWO).chunks(GOOD[0], ends=False)
    assert call.said
    call.failed("upstream_cut")
    assert len(call.sent) == 1 and call.session.state == "FAILED"


def test_an_exhausted_chain_says_so() -> None:
    call = Call(TWO).status(503).status(500).status(500)
    end = call.outputs[-1]
    assert isinstance(end, Respond) and end.headers["x-should-retry"] == "false"
    assert [row[2] for row in call.attempts] == ["server"] * len(call.sent)
    soon = Call(TWO | {"retry": {"attempts": 2}}).status(503).status(429, after="7")
    assert soon.outputs[-1].headers["retry-after"] == "7"
    assert "x-should-retry" not in soon.outputs[-1].headers
    junk = Call(TWO | {"retry": {"attempts": 2}}).status(503).status(429, after="1e9")
    assert junk.outputs[-1].headers["x-should-retry"] == "false"


def test_nobody_says_how_an_attempt_ended_that_nobody_waited_for() -> None:
    call = Call(TWO).status(503)
    assert [row[2:] for row in call.attempts] == [("server", 503, False), (None, None, False)]
    call.chunks(*GOOD)
    assert call.attempts[1][2:] == ("ok", 200, True)


def test_an_attempt_that_the_gateway_does_not_make_is_none() -> None:
    call = Call(TWO).status(503, as_json({"error": {"message": "down"}})).failed(REPEAT_REFUSED)
    assert call.outputs[-1].status == 503 and b"down" in call.outputs[-1].body
    assert [row[:3:2] for row in call.attempts] == [(0, "server")]


def test_another_dialect_and_another_model() -> None:
    route = {"upstream": "a", "model": "big", "then": [{"upstream": "c", "model": "claude-x"}]}
    call = Call(route, streams=False).status(529)
    assert [json.loads(s.body or b"{}")["model"] for s in call.sent] == ["big", "claude-x"]
    assert [s.dialect for s in call.sent] == ["openai", "anthropic"]
    call.session.body(2, answered("anthropic", "Hi.", streams=False)[0])
    assert call.take().said == "Hi."
    assert call.session.route_headers["x-sluice-model"] == "claude-x"


def test_a_turn_that_goes_on_after_another_attempt_is_no_attempt() -> None:
    route: Json = {"upstream": "a", "then": [{"upstream": "c", "model": "claude-x"}]}
    call = Call(route, server_tools=("web_search",)).failed("upstream_refused")
    frames = answered("anthropic", "So far.")
    call.chunks(*(f.replace(b'"end_turn"', b'"pause_turn"') for f in frames))
    assert [(s.attempt, json.loads(s.body or b"{}")["model"]) for s in call.sent[1:]] == [
        (1, "claude-x"),
        (0, "claude-x"),
    ]
    call.chunks(*frames)
    assert call.session.state == "ENDED"
    assert [row[:3] for row in call.attempts] == [(0, "a", "connect"), (1, "c", "ok")]


def test_a_call_costs_what_the_models_cost_that_answered() -> None:
    route: Json = {"upstream": "a", "model": "free", "then": [{"upstream": "b", "model": "big"}]}
    settings = config(**route, prices={"big": {"input": 3, "output": 15}})
    assert settings.judge_model("judge") == "free"
    body = as_json({"model": "m", "messages": [{"role": "user", "content": "go"}]})
    session = session_of(call_info(CALL, may_retry=True), (), settings)
    call = owned(start_of(body), session)
    call.begin(body)
    # nobody knows what the first costs, but it took nothing
    call.feed_entry(Entry(1, 2, "failed", text="upstream_refused"))
    answer = answered("openai", "Yes.", streams=False)[0]
    whole = json.loads(answer) | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10}}
    call.feed_entry(Entry(2, 3, "body", [as_json(whole)]))
    end = call.end_records("complete", 1, 4)[-1]
    assert isinstance(end, EndRecord)
    assert (end.charged_tokens, end.cost_nanousd) == (10**6 + 10, 3 * 10**9 + 150_000)


def test_a_policy_that_blocks_the_request_later_ends_it() -> None:
    times = itertools.count()

    class Counts(Policy):
        """Blocks the request when it is asked a second time."""

        name = "counts"

        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            return Block("no") if next(times) else None

    call = Call(TWO, Counts()).status(503)
    assert len(call.sent) == 1 and call.outputs[-1].status == 403


def test_a_replay_decides_alike() -> None:
    def run() -> Call:
        call = Call(TWO).chunks(ERROR, ends=False).failed(SUPERSEDED).status(503, after="1")
        return call.chunks(*GOOD)

    first, second = run(), run()
    assert first.session.out.hash.digest == second.session.out.hash.digest
    assert [s.wait_ms for s in first.sent] == [0, 0, 1000]


def test_old_gateways_are_asked_for_one_attempt() -> None:
    info = call_info("c")
    session = session_of(info, (), config(**TWO))
    session.begin(as_json({"model": "m", "messages": [{"role": "user", "content": "go"}]}))
    session.drain()
    session.error_status(503, b"{}", "")
    assert isinstance(session.drain().outputs[0], Respond)
