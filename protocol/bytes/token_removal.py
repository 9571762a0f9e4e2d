"""Removes tokens from request bodies before they are recorded: a reader of the audit log must not
get access to other systems.

Works on bytes, because refused requests are recorded too and need not be JSON. The value of a key
named `authorization_token` or `authorization` is replaced by a note, wherever the key stands and
however it is spelled (case, `-`, `_`, blanks, escapes). Text inside a string, such as a message
that quotes such JSON, is content and stays. The note has no hash of the token: a hash of a short
token gives it away. Source of the names: Anthropic, MCP connector
(`mcp_servers[].authorization_token`); OpenAI, remote MCP (`authorization`, `headers`).
"""

import json
import re

NOTE = b'"[a token, not recorded]"'
_NAMES = frozenset({"authorizationtoken", "authorization"})
_ESCAPED = re.compile(rb"\\u00[4-7]")
_MEMBER = re.compile(
    rb"""(?<!\\)("[\s_-]*+(?:[aA]|\\u00[46]1)(?:[^"\\]|\\.){11,200}+")([ \t\r\n]*+:[ \t\r\n]*+)"(?:[^"\\]++|\\.)*+("|\Z|\\\Z)""",
    re.S,
)
"""A name that may be one of those, and a string after it, which may be cut off with the body."""
_SEPARATORS = re.compile(r"[\s_-]+")


def without_tokens(body: bytes) -> bytes:
    """Return the body without the values of keys that hold tokens; the same bytes where there are
    none."""
    # 1 ms for the 1 MB of an agent; a search without regard to case is 30
    if body.lower().find(b"authori") < 0 and _ESCAPED.search(body) is None:
        return body
    return _MEMBER.sub(_noted, body)


def _noted(match: re.Match[bytes]) -> bytes:
    try:
        name = json.loads(match[1], strict=False)
    except ValueError:
        return match[0]
    return (
        match[1] + match[2] + NOTE if _SEPARATORS.sub("", name).casefold() in _NAMES else match[0]
    )
