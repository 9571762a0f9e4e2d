"""Plays a case: the session that decides about real calls, with its chain, codecs and encoders, in
this process, with a simulated upstream."""

import time
from collections.abc import Generator, Iterable, Sequence

import msgspec

from policy.base import Judgement, JudgeQuestion
from policy.session.approvals import PEOPLE
from policy.session.effects import Respond, SendUpstream
from protocol.dialects.table import CLIENTS
from protocol.events import ArgumentsDelta, TextDelta
from protocol.records import PASSED, DecisionRecord, JudgementRecord, ScoreRecord, ToolCallRecord
from protocol.request import DialectName
from settings.config import DEMO_MODELS
from sluice.check.sessions import CALL_ID, Fed, Series
from sluice.eval import case_bytes
from sluice.eval.dataset import Case, DatasetError
from workers.policy.call.rendered import join

UNREAD = "unread"
"""The reason of calls with arguments that no rule could look at."""
BY_REASON = {"unsure": "unsure", "approval_pending": "held", "approval_expired": "held"}
"""What a block for such a reason is; for all others it is one."""
AWAY = ("unavailable", "deadline", "fault", "not_recorded")
"""Errors of judgements that say nothing of the call: no judge answered, so a case that was blocked
for it has no result."""
Verdict = str
"""allow, replace, block; unsure: withheld because nobody could tell what the call does; ask: a
judge would be asked; held: people would be, or were and nobody decided; defer: a trusted model is asked for the turn instead; fault: withheld because
a judge's answer was none; error: no result."""
WITHHELD = ("block", "unsure", "held", "defer")


class CaseJudgement(msgspec.Struct, frozen=True):
    """A judgement made for a case."""

    name: str
    probability: float | None
    latency_ms: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""


class CaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a case. `decide_us`: microseconds of CPU from the answer's first byte to the
    verdict, without that of judges."""

    id: str
    verdict: Verdict
    reason: str = ""
    policy: str = ""
    rule: str = ""
    decide_us: float = 0.0
    asked: tuple[CaseJudgement, ...] = ()
    scores: dict[str, float] = {}
    """Suspicion by the name of the monitor or judge, 0 to 1; that of all monitors together by the
    name of their policy."""
    action: str = ""
    """What a protocol wanted, which may be more than the verdict: one that only observes allows all
    the same."""
    audit: str = ""
    why: str = ""
    """What the call would have done that was objected to, in a sentence."""
    """Why a person should look at it, where the series chooses calls for that."""
    repeat: int = 0


Playing = Generator[JudgeQuestion, Judgement | None, CaseOutcome]
"""Yields questions, is sent their answers (None: nobody can be asked), returns what came of it."""


def model_of(upstream: DialectName) -> str:
    """The built-in model that answers in a dialect whoever asks."""
    return next(name for name, dialect in DEMO_MODELS.items() if dialect == upstream)


def play(
    series: Series,
    case: Case,
    *,
    client: DialectName,
    upstream: DialectName,
    wire: str,
    repeat: int = 0,
) -> Playing:
    """Play one case. Raises DatasetError where its request is none."""
    sent = case_bytes.made(case, client, upstream, model_of(upstream), wire=case.wire or wire)
    session = series.session(client)
    player = _One(session)
    session.begin(sent.request)
    yield from player.settle()
    if player.refused is None:
        began = time.thread_time_ns()
        if sent.is_streamed:
            session.chunks(1, sent.answer)
        else:
            session.body(1, sent.answer[0])
        session.eof()
        yield from player.settle()
        player.decide_us = (time.thread_time_ns() - began - player.waited_ns) / 1000
        player.encode(client)
    return player.outcome(case, repeat)


class _One(Fed):
    """The session of a case."""

    decide_us = 0.0

    def encode(self, client: DialectName) -> None:
        """Write what goes out, as the client would get it: what cannot be written is not
        released."""
        request = self.session.request
        if request is not None and self.outputs and self.refused is None:
            events = [
                output for output in self.outputs if not isinstance(output, SendUpstream | Respond)
            ]
            CLIENTS[client].encoder(request, call_id=CALL_ID, created=0).encode(join(events))

    def outcome(self, case: Case, repeat: int) -> CaseOutcome:
        """What came of the call that the case is about."""
        block = next(
            (r.block for r in self.records if isinstance(r, ToolCallRecord) and r.index == case.at),
            None,
        )
        asked, measured, action, audit = (
            list[CaseJudgement](),
            list[tuple[str, float | None]](),
            "",
            "",
        )
        for record in self.records:
            if not isinstance(
                record, JudgementRecord | ScoreRecord | DecisionRecord
            ) or block not in (None, record.block):
                continue
            measured.append(_measured(record))
            if isinstance(record, JudgementRecord) and record.model != PEOPLE:
                asked.append(_asked(record))
            elif isinstance(record, DecisionRecord):
                action, audit = record.action, record.audit
        verdict, reason, policy, rule = self._verdict(case)
        return CaseOutcome(
            id=case.id,
            verdict=settled(verdict, asked),
            reason=reason,
            policy=policy,
            rule=rule,
            decide_us=round(self.decide_us, 1),
            asked=tuple(asked),
            scores=highest(measured),
            action=action,
            audit=audit,
            repeat=repeat,
            why=self.why(block),
        )

    def _verdict(self, case: Case) -> tuple[Verdict, str, str, str]:
        if self.refused is not None and self.refused.status != 403:
            message = msgspec.json.decode(self.refused.body)["error"]["message"]
            raise DatasetError(
                f"{case.place}: a gateway refuses the request of the case {case.id!r}: {message}"
            )
        if self.refused is not None:
            return "block", "request", "", ""
        calls = [r for r in self.records if isinstance(r, ToolCallRecord)]
        record = next((r for r in calls if r.index == case.at), None)
        if self.is_deferred and (record is None or record.verdict not in PASSED):
            return (
                "defer",
                record.reason if record is not None else "",
                record.policy if record is not None else "",
                "",
            )
        if record is None:
            if self.is_open:
                return "ask", "", "", ""
            # what is no call to a session must not reach the client as one
            return (
                ("block", "withheld", "", "")
                if not self._is_out(case)
                else ("allow", "no_call", "", "")
            )
        if record.verdict in PASSED:
            return record.verdict, record.reason, record.policy, record.rule or ""
        return (
            BY_REASON.get(record.reason, "block"),
            record.reason,
            record.policy,
            record.rule or "",
        )

    def _is_out(self, case: Case) -> bool:
        """Does anything of the call's arguments stand in what the client gets?"""
        text = "".join(o.text for o in self.outputs if isinstance(o, TextDelta))
        return (
            any(isinstance(o, ArgumentsDelta) for o in self.outputs) or case.call.arguments in text
        )


def highest(measured: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the highest score under each name."""
    scores: dict[str, float] = {}
    for name, value in measured:
        if value is not None:
            scores[name] = max(value, scores.get(name, 0.0))
    return scores


def settled(verdict: Verdict, asked: Sequence[CaseJudgement]) -> Verdict:
    """Return the verdict, or what is so of a call that was withheld, or given to another model,
    because no judge answered, or one answered what is no judgement: that says nothing of it."""
    if (
        verdict == "held"
        or verdict not in WITHHELD
        or not (errors := {entry.error for entry in asked} - {""})
    ):
        return verdict
    return "fault" if errors.isdisjoint(AWAY) else "error"


def _measured(record: JudgementRecord | ScoreRecord | DecisionRecord) -> tuple[str, float | None]:
    """The name under which a score is listed, and its value."""
    match record:
        case JudgementRecord():
            return record.model, record.probability
        case ScoreRecord():
            return record.monitor, record.value
        case DecisionRecord():
            return record.policy, record.score


def _asked(record: JudgementRecord) -> CaseJudgement:
    facts = record.facts
    return CaseJudgement(
        record.model,
        record.probability,
        record.latency_ms,
        facts.input_tokens,
        facts.output_tokens,
        record.error,
    )
