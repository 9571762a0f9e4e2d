"""A large record, made by PostgreSQL itself: days of calls with skewed values, common, rare,
retired and absent ones.

What is common: tool `bash`, key `key-0`, model `model-0`, session `agent`, policy `default`,
verdict `allow`, the word `srv`. What is rare, some eight calls in all: everything that ends in
`rare`. What was common in the first tenth of the days only: `old`. The same number of calls gives
the same rows, but for their times, which end today.
"""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import psycopg

TABLES = (
    "calls",
    "request_bodies",
    "chunks",
    "releases",
    "blocks",
    "tool_calls",
    "tool_releases",
    "judgements",
    "ends",
    "events",
)


class Volume(NamedTuple):
    """How much; about 25 chunks and 2.5 tool calls a call."""

    calls: int
    days: int

    @property
    def first(self) -> date:
        """The first day."""
        return datetime.now(UTC).date() - timedelta(days=self.days - 1)


# r1 to r4 are numbers from 0 to 1 that look random and are the same each time
_R = ", ".join(
    f"('x' || substr(h, {1 + 6 * n}, 6))::bit(24)::integer / 16777216.0 AS r{n + 1}"
    for n in range(4)
)
_CALLS = f"""
CREATE TEMPORARY TABLE g ON COMMIT DROP AS
SELECT i, h, is_old, (lpad(to_hex(ms), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid AS call_id,
    to_timestamp(ms / 1000.0) AS at, {_R}, i %% %(rare)s = 7 AS is_rare
FROM (SELECT i, md5('call' || i) AS h, %(day)s < %(days)s::integer / 10 AS is_old, %(ms)s
        + (i - %(low)s)::bigint * 86400000 / %(count)s AS ms
      FROM generate_series(%(low)s::integer, %(low)s::integer + %(count)s - 1) i) s
"""
_TOOLS = f"""
CREATE TEMPORARY TABLE t ON COMMIT DROP AS
SELECT g.call_id, g.at, g.is_old, g.is_rare AND k = 0 AS is_rare, g.i, k, s.*
FROM g CROSS JOIN LATERAL generate_series(0, floor((g.r2 - 0.4) * 12.2)::integer) k
CROSS JOIN LATERAL (SELECT h, {_R} FROM (SELECT md5('tool' || g.i || '/' || k) AS h) x) s WHERE g.r2 >= 0.4
"""
_INSERTS = {
    "calls": (
        """
SELECT call_id, at, CASE WHEN r1 < 0.5 THEN 'openai' ELSE 'anthropic' END, CASE WHEN r1 < 0.5 THEN 'chat' ELSE 'messages' END,
    CASE WHEN is_rare THEN 'key-rare' WHEN is_old AND r1 < 0.3 THEN 'key-old' ELSE 'key-' || floor(40 * r1 ^ 3) END,
    CASE WHEN is_rare THEN 'session-rare' WHEN r3 < 0.1 THEN 'agent' WHEN is_old AND r3 < 0.3 THEN 'session-old' ELSE 's-' || i / 10 END,
    CASE WHEN is_rare THEN 'model-rare' WHEN is_old AND r4 < 0.3 THEN 'model-old' ELSE 'model-' || floor(8 * r4 ^ 2) END, 'up-' || (i % 3),
    CASE WHEN is_rare THEN 'policy-rare' WHEN is_old AND r1 < 0.3 THEN 'policy-old' WHEN r1 < 0.85 THEN 'default' ELSE 'strict' END,
    'r' || (i / 100000), r4 < 0.9, 'gateway-' || (i % 4), '', '', NULL, '', '' FROM g"""
    ),
    "request_bodies": (
        """
SELECT call_id, convert_to('{"model": "m", "messages": [{"role": "user", "content": "' || repeat(h || ' ', 20) || '"}]}', 'UTF8') FROM g"""
    ),
    "chunks": (
        """
SELECT call_id, n, at + n * interval '20 ms', convert_to('data: {"id":"chatcmpl-' || h || '","object":"chat.completion.chunk","created":'
    || '1780000000,"model":"model","choices":[{"index":0,"delta":{"content":"' || substr(md5(i || '/' || n), 1, 6) || '"}}]}', 'UTF8'),
    CASE WHEN n % 5 = 0 THEN 'hold' WHEN r4 < 0.02 THEN 'withheld' ELSE 'allow' END, CASE WHEN n < 3 THEN -1 ELSE n % 2 END
FROM g CROSS JOIN LATERAL generate_series(1, least(5 + floor(-20.2 * ln(1 - r3 + 1e-9)), 400)::integer) n"""
    ),
    "releases": (
        """
SELECT call_id, n, n + 1, at + n * interval '100 ms', n * 5, convert_to('data: {"choices":[{"index":0,"delta":{"content":"' || repeat(h, 4)
    || '"}}]}', 'UTF8'), sha256(int4send(n))
FROM g CROSS JOIN LATERAL generate_series(1, least(1 + floor(-4 * ln(1 - r3 + 1e-9)), 80)::integer) n"""
    ),
    "ends": (
        """
SELECT call_id, at + interval '3 s', CASE WHEN r4 < 0.98 THEN 'ENDED' ELSE 'FAILED' END, CASE WHEN r4 < 0.98 THEN 'complete' ELSE
    'upstream_timeout' END, CASE WHEN r4 < 0.98 THEN 200 ELSE 504 END, 'end_turn', 5, 1000, 25, NULL, NULL, NULL FROM g WHERE r1 < 0.999"""
    ),
    "events": "SELECT call_id, 'takeover', 1, at, 'from worker 1' FROM g WHERE r1 > 0.98",
    "tool_calls": (
        """
SELECT call_id, k + 2, k, 0, at + interval '2 s', 'call_' || substr(h, 1, 24), name, convert_to(arguments, 'UTF8'),
    CASE WHEN verdict IN ('allow', 'replace') THEN convert_to(arguments, 'UTF8') END, 'client', 'native', verdict, reason, policy, NULL,
    to_tsvector('simple', regexp_replace(name || ' ' || reason || ' ' || arguments, '[\\W_]+', ' ', 'g'))
FROM named CROSS JOIN LATERAL (SELECT '{"command": "grep -rn w' || floor(20000 * r1 ^ 2) || ' /srv/app/w' || floor(20000 * r2) || '/w'
    || floor(20000 * r3 ^ 2) || CASE WHEN is_rare THEN ' wordrare' WHEN is_old AND r4 < 0.3 THEN ' wordold' WHEN r2 < 0.005 THEN ' wordmid'
    ELSE '' END || '", "timeout": ' || floor(900 * r4) || ', "description": "look for ' || substr(h, 1, 8) || '"}' AS arguments) a"""
    ),
    "tool_releases": "SELECT call_id, k + 2, at + interval '2.1 s' FROM named WHERE r4 < 0.998",
    "judgements": (
        """
SELECT call_id, k + 2, 0, at + interval '2 s', 'judge', policy,
    CASE WHEN verdict = 'allow' THEN 0.1 ELSE 0.9 END, 0.6, 'what it says ' || h,
    convert_to(repeat(h || ' ', 15), 'UTF8'), convert_to('{"probability": 0.5}', 'UTF8'), 200, 1, ''
FROM named WHERE policy LIKE 'tool_judge%'
UNION ALL SELECT call_id, 0, 0, at, 'judge', 'text_judge', 0.9, 0.6, 'why', ''::bytea, ''::bytea, 200, 1, '' FROM g WHERE r4 > 0.995"""
    ),
    "blocks": (
        """
SELECT call_id, 0, at + interval '1 s', CASE WHEN r3 < 0.1 THEN 'thinking' ELSE 'text' END,
    CASE WHEN r4 > 0.99 THEN 'block' WHEN r4 > 0.97 THEN 'replace' ELSE 'allow' END,
    CASE WHEN is_rare AND r4 > 0.99 THEN 'reasonrare' WHEN r4 > 0.99 THEN 'said too much' ELSE '' END,
    CASE WHEN r4 > 0.995 THEN 'text_judge' WHEN r4 > 0.97 THEN 'text_rules' ELSE '' END FROM g
UNION ALL SELECT call_id, k + 2, at + interval '3 s', 'tool_use',
    CASE WHEN r3 < 0.5 THEN 'withheld' ELSE 'block' END, 'audit_unavailable', ''
FROM named WHERE r4 >= 0.998"""
    ),
}
_NAMED = """
CREATE TEMPORARY TABLE named ON COMMIT DROP AS SELECT *, CASE WHEN is_rare THEN 'toolrare' WHEN is_old AND r1 < 0.3 THEN 'toolold'
        ELSE (ARRAY['bash', 'read_file', 'edit', 'grep', 'web_search'])[1 + n] END AS name,
    CASE verdict WHEN 'block' THEN 'matches a rule' WHEN 'withheld' THEN 'unfinished' ELSE '' END AS reason,
    CASE WHEN is_rare THEN 'tool_judge_rare' WHEN r3 < 0.3 THEN 'tool_judge' WHEN verdict = 'allow' THEN '' ELSE 'tool_rules' END AS policy
FROM (SELECT *, floor(60 * r1 ^ 4)::integer AS n,
        CASE WHEN r2 < 0.9 THEN 'allow' WHEN r2 < 0.99 THEN 'block' WHEN r2 < 0.999 THEN 'replace' ELSE 'withheld' END AS verdict FROM t) x
"""
_OTHER_NAMES = "UPDATE named SET name = 'tool_' || n WHERE name IS NULL"


