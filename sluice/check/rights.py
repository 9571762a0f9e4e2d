"""What each role must not be able to do in Redis and Postgres: checked by `sluice doctor`, tried by
the tests.

The users are those of `deploy/redis/users.acl.in` and the logins that `sluice migrate` makes; both
have the same names.
"""

from streams import layout

USERS = {role: f"sluice_{role}" for role in ("gateway", "policy", "judge", "audit", "pages")}
"""Role to its Redis user; the database login of the same name is there for all but the judge, which
needs none."""
OPS = "sluice_ops"

_CALL = "00000000-0000-7000-8000-000000000000"
_GATEWAY = "doctor"

Command = tuple[str, ...]
_DISPATCH, _AUDIT = layout.dispatch_key(0), layout.audit_key(0)
_CALL_KEY, _BODY, _CTL, _FACTS = (
    layout.call_key(_CALL),
    layout.body_key(_CALL),
    layout.ctl_key(_CALL),
    layout.facts_key(_CALL),
)
_GW, _REPLY = layout.gateway_key(0, _GATEWAY), layout.reply_key(0, _GATEWAY)


def _append(key: str) -> Command:
    return ("XADD", key, "*", "b", "forged")


def _read(key: str, group: str) -> Command:
    return ("XREADGROUP", "GROUP", group, "thief", "STREAMS", key, ">")


def _takes(key: str, group: str) -> tuple[Command, ...]:
    """The ways to read or ack what a group has to read."""
    return (
        _read(key, group),
        ("XACK", key, group, "1-1"),
        ("XCLAIM", key, group, "thief", "0", "1-1"),
        ("XAUTOCLAIM", key, group, "thief", "0", "0-0"),
        ("XGROUP", "SETID", key, group, "$"),
        ("XGROUP", "DESTROY", key, group),
    )


def _removes(key: str) -> tuple[Command, ...]:
    """The ways to take a stream, or entries of it, away."""
    return (
        ("DEL", key),
        ("UNLINK", key),
        ("XDEL", key, "1-1"),
        ("XTRIM", key, "MAXLEN", "0"),
        ("RENAME", key, f"{key}:old"),
        ("SET", key, "gone"),
        ("EXPIRE", key, "1"),
        ("PEXPIRE", key, "1"),
        ("MOVE", key, "1"),
    )


_SERVER: tuple[Command, ...] = (
    ("CONFIG", "SET", "appendonly", "no"),
    ("CONFIG", "GET", "*"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("DEBUG", "SLEEP", "0"),
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "FLUSH"),
    ("FUNCTION", "LIST"),
    ("EVAL", "return 1", "0"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "x"),
    ("SHUTDOWN", "NOSAVE"),
    ("REPLICAOF", "NO", "ONE"),
    ("BGREWRITEAOF",),
    ("CLIENT", "LIST"),
    ("CLIENT", "PAUSE", "0"),
    ("MONITOR",),
    ("SAVE",),
    ("SWAPDB", "0", "1"),
    ("MODULE", "LIST"),
    ("PSUBSCRIBE", "*"),
)
_SPEAKS_FOR_A_GATEWAY: tuple[Command, ...] = (
    _append(_CALL_KEY),
    ("PUBLISH", layout.chunk_channel(_CALL), "forged"),
    ("SET", _BODY, "forged"),
    ("SET", _GW, "9-9"),
    ("DEL", _GW),
)
_KEEPS_THE_RECORD: tuple[Command, ...] = (*_takes(_AUDIT, layout.AUDIT_GROUP), *_removes(_AUDIT))
_KEEPS_DEBUG_LINES: tuple[Command, ...] = (
    _read(layout.debug_key(0), layout.DEBUG_GROUP),
    *_removes(layout.debug_key(0)),
    ("HSET", layout.debug_seen_key(), "0 p", "1"),
)
_OWNS_CALLS: tuple[Command, ...] = (
    *_takes(_DISPATCH, layout.POLICY_GROUP),
    *_removes(_DISPATCH),
    ("HSET", _CTL, "t", "mine"),
    ("HGETALL", _CTL),
    ("DEL", _CTL),
    ("PEXPIRE", _CTL, "1"),
    _append(_REPLY),
    *_removes(_REPLY),
    ("HINCRBY", layout.counts_key(0), "TOOL_CALLS_BLOCKED", "1"),
)
_READS_CALLS: tuple[Command, ...] = (
    ("XRANGE", _CALL_KEY, "-", "+"),
    ("XREAD", "STREAMS", _CALL_KEY, "0"),
    ("SUBSCRIBE", layout.chunk_channel(_CALL)),
    ("GET", _BODY),
)
_SETS_FACTS: tuple[Command, ...] = (
    ("HSETNX", _FACTS, layout.commit_field(0), "1"),
    ("PUBLISH", layout.facts_channel(_CALL), layout.commit_field(0)),
)
_CHANGES_FACTS: tuple[Command, ...] = (
    ("HSET", _FACTS, layout.commit_field(0), "1"),
    ("HDEL", _FACTS, "j:0:0"),
    ("DEL", _FACTS),
)
_HANDLES_QUESTIONS: tuple[Command, ...] = (
    ("ZADD", layout.JUDGE_QUEUE, "1", "job"),
    ("SET", "arq:job:x", "pickle"),
    ("GET", "arq:job:x"),
)
_NAMES_THE_DATABASE: tuple[Command, ...] = (
    ("SET", layout.DATABASE_KEY, "another"),
    ("DEL", layout.DATABASE_KEY),
    ("SET", layout.PRIMARY_KEY, "1"),
)
_READS_REPLIES: tuple[Command, ...] = (
    ("XRANGE", _REPLY, "-", "+"),
    ("XREAD", "STREAMS", _REPLY, "0"),
)

