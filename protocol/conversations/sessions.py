"""Which session of its client a call belongs to, from what agents send in headers and in the body.

An id is the client's word. A session is always an API key's name and an id, so nobody writes into
another key's session. It is never a hash of the first message: agents put a project's rules there,
and all sessions of a project would be one. Must not know: HTTP, policies.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from protocol.bounds import MAX_SESSION_CHARS

OWN = "x-sluice-session"
GUESSED = "prompt_cache_key"
"""A source that may be shared by everybody who uses one prompt."""
_OF_HEADERS = (
    b"x-claude-code-session-id",
    b"agent-session-id",
    b"x-session-id",
    b"x-session-affinity",
    b"session-id",
    b"session_id",
    b"thread-id",
)
"""Claude Code; Goose; opencode and pi; Codex."""
_AGENTS = (b"x-claude-code-agent-id", b"thread-id")
"""Which agent of a session asks: Claude Code's subagents, and threads of Codex."""
_PARENTS = (b"x-claude-code-parent-agent-id", b"x-codex-parent-thread-id", b"x-parent-session-id")
"""Who started it: another agent of the session, or, of opencode and pi, another session."""
_OF_USER = re.compile(r"_session_([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z")
MAX_USER_CHARS = 4_096
PROGRAMS = {
    "x-claude-code-session-id": "Claude Code",
    "agent-session-id": "Goose",
    "x-session-id": "opencode",
    "x-session-affinity": "opencode",
    "session-id": "Codex",
    "session_id": "Codex",
    "thread-id": "Codex",
    "metadata.user_id": "Claude Code",
}
"""Which program names its session so."""


class SessionHeaders(NamedTuple):
    """The session named in the headers. `source` is what named it: empty where nothing did."""

    session: str = ""
    source: str = ""
    agent: str = ""
    parent: str = ""


class Identified(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detail of an event `identified`, as JSON: what named a call's session, which agent of it
    asks, and who started that."""

    source: str
    agent: str = ""
    parent: str = ""


class _User(msgspec.Struct):
    session_id: str = ""


_decode_user = msgspec.json.Decoder(_User).decode
_decode_identified = msgspec.json.Decoder(Identified).decode
_encode = msgspec.json.Encoder().encode
NOTHING = SessionHeaders()
NAMED = frozenset((OWN.encode(), *_OF_HEADERS, *_AGENTS, *_PARENTS))
"""The headers that say something of a session: who sends none of them need not be asked further."""


def read_headers(named: Mapping[bytes, bytes], session_header: str) -> SessionHeaders:
    """Return what a request's headers say about its session; `session_header` is the value of
    `x-sluice-session`, which goes before all others."""
    session, source = session_header, OWN if session_header else ""
    for name in () if session_header else _OF_HEADERS:
        if name in named and (session := _usable(named[name].decode("latin-1"))):
            source = name.decode()
            break
    agent, parent = _first(named, _AGENTS), _first(named, _PARENTS)
    if not (source or agent or parent):
        return NOTHING
    return SessionHeaders(
        session, source, "" if agent == session else agent, "" if parent == session else parent
    )


def of_body(user: str | None, extra: Mapping[str, Any]) -> tuple[str, str]:
    """Return the session and its source as a request's body says; two empty texts where it does
    not.

    `user` is Anthropic's metadata.user_id, in which Claude Code writes a session at the end, or as
    a field of JSON.
    """
    metadata = extra.get("metadata")
    if isinstance(metadata, dict):
        if user is not None and metadata.get("user_id") == user and (session := _of_user(user)):
            return session, "metadata.user_id"
        if isinstance(named := metadata.get("session_id"), str) and (session := _usable(named)):
            return session, "metadata.session_id"
    if isinstance(key := extra.get(GUESSED), str) and (session := _usable(key)):
        return session, GUESSED
    return "", ""


def detail(source: str, agent: str, parent: str) -> str:
    """Return the detail of an event `identified`."""
    return _encode(Identified(source, agent, parent)).decode()


def identified(text: str) -> Identified:
    """Read it; what cannot be read says nothing."""
    try:
        return _decode_identified(text)
    except (msgspec.MsgspecError, UnicodeError):
        return Identified("")


def program(source: str, user_agent: str) -> str:
    """Return the name of the program that asked, by what named its session or else by its user
    agent; empty where neither says."""
    return PROGRAMS.get(source, "") or user_agent.partition(" ")[0].partition("/")[0]


def _of_user(user: str) -> str:
    if len(user) > MAX_USER_CHARS:
        return ""
    if match := _OF_USER.search(user):
        return match[1]
    if not user.startswith("{"):
        return ""
    try:
        return _usable(_decode_user(user).session_id)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""


def _first(named: Mapping[bytes, bytes], headers: tuple[bytes, ...]) -> str:
    return next(
        (
            text
            for name in headers
            if name in named and (text := _usable(named[name].decode("latin-1")))
        ),
        "",
    )


def _usable(text: str) -> str:
    """The text if it can name something: 200 printable characters at most."""
    text = text.strip() if len(text) <= 2 * MAX_SESSION_CHARS else ""
    return text if len(text) <= MAX_SESSION_CHARS and text.isprintable() else ""
