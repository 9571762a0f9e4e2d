"""Tokens in request bodies, taken out before the record: who may read what was said is not to get what opens other systems.

Bodies are taken as bytes, because refused requests are recorded too, and need not be JSON. A string that is the value of a key named
`authorization_token` or `authorization`, however the name is spelled (case, `-`, `_`, blanks, escapes), wherever it stands, becomes a
note. What stands within a string, such as a message that quotes such JSON, is what was said and stays. No hash of the token is noted:
it would give a short one away as well as the token itself.

Source of the names: Anthropic, MCP connector (`mcp_servers[].authorization_token`); OpenAI, remote MCP (`authorization`, `headers`).
"""

import json
import re

NOTE = b'"[a token, not recorded]"'
_NAMES = frozenset({"authorizationtoken", "authorization"})
_ESCAPED = re.compile(rb"\\u00[4-7]")
_MEMBER = re.compile(
    rb"""(?<!\\)("[\s_-]*+(?:[aA]|\\u00[46]1)(?:[^"\\]|\\.){11,200}+")([ \t\r\n]*+:[ \t\r\n]*+)"(?:[^"\\]++|\\.)*+("|\Z|\\\Z)""", re.S
)
"""A name that may be one of those, and a string after it, which may be cut off with the body."""
_SEPARATORS = re.compile(r"[\s_-]+")


def without_tokens(body: bytes) -> bytes:
    """Return the body without the values of keys that hold tokens; the same bytes where there are none."""
    # 1 ms for the 1 MB of an agent; a search without regard to case is 30
    if body.lower().find(b"authori") < 0 and _ESCAPED.search(body) is None:
        return body
    return _MEMBER.sub(_noted, body)


def _noted(found: re.Match[bytes]) -> bytes:
    try:
        name = json.loads(found[1], strict=False)
    except ValueError:
        return found[0]
    return found[1] + found[2] + NOTE if _SEPARATORS.sub("", name).casefold() in _NAMES else found[0]