LOADS: tuple[Command, ...] = (
    _append(_AUDIT),
    ("XTRIM", _AUDIT, "MAXLEN", "0"),
    ("XCLAIM", _DISPATCH, layout.POLICY_GROUP, "owner", "0", "1-1"),
    ("SET", _BODY, "{}"),
    ("HSET", _CTL, "t", "token"),
    ("PEXPIREAT", _CALL_KEY, "1"),
    ("ZADD", layout.JUDGE_QUEUE, "1", "job"),
    ("DEL", "arq:job:x"),
)
"""Some of what lies in an append-only file, of each kind: what the user `default` must be allowed,
or a restart of Redis may lose it."""

FORBIDDEN: dict[str, tuple[Command, ...]] = {
    "gateway": (
        *_SERVER,
        *_OWNS_CALLS,
        *_KEEPS_THE_RECORD,
        _append(_AUDIT),
        *_SETS_FACTS,
        *_CHANGES_FACTS,
        *_READS_CALLS,
        *_HANDLES_QUESTIONS,
        *_KEEPS_DEBUG_LINES,
    ),
    "policy": (
        *_SERVER,
        *_SPEAKS_FOR_A_GATEWAY,
        *_KEEPS_THE_RECORD,
        *_CHANGES_FACTS,
        *_READS_REPLIES,
        *_NAMES_THE_DATABASE,
        *_KEEPS_DEBUG_LINES,
    ),
    "judge": (
        *_SERVER,
        *_SPEAKS_FOR_A_GATEWAY,
        *_OWNS_CALLS,
        *_KEEPS_THE_RECORD,
        _append(_AUDIT),
        _append(_DISPATCH),
        *_CHANGES_FACTS,
        *_READS_CALLS,
        *_READS_REPLIES,
        *_NAMES_THE_DATABASE,
        *_KEEPS_DEBUG_LINES,
        _append(layout.debug_key(0)),
    ),
    "audit": (
        *_SERVER,
        *_SPEAKS_FOR_A_GATEWAY,
        *_OWNS_CALLS,
        _append(_DISPATCH),
        *_CHANGES_FACTS,
        *_READS_REPLIES,
        *_HANDLES_QUESTIONS,
        ("XRANGE", _CALL_KEY, "-", "+"),
        ("SUBSCRIBE", layout.chunk_channel(_CALL)),
        ("DEL", _AUDIT),
        ("SET", _AUDIT, "gone"),
        ("XGROUP", "DESTROY", _AUDIT, layout.AUDIT_GROUP),
    ),
    "pages": (
        *_SERVER,
        *_SPEAKS_FOR_A_GATEWAY,
        *_OWNS_CALLS,
        *_KEEPS_THE_RECORD,
        _append(_AUDIT),
        _append(_DISPATCH),
        *_SETS_FACTS,
        *_CHANGES_FACTS,
        *_READS_REPLIES,
        *_HANDLES_QUESTIONS,
        *_NAMES_THE_DATABASE,
        *_removes(_CALL_KEY),
        ("GET", _BODY),
        *_KEEPS_DEBUG_LINES,
        _append(layout.debug_key(0)),
    ),
    "ops": (
        *_SERVER,
        *_SPEAKS_FOR_A_GATEWAY,
        *_OWNS_CALLS,
        *_KEEPS_THE_RECORD,
        _append(_AUDIT),
        _append(_DISPATCH),
        *_SETS_FACTS,
        *_CHANGES_FACTS,
        *_READS_CALLS,
        *_READS_REPLIES,
        *_HANDLES_QUESTIONS,
        *_NAMES_THE_DATABASE,
        *_KEEPS_DEBUG_LINES,
        _append(layout.debug_key(0)),
    ),
}
"""Role to the commands that its user must be refused, each the shortest form of something that
would break a guarantee."""
