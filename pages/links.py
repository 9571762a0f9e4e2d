"""Where each page is. Links are made here alone: every part is quoted, so that no value changes the
path."""

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlencode
from uuid import UUID

ROOT = "/debug"
CALLS = f"{ROOT}/calls"
TOOL_CALLS = f"{ROOT}/tool-calls"
JUDGE_BLOCKS = f"{ROOT}/judge-blocks"
SESSIONS = f"{ROOT}/sessions"
POLICIES = f"{ROOT}/policies"
KEYS = f"{ROOT}/keys"
APPROVALS = f"{ROOT}/approvals"
LOGS = f"{ROOT}/logs"
SEARCH = f"{ROOT}/search"
LABELS = f"{ROOT}/labels"
INTEGRITY = f"{ROOT}/integrity"
READS = f"{ROOT}/reads"
LOGIN = f"{ROOT}/login"
LOGOUT = f"{ROOT}/logout"
OIDC = f"{LOGIN}/oidc"
OIDC_DONE = f"{OIDC}/done"
OIDC_LOGOUT = f"{OIDC}/logout"
"""Where the provider of OpenID Connect says who is logged out."""
BLOCKS = 40
"""Content blocks on a page of a call."""
_HALVES = "surrogatepass"
"""Halves of surrogate pairs, which a client may put into a session's name, have a link too."""


def with_query(path: str, query: Mapping[str, object]) -> str:
    """Return a path with parameters; those that are None or empty are left out."""
    parameters = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(parameters, errors=_HALVES)}" if parameters else path


def call(call_id: UUID | str, **query: object) -> str:
    """The page of a call."""
    return with_query(f"{CALLS}/{_part(call_id)}", query)


def place(call_id: UUID | str, number: int, **query: object) -> str:
    """A block in the story of its call. A call with many blocks has pages, which no fragment
    chooses."""
    return f"{call(call_id, **query, block=number if number >= BLOCKS else None)}#b{number:d}"


def tab(call_id: UUID | str, *parts: object, **query: object) -> str:
    """A tab of a call (wire, diff, request, text, hooks, proof, live), or what lies below it, part
    by part."""
    return with_query("/".join((CALLS, *map(_part, (call_id, *parts)))), query)


def block(call_id: UUID | str, number: int, *parts: str, **query: object) -> str:
    """One content block or tool call, or what lies below it."""
    return tab(call_id, "blocks", number, *parts, **query)


def evidence(call_id: UUID | str, number: int, *parts: str, **query: object) -> str:
    """The evidence of one content block or tool call."""
    return block(call_id, number, "evidence", *parts, **query)


def session(key: str, name: str, **query: object) -> str:
    """A session of a key."""
    return with_query(f"{SESSIONS}/{_part(key)}/{_part(name)}", query)


def policy(name: str, **query: object) -> str:
    """A policy and its revisions."""
    return with_query(f"{POLICIES}/{_part(name)}", query)


def key(name: str, **query: object) -> str:
    """A key and its usage."""
    return with_query(f"{KEYS}/{_part(name)}", query)


def approval(approval_id: str, **query: object) -> str:
    """A tool call that waits for people."""
    return with_query(f"{APPROVALS}/{_part(approval_id)}", query)


def logs(kind: str = "") -> str:
    """Debug logs, of all types or of one."""
    return f"{ROOT}/{_part(kind)}" if kind else LOGS


def _part(value: object) -> str:
    """One part of a path. Browsers take away parts that are dots, also written as %2E, so those
    begin with a tilde."""
    quoted = quote(str(value), safe="", errors=_HALVES)
    return f"~{quoted}" if set(quoted) == {"."} or quoted.startswith("~") else quoted


def read_part(part: str) -> str:
    """Return the value of a part of a path as it came. Raises ValueError where it is no UTF-8."""
    return unquote(part, errors=_HALVES).removeprefix("~")
