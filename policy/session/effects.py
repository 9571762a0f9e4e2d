"""Effects: what a session asks its worker to do, as values.

Outputs (released events, `Dispatch`, `Respond`) are numbered in one sequence for each call and
hashed. Records and asks are not: they have keys of their own and may be repeated.
"""

from typing import Any, Literal, Protocol

import msgspec

from policy.base import JudgeQuestion
from protocol.conversations.earlier_turns import WantedCalls
from protocol.dialects.turns import WantedTurns
from protocol.events import Event
from protocol.records import CallFacts, Record
from protocol.request import DialectName, Endpoint
from protocol.stored_answers import WantedAnswers

SESSION_VERSION = "13"
"""Part of every policy revision: a change of session behaviour must not take over calls of the old
one."""


class SendUpstream(msgspec.Struct, frozen=True, tag="Dispatch"):
    """Send the request upstream; the client's body as received where `body` is None."""

    upstream: str
    dialect: DialectName
    endpoint: Endpoint
    body: bytes | None
    betas: tuple[str, ...] = ()
    attempt: int = 0
    """Counts the attempts at one answer."""
    wait_ms: int = 0
    """How long the gateway waits before it sends this."""


class Respond(msgspec.Struct, frozen=True, tag=True):
    """The whole answer, instead of released events: `frame` is what goes out where headers are
    already sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    frame: bytes
    reason: str


Output = Event | SendUpstream | Respond


class WantedSegment(msgspec.Struct, frozen=True):
    """The body of the call's request, and the chunks `first_seq` to `last_seq` of its own stream:
    what no session keeps, because few need it again."""

    first_seq: int
    last_seq: int


Wanted = WantedCalls | WantedTurns | WantedAnswers | WantedSegment
"""What a session needs to go on."""


class JudgeRequest(msgspec.Struct, frozen=True):
    """Ask a judge; the answer comes back as `judgement(block, step, ...)`.

    It is also the one argument of a judge's job, as JSON text. Until when an answer is of use is
    not in it, as a judge's clock may be another: a judge goes by what is left of the life of the
    job's text, which Redis counts.
    """

    call_id: str
    block: int
    step: int
    question: JudgeQuestion
    attempt: int = 0
    """Asked again where a judge died over it."""
    is_for_people: bool = False
    """People answer it, by the record that goes with it, and no judge does."""
    key_id: str = ""
    """Of the key whose call it is: if its questions make a model fail, that is its own affair."""


class SessionEffects(msgspec.Struct):
    """What a session wants done since the last `drain`.

    `outputs` have the numbers `number` .. `next - 1`; `digest` is the running hash at `next`.

    `waits` are blocks whose tool call waits for its commit (the record with `notify` is among
    `records`). `end` is the reason with which the answer is complete, or empty. `lookup`: find
    these recorded calls and give them to `calls`, these turns, for `turns`, these kept answers, for
    `answers`, or this part of the call, for `segment`.
    """

    number: int
    next: int
    digest: str
    outputs: list[Output]
    records: list[Record]
    asks: list[JudgeRequest]
    waits: list[int]
    end: str
    lookup: Wanted | None = None


class Tracer(Protocol):
    """Takes what hooks do. It knows the clock."""

    def clock_ns(self) -> int:
        """Return a time that only grows."""

    def hook(
        self, policy: str, hook: str, args: tuple[Any, ...], outcome: object, took_ns: int
    ) -> None:
        """Note that a hook was called with `args` and returned or raised `outcome`."""


class CallInfo(msgspec.Struct, frozen=True):
    """What a session knows of its call besides the body. `at` is Unix ms; `durable` means tool
    calls wait for their commit (G6)."""

    call_id: str
    at: int
    dialect: DialectName
    endpoint: Endpoint
    key: str
    session: str
    nonce: str
    gateway: str
    policy: str
    revision: str
    durable: bool
    max_arguments_bytes: int
    betas: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    key_id: str = ""
    policy_set: str = ""
    body_sha256: bytes | None = None
    facts: CallFacts = CallFacts()
    source: str = ""
    """What named the session (`protocol.conversations.sessions`)."""
    agent: str = ""
    parent: str = ""
    project: tuple[str, ...] = ()
    """What the key's setting and the header name as the project; none where neither does."""
    allowed: tuple[str, ...] = ()
    """Marks of calls that an admin allowed for the key for good (`policy.base.Ask.mark`)."""
    may_retry: bool = False
    """Its gateway can send a request again, to another target too."""
    tracer: Tracer | None = None
    """Receives each hook call, for a call that has debug lines."""


State = Literal["ACTIVE", "ENDED", "FAILED"]
