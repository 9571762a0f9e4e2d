"""What the arguments of a tool call are, by their names: text for a shell, program code, paths of
files, addresses, SQL.

Every agent names its tools and arguments differently, so the words in the names count:
`run_terminal_cmd(command=...)` holds text for a shell as `bash(cmd=[...])` does, and so does an
unknown tool if its argument is called `command`. A false match costs one extra reading; a missed
argument gets no decision. So in doubt an argument counts as both.

Must not know: which effects anything has.
"""

import re
from collections.abc import Iterator, Mapping

from policy.base import ToolCall
from policy.effects.argument_names import KEYS, WORDS, ArgumentGroup, key_of
from policy.effects.argument_values import every_text, pairs, texts_in, unpacked, without_objects
from policy.effects.effect import Effect
from policy.effects.patches import files_of
from policy.effects.surface_parts import (
    Does,
    Json,
    MessageText,
    PathUse,
    ShellText,
    SqlText,
    Surface,
    UrlUse,
    is_flat,
)
from policy.effects.surface_shell import ShellTexts
from policy.effects.tools.calls import named_call
from policy.effects.tools.commands import StandIn
from policy.effects.tools.services import client_of, effects_there

MAX_PARTS = 64
"""Texts, paths and addresses of one call that are looked at, of each sort; a call with more is not
decided."""
_MAX_DEPTH = 6


_LOOKS_LIKE_PATH = re.compile(
    r"file:|[~/\\]|\.\.?[/\\]|\.\w|[A-Za-z]:[\\/]|[\w@.+-]+(?:[/\\][\w@.+ -]+)+\Z"
)
_URL = re.compile(
    r"(?:(?:jar|url|view-source|feed):){0,3}[A-Za-z][A-Za-z0-9+.-]{1,20}:[/\\]{1,3}\S", re.ASCII
)
_SENDS = ("post", "put", "patch", "delete")
_ASKS = ("", "get", "head", "options")
"""Methods that send no more than the address."""
_BEGINS_SQL = re.compile(
    r"[\s(]*(?:(?:--[^\n]*\n|/\*.*?\*/)[\s(]*)*(?:select|values|table|desc(?:ribe)?|insert|update"
    r"|delete|drop|create|alter|truncate|grant|revoke|with|merge|call|explain|"
    r"copy|do|exec(?:ute)?|begin|vacuum|replace|show|set|lock|comment|reindex|attach|pragma"
    r"|declare)\b",
    re.IGNORECASE | re.DOTALL,
)
_LOOKS_LIKE_COMMAND = re.compile(
    r"\s*(?:sudo\s+|\$\s+)?(?:(?:rm|rmdir|curl|wget|chmod|chown|dd|mkfs[.\w]*|bash|sh|zsh|python3?|node|perl"
    r"|ruby|psql|mysql|mongosh|redis-cli|powershell|pwsh|cmd|systemctl|crontab|ncat?|scp|rsync|ssh|cat|find|tee"
    r"|mv|cp|ln|kill|pkill|useradd|usermod|shred|truncate|iptables|ufw|nohup|npm|npx|pip3?|apt|apt-get|brew|tar"
    r"|echo|base64|eval|exec|git|docker)\s+(?:-{1,2}\w|[~/$'\"|<>]|\.\.?/|[\w.-]+\s+[-~/$'\"|>])"
    r"|(?:kubectl|aws|gcloud|az|terraform|helm|docker|gh|git|vault|doctl|flyctl|heroku)\s+[a-z][\w-]+\s+\S)"
)
_NO_WORD = re.compile(r"\s*(?:true|false|null|none|-?\d{1,18}(?:\.\d{1,18})?)?\s*", re.IGNORECASE)
_CHOICE = re.compile(r"[\w.:@+-]{0,128}")


def surface_of(call: ToolCall) -> Surface:
    """Say what the arguments of a call are. Linear in their size."""
    return _Finder(named_call(call)).collect()


