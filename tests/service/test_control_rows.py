"""What `control` decides is on record with its scores, under the seal; what is missing of it is
found."""

import asyncio
import random
from collections.abc import Iterator
from uuid import UUID

import msgspec
import pytest

from db.missing_records import KIND
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from policy.base import Judgement
from policy.loading import load
from policy.session.choosing import session_of
from protocol.records import EndRecord, JudgementFacts, Record, ScoreRecord, decode_records
from settings.config import Config, PolicyStep
from streams.layout import Entry, judgement_field
from tests.conftest import SEED
from tests.support.checks.kinds import of_kind
from tests.support.checks.reading import insert
from tests.support.checks.record import fresh_database, rows
from tests.support.checks.sealed import many_rows
from tests.support.checks.start_records import BODY, START, chunk
from tests.support.worker_calls import call_info, owned

SERIES = [
    {
        "use": "control",
        "critical": [{"name": "deploys", "tool": "deploy_*"}],
        "audit": {"rate": 1, "budget": {"count": 5}},
    },
    {
        "use": "control",
        "monitors": [{"use": "model", "model": "demo-judge"}],
        "threshold": 0.6,
        "audit": {"at": 0.5},
    },
]
CALL = START.call_id
SHOWN = (
    "SELECT block, step, monitor, policy, value, why, error, input_tokens, output_tokens FROM"
    " scores"
)


def records_of_a_call() -> list[Record]:
    """Everything that a policy worker records of a call: `bash` is judged at 0.7, and `deploy_now`
    is critical."""
    config = Config(demo=True)
    policies, revision = load(
        [PolicyStep.model_validate(step) for step in SERIES], session_version="7", config=config
    )
    info = call_info(CALL, nonce="nonce", revision=revision)
    call = owned(START, session_of(info, policies, config))
    call.begin(BODY)
    records: list[Record] = []

    def release() -> None:
        made = call.next_release(2)
        if made is not None:
            records.extend(decode_records(made.audit) if made.audit else [])
            call.answered()

    release()
    names = ("bash", "deploy_now")
    called = [
        {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": "{}"}}
        for n, name in enumerate(names)
    ]
    raw = [
        *(chunk({"tool_calls": [one]}) for one in called),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    for seq, one in enumerate(raw, 1):
        call.feed_entry(Entry(seq, 1, "chunks", [one]))
        release()
    [(field, ask)] = call.waits.open_asks.items()
    assert field == judgement_field(ask.block, 0)
    facts = JudgementFacts(input_tokens=300, output_tokens=20)
    call.feed_fact(
        field,
        msgspec.json.encode(
            Judgement(probability=0.7, explanation="deletes", latency_ms=9, facts=facts)
        ),
        3,
    )
    release()
    return [*records, *call.end_records("complete", -1, 4)]


@pytest.fixture
def recorded(database_url: str) -> Iterator[tuple[str, list[Record]]]:
    """A database and the records of the call, not yet in it."""
    with fresh_database(database_url) as url:
        yield url, records_of_a_call()


def test_scores_and_decisions_are_rows_under_the_seal(recorded: tuple[str, list[Record]]) -> None:
    url, records = recorded
    # a worker that takes the call over records the same
    again = records_of_a_call()
    asyncio.run(insert(url, *records, bodies={CALL: BODY}))
    asyncio.run(insert(url, *again, bodies={CALL: BODY}))
    assert rows(url, f"{SHOWN} ORDER BY block, step") == [
        (0, 0, "model", "control", 0.7, "deletes", "", 300, 20)
    ]
    decided = (
        "SELECT block, step, protocol, action, score, threshold, audit, audit_rate, audit_at,"
        " audit_budget, reason FROM decisions"
    )
    assert rows(url, f"{decided} ORDER BY block, step") == [
        (0, 0, "critical", "allow", None, None, "sampled", 1.0, None, 5, ""),
        (0, 1, "threshold", "block", 0.7, 0.6, "suspicion", 0.0, 0.5, None, "score"),
        (1, 0, "critical", "block", None, None, "sampled", 1.0, None, 5, "deploys"),
    ]
    assert rows(
        url, "SELECT block, verdict, reason, policy, rule FROM tool_calls ORDER BY block"
    ) == [
        (0, "block", "score", "control", None),
        (1, "block", "critical", "control", "deploys"),
    ]
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(CALL)]) == 1
    assert verify(url).ok and rows(url, "SELECT count(*) FROM events WHERE kind = %s", KIND) == [
        (0,)
    ]
    rows(url, "UPDATE scores SET value = 0.1")
    assert [finding.table for finding in verify(url).findings] == ["scores"]


@pytest.mark.parametrize("table", ["scores", "decisions"])
def test_a_row_that_never_came_is_a_hole(recorded: tuple[str, list[Record]], table: str) -> None:
    url, records = recorded
    lost = next(record for record in records if record.table == table)
    asyncio.run(
        insert(url, *(record for record in records if record is not lost), bodies={CALL: BODY})
    )
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(CALL)]) == 1
    [end] = of_kind(records, EndRecord)
    [(detail,)] = rows(url, "SELECT detail FROM events WHERE kind = %s", KIND)
    assert end.decisions is not None and f"the call's end says {end.decisions}" in detail
    assert verify(url).incomplete_calls == {UUID(CALL)}


def test_a_redaction_takes_the_words_of_monitors(recorded: tuple[str, list[Record]]) -> None:
    url, records = recorded
    asyncio.run(insert(url, *records, bodies={CALL: BODY}))
    with Sealer(url) as sealer:
        sealer.seal([UUID(CALL)])
    assert redact(url, UUID(CALL), "asked by the user") > 0
    assert rows(url, "SELECT why, value FROM scores") == [("", 0.7)]
    assert rows(url, "SELECT DISTINCT reason FROM decisions") == [("",)]
    assert verify(url).ok


def test_a_record_with_every_kind_of_row_is_inserted_twice_without_a_conflict(
    database_url: str,
) -> None:
    with fresh_database(database_url) as url:
        made = many_rows(CALL, random.Random(SEED))
        assert any(isinstance(record, ScoreRecord) for record in made)
        for _ in range(2):
            asyncio.run(insert(url, *made))
        assert rows(url, "SELECT count(*) FROM attempts") == [(2,)]
