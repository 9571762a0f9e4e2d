"""The roles of the database, and what each may do. A migration that adds a table or a function
names it here.

Logins get roles, and so only what their process needs. Must not know: SQLAlchemy, connections.
"""

from typing import Final

from db.columns import TABLES as SEALED
from db.migrations.removal import RUNS

WRITER = "sluice_writer"
"""Role of audit writers: may read, insert and make partitions; may not change or delete. Grant it
to their login."""
READER = "sluice_reader"
"""Role of gateways, of policy workers and of the process of the pages: may read. Grant it to their
logins."""
REVIEWER = "sluice_reviewer"
"""Role of the audit API besides: may add reviews and decide approvals, by functions. Grant it to the login of the
pages."""
NOTER = "sluice_noter"
"""Role of whoever shows content besides: may note that it was read. Grant it to the login of the
pages."""
PAGES = "sluice_page_server"
"""Role of the pages besides: may keep logins, labels and switches of debug logs. Grant it to their
login."""
ROLES = (WRITER, READER, REVIEWER, NOTER, PAGES)
LOGINS = {"gateway": READER, "policy": READER, "audit": WRITER, "pages": READER}
"""Who gets a login `sluice_...` of its own, and with which role; judges need no database."""
BESIDES = {"pages": (REVIEWER, NOTER, PAGES)}
"""Which roles it gets besides."""
INSERTED = (
    *(table.name for table in SEALED if table.name not in RUNS),
    *(name for rows, runs, _ in RUNS.values() for name in (rows, runs)),
    "seal_rows",
    "seals",
    "checkpoints",
    "tree_tiles",
    "histories",
    "dead_letters",
    "debug_logs",
)
"""Tables that audit writers fill."""
OF_PAGES = ("page_sessions", "reads", "labels", "debug_switches")
"""Tables that pages write, and of `reads` whoever shows content."""
OF_FUNCTIONS = (
    "redactions",
    "redacted_calls",
    "kept_digests",
    "identity",
    "audits",
    "audit_reviews",
    "usage_hours",
    "judge_hours",
    "door_counts",
    "approvals",
    "approval_asks",
    "approval_votes",
    "approval_notices",
)
"""Tables that the functions in the database write, and no login."""
TABLES = (*INSERTED, *OF_PAGES, *OF_FUNCTIONS, "api_keys")
RETENTION: Final = (
    "sluice_shed(text, date, text), sluice_forget(text, date), sluice_drop_before(date, text)"
)
"""Functions that audit writers may run where the configuration says that old rows go."""
_READ = [name for name in TABLES if name not in ("api_keys", "page_sessions")]
_RIGHTS: dict[str, tuple[str, ...]] = {
    WRITER: (
        f"SELECT ON {', '.join(_READ)}, call_log, tool_call_log, chunk_log, chunks, releases, alembic_version",
        f"INSERT ON {', '.join((*INSERTED, *RUNS))}",
        (
            "EXECUTE ON FUNCTION sluice_ensure_partitions(date, integer),"
            " sluice_ensure_partitions(date, integer, text), sluice_ensure_reads(date, integer),"
            " sluice_queue_audits(uuid[]), sluice_roll_up(timestamptz), sluice_hold_redis(bigint,"
            " text), sluice_count_door(text, timestamptz, text[], text[], bigint[]),"
            " sluice_trim_debug_logs(integer, bigint), sluice_use_approval(text, uuid, integer),"
            " sluice_ask_people(text, uuid, integer, integer, integer, integer, bytea, bytea, text,"
            " text, text, text, text, text, text, text, bytea, text, text, integer, text),"
            " sluice_take_notices(integer),"
            " sluice_mark_notice(text, text, integer, text[], boolean)"
        ),
    ),
    READER: (
        (
            f"SELECT ON {', '.join(_READ)}, call_log, tool_call_log, chunk_log, chunks, releases, alembic_version,"
            " api_keys"
        ),
    ),
    REVIEWER: (
        (
            "EXECUTE ON FUNCTION sluice_review(uuid, integer, text, text, text, text, boolean),"
            " sluice_decide_approval(text, text, text, text, text, bytea)"
        ),
    ),
    NOTER: ("INSERT ON reads",),
    PAGES: (
        "SELECT, INSERT ON page_sessions",
        "UPDATE (seen_at, until) ON page_sessions",
        "INSERT ON labels, debug_switches",
        "EXECUTE ON FUNCTION sluice_sweep_page_sessions()",
    ),
}


def statements(role: str) -> list[str]:
    """Return the statements that give a role its rights."""
    return [f"GRANT {right} TO {role}" for right in _RIGHTS[role]]
