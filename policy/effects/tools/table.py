"""The table of tools by name (`policy/data/tools.txt`): what the arguments of each are, and the
command for which a tool stands.

Must not know: which effects anything has.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from policy.effects.argument_names import key_of
from policy.patterns import names_of
from policy.word_tables import by_word, data

ROLES: Mapping[str, str] = {
    "shell": "command",
    "commands": "commands",
    "argv": "argv",
    "args": "args",
    "input": "stdin",
    "program": "program",
    "folder": "cwd",
    "env": "env",
    "language": "language",
    "sql": "sql",
    "bound": "bindings",
    "path": "path",
    "from": "old_path",
    "to": "destination",
    "content": "content",
    "patch": "patch",
    "url": "url",
    "method": "method",
    "body": "body",
    "headers": "headers",
    "message": "message",
    "recipient": "recipient",
    "prose": "description",
    "sought": "pattern",
    "choice": "mode",
}
"""What an argument may be, and the name of an argument that is read as this: text for a shell, a
list of them, the words of one command or those behind its program and what it reads, a folder to
run in, environment variables, a programming language, SQL and values for it, a path, what is moved or copied and to
where, what is written there, a patch, an address with method, body and headers, what is told whom,
an explanation, what is looked for, one of several words."""
TEXTS = frozenset(
    "keys stdin ipython python node ruby perl php r applescript powershell cmd cypher".split()
)
"""Roles of texts that need translating: keystrokes, input of some process, code."""
_NO_ROLES: Mapping[str, str] = {}
_MAX_NAME = 256


class KnownTool(msgspec.Struct, frozen=True):
    """What the table says of a tool: its words (empty: those of its name), the roles of arguments,
    the command that it stands for."""

    words: frozenset[str] = frozenset()
    roles: Mapping[str, str] = _NO_ROLES
    command: str = ""


def read_row(text: str) -> KnownTool:
    """Return what a row says behind its names. Raises ValueError for a role that there is not."""
    said, _, command = text.partition("->")
    words, _, arguments = said.partition(";")
    roles = dict(pair.split("=", 1) for pair in arguments.split())
    if odd := [role for role in roles.values() if role not in (*ROLES, *TEXTS, "ignored")]:
        raise ValueError(
            f"a row of tools.txt names the role {odd[0]!r}, which there is not: {text}"
        )
    return KnownTool(frozenset(words.split()), roles, command.strip())


_TEXTS = by_word(re.sub(r"\n{2,}", "\n", data("tools.txt")))
_READ = {text: read_row(text) for text in dict.fromkeys(_TEXTS.values())}
_ROWS = {name: _READ[text] for name, text in _TEXTS.items()}
_EVERY = _ROWS.pop("*").roles
_BY_TOOL: dict[str, list[str]] = {}
for _name in _ROWS:
    _BY_TOOL.setdefault(_name.rpartition("/")[2], []).append(_name)


def role_of(known: KnownTool | None, key: str) -> str:
    """Return what an argument of this name is, if the table says it."""
    return (known.roles.get(key) if known is not None else None) or _EVERY.get(key, "")


@lru_cache(maxsize=256)
def parts_of(name: str) -> tuple[tuple[str, str], ...]:
    """Return the servers and tools that a name may mean, in one form: `mcp__github__get_me` is
    `get_me` of `github`, as `github_get_me` may be."""
    return tuple(
        dict.fromkeys(pair for form in names_of(name) for pair in _parts(form[:_MAX_NAME]))
    )


def _parts(form: str) -> Iterator[tuple[str, str]]:
    pieces = re.split(r"__|[./:]", form)
    tool = key_of(pieces[-1])
    servers = "_".join(pieces[:-1]).lower().replace("-", "_").removeprefix("mcp_")
    yield servers, tool
    words = tool.split("_")
    for place in range(1, min(len(words), 8)):
        yield "_".join(filter(None, (servers, *words[:place]))), "_".join(words[place:])


def known_tool(name: str, server: str = "") -> KnownTool | None:
    """Return what the table says of the tool; None where it does not know it."""
    return (_remembered if len(name) <= 128 else _found)(name, key_of(server))


def _found(name: str, server: str) -> KnownTool | None:
    for number, (servers, tool) in enumerate(parts_of(name)):
        rows = _BY_TOOL.get(tool, ())
        for row in sorted(rows, key=lambda row: "/" not in row):
            of_server = row.partition("/")[0] if "/" in row else ""
            # what stands before an ordinary word may be part of the tool's name
            is_whole = number == 0 or "_" in tool
            if of_server in (servers.split("_") + server.split("_")) if of_server else is_whole:
                return _ROWS[row]
    return None


_remembered = lru_cache(maxsize=256)(_found)
