"""One answer through decoder, policy session and encoder to an official SDK, without processes: for
cases of one protocol fault each."""

import json
from collections.abc import Sequence
from typing import Any, Self

from policy.base import ALLOW, Block, Context, Judgement, Policy, ToolCall, Verdict
from policy.session.choosing import session_of
from policy.session.effects import (
    JudgeRequest,
    Output,
    Respond,
    SendUpstream,
    Wanted,
    WantedSegment,
)
from protocol.dialects.table import CLIENTS
from protocol.dialects.turns import StoredTurn
from protocol.events import Event
from protocol.records import Record, ToolCallRecord
from protocol.request import DialectName
from protocol.server_tools.data import table
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.checks.projection import told_completion, told_message
from tests.support.clients.sdk_answers import WAYS, Direct, Way, sent
from tests.support.json_values import Json, as_json
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.recordings import Recording
from tests.support.upstreams.turns import events
from tests.support.worker_calls import call_info

UPSTREAMS = {
    d: {"dialect": d, "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
    for d in ("openai", "anthropic")
}
MODEL: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-sonnet-4-5"}
CONFIG = Config.model_validate(
    {
        "upstreams": UPSTREAMS,
        "models": [
            {"match": "gpt-*", "upstream": "openai"},
            {"match": "claude-*", "upstream": "anthropic"},
        ],
    }
)
direct = Direct()


class Watch(Policy):
    """Sees every call; denies those whose arguments have the word."""

    name = "watch"

    def __init__(self, deny: str = "") -> None:
        self.deny = deny
        self.seen: list[ToolCall] = []

    def for_call(self, context: Context) -> Self:
        """Note into the test's own list."""
        mine = super().for_call(context)
        mine.seen = self.seen
        return mine

    def on_tool_call(self, call: ToolCall) -> Verdict:
        self.seen.append(call)
        return Block("denied") if self.deny and self.deny in call.arguments else ALLOW

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """Name, executor and arguments of what it saw."""
        return [(c.name, c.executor, c.value) for c in self.seen]


class Answer:
    """One call. Feed it upstream answers; `outputs` are what its worker is to do, `data` is what
    its client gets."""

    def __init__(
        self,
        upstream: DialectName,
        client: DialectName,
        *,
        streams: bool = True,
        policies: Sequence[Policy] = (),
        stored: Sequence[StoredTurn] = (),
        config: Config = CONFIG,
        durable: bool = False,
        **request: Any,
    ) -> None:
        info = call_info(
            "01990000-0000-7000-8000-00000000abcd",
            client,
            nonce="nonce",
            durable=durable,
            server_tools=tuple(table().families),
        )
        self.client, self.outputs, self.records = client, list[Output](), list[Record]()
        self.waits, self.asks = list[int](), list[JudgeRequest]()
        self.session = session_of(info, policies, config)
        options = (
            {"stream_options": {"include_usage": True}} if streams and client == "openai" else {}
        )
        most, said = (
            ("max_output_tokens", "input") if client == "responses" else ("max_tokens", "messages")
        )
        model = MODEL.get(upstream, f"{upstream}-x")
        asked = {
            "model": model,
            most: 9_000,
            "stream": streams,
            said: [{"role": "user", "content": "go"}],
            **options,
        }
        self.body = as_json(asked | request)
        self.session.begin(self.body)
        self._seq = 1
        self._fed = dict[int, bytes]()
        if self._take():
            self.session.turns(stored)
            self._take()

    def _take(self) -> Wanted | None:
        taken = self.session.drain()
        self.outputs += taken.outputs
        self.records += taken.records
        self.waits += taken.waits
        self.asks += taken.asks
        if isinstance(taken.lookup, WantedSegment):
            seqs = range(taken.lookup.first_seq, taken.lookup.last_seq + 1)
            self.session.segment(self.body, [self._fed[n] for n in seqs if n in self._fed])
            return self._take()
        return taken.lookup

    def feed(self, body: bytes | Sequence[bytes], *, streams: bool = True) -> "Answer":
        """Take an upstream's whole answer, or its chunks."""
        whole = [body] if isinstance(body, bytes) else body
        for chunk in events(body) if streams and isinstance(body, bytes) else whole:
            self._fed[self._seq] = chunk
            if streams:
                self.session.chunks(self._seq, [chunk])
            else:
                self.session.body(self._seq, chunk)
            self._seq += 1
            self._take()
        if streams:
            self.session.eof(self._seq)
            self._seq += 1
        self._take()
        return self

    def commit(self, *, ok: bool = True) -> "Answer":
        """Say that all records that are waited for are durable."""
        while self.waits:
            self.session.committed(self.waits.pop(0), "" if ok else "audit_unavailable", 1)
            self._take()
        return self

    def fail(self, code: str = "upstream_unreachable") -> "Answer":
        """Say that upstream could not be asked."""
        self.session.failed(code, seq=self._seq)
        return self._passed()

    def refuse(self, status: int, body: bytes = b"{}") -> "Answer":
        """Take an error answer of upstream."""
        self.session.error_status(status, body, "", seq=self._seq)
        return self._passed()

    def judge(self, probability: float) -> "Answer":
        """Answer all open questions."""
        while self.asks:
            ask = self.asks.pop(0)
            self.session.judgement(ask.block, ask.step, Judgement(probability=probability), 1)
            self._take()
        return self

    def _passed(self) -> "Answer":
        self._seq += 1
        self._take()
        return self

    @property
    def dispatched(self) -> list[Any]:
        """The requests as they went upstream."""
        return [
            json.loads(o.body)
            for o in self.outputs
            if isinstance(o, SendUpstream) and o.body is not None
        ]

    @property
    def refused(self) -> list[Respond]:
        """Answers instead of a message."""
        return of_kind(self.outputs, Respond)

    @property
    def data(self) -> bytes:
        """The client's bytes."""
        assert self.session.request is not None and not self.refused
        said: list[Event] = [o for o in self.outputs if not isinstance(o, SendUpstream | Respond)]
        return (
            CLIENTS[self.client]
            .encoder(self.session.request, call_id=self.session.call.call_id, created=1)
            .encode(said)
        )

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """The ledger: names and verdicts of calls."""
        return [(r.name, r.verdict) for r in self.records if isinstance(r, ToolCallRecord)]

    def read(self, way: Way) -> Json:
        """What the SDK makes of it, with nothing to stumble over."""
        told = direct.read(self.client, way, self.data, sent)
        assert told.get("problems", []) == []
        return told_completion(told) if self.client == "openai" else told_message(told)


def every_way(
    upstream: DialectName,
    client: DialectName,
    body: bytes,
    *,
    deny: str = "",
    streams_only: bool = False,
    **request: Any,
) -> list[tuple[Answer, Json, Watch]]:
    """The answer in each way in which a client of the dialect can take it, streamed and whole."""
    found = []
    for streams in (True,) if streams_only else (True, False):
        for way in WAYS[client][streams]:
            watch = Watch(deny)
            answer = Answer(upstream, client, streams=streams, policies=[watch], **request)
            sent_body = (
                body if streams else whole_body(Recording("case", upstream, body, True, {}), direct)
            )
            answer.feed(sent_body, streams=streams)
            found.append((answer, answer.read(way), watch))
    return found