class _Finder(ShellTexts):
    """Collects what one call's arguments are. `_stood_for`: arguments of the command that the tool
    stands for."""

    _stood_for: frozenset[str] = frozenset()

    def collect(self) -> Surface:
        """Look at everything."""
        call = self._call
        stands_for = self._stands_for()
        self._object(call.value, call.within, 0)
        effects: tuple[Effect, ...] = ()
        if not stands_for and not self._shell and not self._sql:
            effects = effects_there(call.name, call.server, call.value)
        most = max(len(self._shell), len(self._paths), len(self._urls), len(self._sql))
        return Surface(
            tuple(self._shell)[:MAX_PARTS],
            tuple(self._paths)[:MAX_PARTS],
            tuple(self._urls)[:MAX_PARTS],
            tuple(self._sql)[:MAX_PARTS],
            tuple(self._messages()),
            self._is_whole and most <= MAX_PARTS,
            tuple(self._unread),
            effects,
            call.known is not None or bool(client_of(call.name, call.server)),
        )

    def _stands_for(self) -> bool:
        """Add the command that the tool stands for."""
        call = self._call
        if call.known is None or not call.known.command or call.known.command[0] == "@":
            return False
        stand_in = StandIn(call.value)
        command = stand_in.command(call.known.command)
        self._stood_for = frozenset(stand_in.used)
        argument = call.within or next(iter(stand_in.used or call.value), "")
        self._shell[ShellText(command, argument, self._folder_of(call.value))] = None
        return True

    def _messages(self) -> Iterator[MessageText]:
        """What a tool that tells others something is given, but the keys by which it gets in."""
        searches = "search" in self._words and bool(self._words & WORDS["engines"])
        if (
            self._urls
            or self._is_shell
            or self._is_sql
            or not (self._words & WORDS["tells"] or searches)
        ):
            return
        for name, value in self._call.value.items():
            if key_of(name) not in KEYS["own"] and (text := "\n".join(every_text(value))):
                yield MessageText(text, name)

    def _object(self, value: Mapping[str, Json], within: str, depth: int) -> None:
        keys = self._keys_of(value, within)
        if depth == 0:
            # what went into the command that the tool stands for is nothing else besides
            keys |= dict.fromkeys(self._stood_for, "")
        args = ArgumentGroup(value, keys, within)
        self._left -= len(value)
        if depth > _MAX_DEPTH or self._left < 0:
            self._is_whole = False
            return
        named = frozenset(keys.values())
        self._taken = taken = self._translated | (self._stood_for if depth == 0 else set())
        self._commands(args)
        if not named.isdisjoint(KEYS["code"]):
            self._code(args)
        if not named.isdisjoint(KEYS["path"]) or (
            self._is_file and not named.isdisjoint(KEYS["patch"])
        ):
            self._files(args)
        self._addresses(args)
        if self._is_sql or not named.isdisjoint(KEYS["sql"]):
            self._statements(args)
        nested: list[tuple[str, Json]] = []
        for name, inner in value.items():
            key = keys[name]
            inner = unpacked(inner) if key in KEYS["packed"] else inner
            if key in KEYS["env"] or (self._is_shell and key in KEYS["no_text"]):
                left = inner
            else:
                nested.append((name, inner))
                left = without_objects(inner)
            if not (name and name in taken) and not self._is_harmless(key, left):
                self._unread[within or name] = None
                self._guess(left, within or name)
        for name, inner in nested:
            left_before = self._unread.copy()
            self._nested(inner, within or name, depth)
            if name in taken:
                # what is in it counts as a whole, as the body of a request does
                self._unread = left_before

    def _is_harmless(self, key: str, value: Json) -> bool:
        """Does it hold no text, or none that anybody runs or opens?"""
        if key in KEYS["prose"] or (key in KEYS["sought"] and (self._is_file or bool(self._urls))):
            return isinstance(value, str)
        return all(
            _NO_WORD.fullmatch(text) or (key in KEYS["choice"] and _CHOICE.fullmatch(text))
            for text in every_text(value)
        )

    def _guess(self, value: Json, argument: str) -> None:
        """Take a text of a tool that nobody knows for a command where it looks like one."""
        if self._call.known is None and not self._words & (
            WORDS["tells"] | WORDS["reads"] | WORDS["searches"]
        ):
            for text in every_text(value):
                if _LOOKS_LIKE_COMMAND.match(text):
                    self._shell[ShellText(text, argument, is_guess=True)] = None

    def _nested(self, inner: Json, within: str, depth: int) -> None:
        if isinstance(inner, dict):
            self._object(inner, within, depth + 1)
        elif isinstance(inner, list):
            for item in inner:
                if isinstance(item, dict):
                    self._object(item, within, depth + 1)

    # files

    def _files(self, args: ArgumentGroup) -> None:
        value, content = args.values, args.text(KEYS["content"])
        command = str(next(iter(args.named(frozenset(("command",))).values()), ""))
        editor = command if command in WORDS["editor_commands"] else ""
        is_recursive = args.choice(frozenset(("recursive",))) == "true"
        is_wide = is_recursive or bool(self._words & WORDS["wide"])
        for name, key in args.keys.items():
            if self._is_file and key in KEYS["patch"]:
                for text in texts_in(value[name], many=False):
                    for path, change, added in files_of(text):
                        self._paths[PathUse(path, change, args.within or name, added)] = None
                        self._taken.add(name)
            if key not in KEYS["path"] or self._is_shell:
                continue
            does = self._does(key, editor, bool(content))
            for path in _path_texts(value[name], is_file=self._is_file):
                wide = is_wide and does == "delete"
                self._paths[
                    PathUse(
                        path, does, args.within or name, content if does == "write" else "", wide
                    )
                ] = None
                if does == "write":
                    self._taken.update(args.named(KEYS["content"]).keys())
            if [*_path_texts(value[name], is_file=self._is_file)] == [*every_text(value[name])]:
                self._take(name, value[name])

    def _does(self, key: str, editor: str, has_content: bool) -> Does:
        words = self._words
        if editor:
            return "read" if editor == "view" else "delete" if editor == "delete" else "write"
        if words & WORDS["moves"]:
            return "delete" if key in KEYS["from"] else "write"
        if words & WORDS["copies"]:
            return "read" if key in KEYS["from"] else "write"
        if words & WORDS["deletes"] and not has_content:
            return "delete"
        if key in KEYS["to"] and words & WORDS["gets"]:
            return "write"
        if words & WORDS["writes"] or (has_content and not words & WORDS["reads"]):
            return "write"
        return "read"

    # addresses

    def _addresses(self, args: ArgumentGroup) -> None:
        addresses: list[tuple[str, str]] = []
        value = args.values
        for name, key in args.keys.items():
            if (
                key in KEYS["header"]
                or key in KEYS["no_text"]
                or (self._is_file and key in KEYS["content"])
            ):
                continue
            texts = [
                text.strip() for text in texts_in(value[name], many=True) if len(text) <= 8_192
            ]
            urls = [text for text in texts if _is_url(text, key)]
            addresses += [(url, args.within or name) for url in urls]
            if not any(map(str.isspace, "".join(urls))) and len(urls) >= len(
                [*every_text(value[name])]
            ):
                self._take(name, value[name])
        if not addresses:
            return
        bodies = args.named(KEYS["body"])
        self._taken.update(args.named(KEYS["body"] | KEYS["header"]).keys())
        # a number or a key may tell as much as a text
        is_verb = any(isinstance(item, str) and item.lower() in _SENDS for item in value.values())
        sends = is_verb or args.choice(KEYS["method"]) not in _ASKS or any(bodies.values())
        headers = tuple(
            pair for item in args.named(KEYS["header"]).values() for pair in pairs(item)
        )
        for url, argument in addresses:
            self._urls[UrlUse(url, argument, sends, args.text(KEYS["body"]), headers)] = None

    # statements for databases

    def _statements(self, args: ArgumentGroup) -> None:
        value = args.values
        for name, key in args.keys.items():
            if key in KEYS["sql"] or (self._is_sql and key in KEYS["sql_query"]):
                is_sure = key in KEYS["sql"] or bool(
                    self._words & WORDS["sql"] - {"query", "queries"}
                )
                item = value[name]
                every = (
                    [*every_text(item)] if isinstance(item, list) else [*texts_in(item, many=True)]
                )
                if len(every) > 1:
                    # in one transaction, one after the other
                    every.append(";\n".join(every))
                statements = [text for text in every if is_sure or _BEGINS_SQL.match(text)]
                self._sql |= {SqlText(text, args.within or name): None for text in statements}
                if statements == every:
                    self._take(name, value[name])
        for name, item in args.named(KEYS["bound"]).items():
            bound = [*item.values()] if isinstance(item, dict) else item
            if self._sql and isinstance(bound, list) and is_flat(bound):
                # the database takes them as data
                self._taken.add(name)


def _is_url(text: str, key: str) -> bool:
    return _URL.match(text) is not None or (key in KEYS["url"] and _is_address(text, key))


def _is_address(text: str, key: str) -> bool:
    return (
        0 < len(text) <= 2_048
        and not any(c.isspace() for c in text.strip())
        and (key in KEYS["host"] or "." in text or ":" in text)
    )


def _path_texts(value: Json, *, is_file: bool) -> Iterator[str]:
    for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        if not isinstance(text, str) or not 0 < len(text) <= 4_096 or "\n" in text:
            continue
        is_url = _URL.match(text) is not None and not text.lower().startswith("file:")
        if not is_url and (is_file or _LOOKS_LIKE_PATH.match(text)):
            yield text
