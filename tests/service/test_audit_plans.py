"""Pages of the lists: what they look at does not grow with the record, and they hold what the views
hold."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import select

from bench.asking import LISTS, alone, explain, heard, together
from bench.volume import Volume, fill_day
from db.connections import conninfo
from db.filters import parse_filters
from db.read.queries import AuditReader
from db.read.views import JUDGED_LOGS, VIEWS, ids_of, rows_of
from tests.support.checks.record import fresh_database
from tests.support.json_values import Json

VOLUME = Volume(calls=4000, days=10)
"""With some 10,000 tool calls, 4,000 blocks and 100,000 chunks."""
MOST_ROWS = {"calls": 4500, "tool-calls": 4500, "judge-blocks": 6000}
"""Of a day what is needed to fill the page; of a day in which a filter finds nothing what its
indexes look up; then the whole rows of a page, in up to seven tables. What has to be compared row
by row is walked for a day or two: one tool call in thirty is a judge block."""
BLOCKED_LATER = """
INSERT INTO blocks SELECT call_id, block, at, 'tool_use', 'block', 'said too late', policy FROM tool_calls
WHERE verdict = 'allow' AND policy LIKE 'tool_judge%' AND get_byte(uuid_send(call_id), 15) < 16 ON CONFLICT DO NOTHING
"""
"""Allowed tool calls that a judgement blocks by a later word: one in sixteen of those that were
judged."""


@pytest.fixture(scope="module")
def filled(database_url: str) -> Iterator[str]:
    with fresh_database(database_url) as url:
        with psycopg.connect(conninfo(url), autocommit=True) as connection:
            for day in range(VOLUME.days):
                fill_day(connection, VOLUME, day)
            connection.execute(BLOCKED_LATER)
            connection.execute("VACUUM ANALYZE blocks")
        yield url


def looked_at(plan: Json) -> float:
    """The rows that the scans of a plan, as it ran, took or threw away."""
    found: float = sum(looked_at(inner) for inner in plan.get("Plans", ()))
    if "Relation Name" in plan or "Index Name" in plan:
        gone = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        found += (plan["Actual Rows"] + gone) * plan["Actual Loops"]
    return found


OF_TOOLS = (
    "SELECT 'tool_call' AS kind, call_id, block, verdict, policy, call_policy, session, model, key,"
    " name, search FROM tool_call_log"
)
OF_BLOCKS = (
    "SELECT b.kind, call_id, b.block, b.verdict, b.policy, c.policy, c.session, c.model, c.key,"
    " NULL, to_tsvector('simple', b.reason) FROM blocks b LEFT JOIN calls c USING (call_id) WHERE"
    " NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block)"
)
# What a list shows, said slowly.
SLOWLY = {
    "calls": ("SELECT call_id FROM call_log v WHERE true", "call_id DESC"),
    "tool-calls": (
        "SELECT call_id, block FROM tool_call_log v WHERE true",
        "call_id DESC, block DESC",
    ),
    "judge-blocks": (
        (
            f"SELECT call_id, block, kind FROM ({OF_TOOLS} UNION ALL {OF_BLOCKS}) v WHERE verdict"
            " NOT IN ('allow', 'replace') AND EXISTS (SELECT FROM judgements j WHERE j.call_id ="
            " v.call_id AND j.block = v.block AND j.policy = v.policy)"
        ),
        "call_id DESC, block DESC",
    ),
}
OF_TOOL = "EXISTS (SELECT FROM tool_call_log t WHERE t.call_id = v.call_id AND {})"
WORDS = (
    "search @@ CAST(regexp_replace(CAST(plainto_tsquery('simple', %(q)s) AS text), '([^ '']{3,})'"
    " || chr(39), '\\1' || chr(39) || ':*', 'g') AS tsquery)"
)


def slowly(of: str, given: dict[str, str]) -> str:
    """The statement for a list by conditions on the views."""
    statement, order = SLOWLY[of]
    tool = [
        WORDS if name == "q" else f"{name} = %({name})s"
        for name in ("name", "verdict", "q")
        if name in given
    ]
    conditions = [f"{name} = %({name})s" for name in ("session", "model", "key") if name in given]
    if "policy" in given:
        conditions.append(
            "policy = %(policy)s"
            if of == "calls"
            else "(policy = %(policy)s OR call_policy = %(policy)s)"
        )
    if of != "calls":
        conditions += tool
    elif list(given.keys() & {"name", "verdict", "q"}) == ["verdict"]:
        blocks = (
            "EXISTS (SELECT FROM blocks b WHERE b.call_id = v.call_id AND b.verdict = %(verdict)s)"
        )
        conditions.append(f"({OF_TOOL.format(tool[0])} OR {blocks})")
    elif tool:
        conditions.append(OF_TOOL.format(" AND ".join(tool)))
    id_of = (
        "(lpad(to_hex((extract(epoch FROM %({})s::timestamptz) * 1000)::bigint), 12, '0') ||"
        " repeat('0', 20))::uuid"
    )
    conditions += [f"call_id >= {id_of.format('since')}"] if "since" in given else []
    conditions += [f"call_id < {id_of.format('until')}"] if "until" in given else []
    return f"{' AND '.join([statement, *conditions])} ORDER BY {order} LIMIT 50"


@pytest.mark.parametrize("of", LISTS)
@pytest.mark.slow
async def test_a_page_holds_what_the_views_hold(filled: str, of: Any) -> None:
    reader = AuditReader.open(filled)
    ask = {
        "calls": reader.calls,
        "tool-calls": reader.tool_calls,
        "judge-blocks": reader.judge_blocks,
    }[of]
    try:
        with psycopg.connect(conninfo(filled), autocommit=True) as connection:
            for given in (*alone(), *list(together(VOLUME))[::7]):
                expected = connection.execute(slowly(of, given).encode(), given).fetchall()
                page = await ask(parse_filters(given.items(), of=of))
                assert [item["call_id"] for item in page["items"]] == [
                    str(row[0]) for row in expected
                ], given
    finally:
        await reader.close()


@pytest.mark.parametrize("of", LISTS)
@pytest.mark.slow
async def test_pages_together_are_the_list(filled: str, of: Any) -> None:
    """Small and large pages, from both ends: every item once, in order, whatever way its filters
    are found."""
    reader = AuditReader.open(filled)
    ask = {
        "calls": reader.calls,
        "tool-calls": reader.tool_calls,
        "judge-blocks": reader.judge_blocks,
    }[of]
    asked: list[dict[str, str]] = [
        {"verdict": "withheld"},
        {"verdict": "block", "key": "key-0"},
        {"name": "toolold", "session": "agent"},
        {"q": "wordold"},
        {"q": "wordmid", "model": "model-0"},
        {"policy": "tool_judge", "verdict": "withheld"},
        {"key": "key-rare"},
        {"policy": "policy-rare"},
        {"q": "grep bash"},
        {"q": "said too much"},
        {"q": "wordold", "session": "agent"},
        {"q": "grep", "name": "bash", "verdict": "block"},
        {"name": "toolold", "policy": "tool_judge"},
    ]
    try:
        with psycopg.connect(conninfo(filled), autocommit=True) as connection:
            for given in asked:
                everything = slowly(of, given).replace("LIMIT 50", "")
                expected = [str(row[0]) for row in connection.execute(everything.encode(), given)]
                for order in ("desc", "asc"):
                    for limit in (max(len(expected) // 4, 7), 1000):
                        seen: list[str] = []
                        cursor: str | None = ""
                        while cursor is not None:
                            page = await ask(
                                parse_filters(
                                    {
                                        **given,
                                        "order": order,
                                        "limit": str(limit),
                                        "cursor": cursor,
                                    }.items(),
                                    of=of,
                                )
                            )
                            assert len(page["items"]) == limit or page["next_cursor"] is None
                            seen += [item["call_id"] for item in page["items"]]
                            cursor = page["next_cursor"]
                        assert seen == sorted(expected, reverse=order == "desc"), (
                            given,
                            order,
                            limit,
                        )
    finally:
        await reader.close()


@pytest.mark.parametrize("of", LISTS)
async def test_words_are_looked_for_in_the_call_that_is_asked_for(filled: str, of: Any) -> None:
    reader = AuditReader.open(filled)
    ask = {
        "calls": reader.calls,
        "tool-calls": reader.tool_calls,
        "judge-blocks": reader.judge_blocks,
    }[of]

    async def ids_of(**given: str) -> list[str]:
        return [
            item["call_id"] for item in (await ask(parse_filters(given.items(), of=of)))["items"]
        ]

    try:
        saying, silent = await ids_of(q="wordold"), await ids_of(limit="5")
        assert len(saying) > 3 and not {*saying} & {*silent}
        for call in (saying[0], saying[-1]):
            assert (
                {*await ids_of(q="wordold", call_id=call)}
                == {*await ids_of(q="wordold", call_id=call, order="asc")}
                == {call}
            )
        for call in silent:
            assert {*await ids_of(q="srv", call_id=call)} <= {call} and not await ids_of(
                q="wordold", call_id=call
            )
    finally:
        await reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("of", LISTS)
async def test_no_filter_makes_a_page_walk_the_record(filled: str, of: Any) -> None:
    reader = AuditReader.open(filled)
    ask = {
        "calls": reader.calls,
        "tool-calls": reader.tool_calls,
        "judge-blocks": reader.judge_blocks,
    }[of]
    found = []
    try:
        with (
            psycopg.connect(conninfo(filled), autocommit=True) as connection,
            heard(reader) as said,
        ):
            # small partitions are cheapest read whole, which says nothing about large ones
            connection.execute("SET enable_seqscan = off")
            for given in alone():
                said.clear()
                page = await ask(parse_filters(given.items(), of=of))
                with connection.transaction():
                    plans = [explain(connection, one, "ANALYZE, FORMAT JSON") for one in said]
                rows = sum(looked_at(plan) for plan in plans if plan)
                found.append((rows, len(page["items"]), given))
    finally:
        await reader.close()
    found.sort(key=lambda one: -one[0])
    assert all(rows <= MOST_ROWS[of] for rows, _, given in found), found[:10]


@pytest.mark.parametrize("of", LISTS)
async def test_days_without_what_a_filter_names_are_not_asked_one_by_one(
    filled: str, of: Any
) -> None:
    """To plan a statement for a day takes milliseconds, whatever there is in it."""
    reader = AuditReader.open(filled)
    ask = {
        "calls": reader.calls,
        "tool-calls": reader.tool_calls,
        "judge-blocks": reader.judge_blocks,
    }[of]
    try:
        with heard(reader) as said:
            for name in ("session", "model", "key", "name", "policy"):
                said.clear()
                assert not (await ask(parse_filters({name: "nobody"}.items(), of=of)))["items"]
                assert len(said) <= 4 < VOLUME.days, name
    finally:
        await reader.close()


@pytest.mark.slow
async def test_pages_read_a_view_as_it_is(filled: str) -> None:
    """The joins of `db.read.views` are those of the migrations."""
    reader = AuditReader.open(filled)
    try:
        async with reader.engine.connect() as connection:
            for view in [view for view in VIEWS.tables.values() if view not in JUDGED_LOGS]:
                keys = [view.c[name] for name in ("call_id", "block", "seq") if name in view.c]
                shown = (await connection.execute(select(view).order_by(*keys).limit(300))).all()
                ids = sorted({row.call_id for row in shown})[:-1]
                rows = rows_of(view)
                own = [rows.c[key.name] for key in keys]
                statement = select(*(rows.c[column.name] for column in view.c)).order_by(*own)
                found = (await connection.execute(statement, {ids_of(view): ids})).all()
                assert len(ids) > 3
                assert found == [row for row in shown if row.call_id in ids], view.name
    finally:
        await reader.close()