def fill_day(connection: psycopg.Connection, volume: Volume, day: int) -> None:
    """Make the calls of one day in one transaction, as autovacuum would leave them. Needs an
    autocommit connection."""
    at = volume.first + timedelta(days=day)
    low = volume.calls * day // volume.days
    count = volume.calls * (day + 1) // volume.days - low
    ms = int(datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp() * 1000)
    given = {
        "day": day,
        "days": volume.days,
        "ms": ms,
        "low": low,
        "count": count,
        "rare": max(volume.calls // 8, 8),
    }
    connection.execute("SELECT sluice_ensure_partitions(%s, 1)", (at,))
    with connection.transaction():
        for statement in (_CALLS, _TOOLS):
            connection.execute(statement.encode(), given)
        for statement in (_NAMED, _OTHER_NAMES):
            connection.execute(statement.encode())
        for table in TABLES:
            connection.execute(f"INSERT INTO {table} {_INSERTS[table]}".encode())
    for table in TABLES:
        connection.execute(f"VACUUM ANALYZE sluice_parts.{table}_{at:%Y%m%d}".encode())


def days_filled(connection: psycopg.Connection, volume: Volume) -> set[int]:
    """The days that are there already."""
    rows = connection.execute(
        "SELECT DISTINCT (sluice_call_at(call_id) AT TIME ZONE 'UTC')::date FROM request_bodies"
    ).fetchall()
    return {(day - volume.first).days for (day,) in rows}
