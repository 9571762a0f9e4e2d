"""What a program text in Python, JavaScript, Perl, Ruby, PHP or Lua does, as far as the names that
it calls show.

No interpreter is run and nothing is parsed: it finds names of functions that delete, start
programs, open connections, read and write files, with the paths in their arguments or in variables
with one value. What is composed at run time stays unknown.
"""

import re
from collections.abc import Sequence
from shlex import quote

from policy.effects.effect import Scope
from policy.effects.network import hosts_in
from policy.effects.places import NOWHERE, Places
from policy.effects.shell.programs.code import Code, CodeReading, Runner, argument_at
from policy.effects.shell.programs.patterns import (
    BACKTICKS,
    CONNECTS,
    DECODED,
    ENVIRONMENT,
    EVALUATES,
    FETCHES,
    FILES,
    HOME,
    KILLS,
    LITERAL,
    METHODS,
    OPENS,
    PRIVILEGE,
    READS,
    REMOTE_CODE,
    RUNS,
    RUNS_NAMED,
    SENDS,
    SHELL_ENDS,
    TREES,
    UNLINKS,
    WRITES,
)

_MAX_CHARS = 65_536


_MAX_LITERALS = 500


_MAX_RUN = 20
"""Shell texts in one program that are read; a program with more is unsure."""


_NOWHERE: list[Scope] = ["unknown"]


def effects_of_code(
    language: str, text: str, places: Places = NOWHERE, *, run: Runner | None = None
) -> CodeReading:
    """Return what a program text does. Never raises, bounded. `run` reads shell texts that it would
    run."""
    code = Code(language, text[:_MAX_CHARS], places, run)
    if len(text) > _MAX_CHARS:
        code.unsure.append("size: a program text is longer than is looked at")
    _deletes(code)
    _programs(code)
    _network(code)
    _files(code)
    if PRIVILEGE.search(code.text):
        code.add("privilege", "root", "another user")
    if KILLS.search(code.text):
        code.add("process", "system", "all processes", wide=True)
    if DECODED.search(code.text):
        code.add("execute", "unknown", "decoded text")
    fetched = (
        match
        for match in code.some(EVALUATES)
        if "://" in (value := code.variables.get(match[1], "")) or FETCHES.search(value)
    )
    if (remote := REMOTE_CODE.search(code.text) or next(fetched, None)) is not None:
        scopes = [host.scope for host in hosts_in(code.text, places.listed)] or ["unknown"]
        code.add("execute", "other" if "other" in scopes else scopes[0], remote[0])
    return CodeReading(tuple(code.effects), tuple(code.unsure), SENDS.search(code.text) is not None)


def _deletes(code: Code) -> None:
    for pattern, tree in ((TREES, True), (FILES, False)):
        for match in code.some(pattern):
            argument = argument_at(code.text, match.end())
            if (
                tree
                and re.match(r"fs\w*\.(?:promises\.)?(?:rm|rmdir)", match[0])
                and "recursive" not in argument
            ):
                tree_here = False
            else:
                tree_here = tree
            _deleted(code, argument, tree=tree_here)
    for match in code.some(METHODS):
        where = code.place(match[1] if "home" not in match[1] else match[0])
        if match[2] in ("unlink", "rmdir", "rmtree", "delete"):
            code.add("delete", where.scope, where.path, wide=where.wide or match[2] == "rmtree")
        else:
            code.add(
                "write" if match[2].startswith(("write", "touch")) else "read",
                where.scope,
                where.path,
            )
    for match in code.some(UNLINKS):
        if match[1] in code.variables and match[1] not in ("os", "fs", "File", "shutil"):
            where = code.place(match[1])
            code.add("delete", where.scope, where.path, wide=where.wide)


def _deleted(code: Code, argument: str, *, tree: bool) -> None:
    where = code.place(argument)
    known = where.scope != "unknown" or where.path
    code.add(
        "delete", where.scope, where.path or argument, wide=bool(known) and (tree or where.wide)
    )
    if not known:
        code.unsure.append("language: what it deletes is known only when it runs")


def _programs(code: Code) -> None:
    commands: list[str] = []
    for call in code.some(RUNS):
        argument = argument_at(code.text, call.end())
        start = argument.lstrip("( ")
        first = LITERAL.match(start)
        is_word = (
            first is not None
            and " " not in first[0]
            and re.match(r"\s*,", start[first.end() :]) is not None
        )
        if start.startswith("[") or is_word:
            words = ["".join(match) for match in LITERAL.findall(argument)]
            tail = " ~" if HOME.search(argument) is not None else ""
            words = [word for word in words if word != "HOME" or not tail]
            if re.match(r"os\.exec[lv]", call[0]) or re.match(r"os\.spawn", call[0]):
                # the program stands twice: as a path and as its own name
                words = (
                    words[1:]
                    if len(words) > 1 and words[0].rpartition("/")[2] == words[1].rpartition("/")[2]
                    else words
                )
            commands.append(" ".join(quote(word) for word in words) + tail)
        else:
            literal = first
            if literal is not None:
                command_text = re.sub(r"\\([\"'`\\])", r"\1", literal[literal.lastindex or 0])
                commands.append(
                    re.sub(r"%s|\$?\{[^{}]{0,99}\}", "~", command_text)
                    if HOME.search(argument)
                    else command_text
                )
            elif call[0].startswith(("os.system", "subprocess", "os.popen")):
                code.unsure.append("language: what it runs is known only when it runs")
    if (ticks := BACKTICKS.get(code.language)) is not None:
        commands += [call[call.lastindex or 1] or "" for call in code.some(ticks)]
    for named in code.some(RUNS_NAMED):
        value = code.variables.get(named[named.lastindex or 1], "").strip()
        literal = LITERAL.match(value)
        if value.startswith(("[", "(")) or (
            literal is not None and value[literal.end() :].lstrip().startswith(",")
        ):
            commands.append(" ".join(quote("".join(match)) for match in LITERAL.findall(value)))
        elif literal is not None:
            commands.append(literal[literal.lastindex or 0])
    if code.run is not None:
        if len(commands) > _MAX_RUN:
            code.unsure.append("size: more commands in a program than are read")
        for command in commands[:_MAX_RUN]:
            if re.fullmatch(
                r"\s*(?:exec\s+)?(?:/usr)?(?:/bin/)?(?:ba|da|z|k|c|tc|a"
                r"|fi)?sh(?:\s+-[ilp]+)?\s*[;&]?\s*",
                command,
            ):
                code.add("privilege", "unknown", "a shell that waits for words of its own")
            if command.strip():
                for effect in code.run(command):
                    code.take(effect)


def _network(code: Code) -> None:
    hosts = hosts_in(code.text, code.places.listed)
    connects, fetches = CONNECTS.search(code.text), FETCHES.search(code.text)
    scopes: list[Scope] = [host.scope for host in hosts]
    if connects is not None:
        for match in code.some(LITERAL, _MAX_LITERALS):
            literal = match[match.lastindex or 0]
            if re.fullmatch(
                r"\d{1,3}(?:\.\d{1,3}){3}|(?:[\w-]+\.)+[a-z]{2,}|localhost", literal
            ) and not literal.endswith((".py", ".js", ".txt", ".sh")):
                scopes.append(code.places.host_scope(literal))
        if SHELL_ENDS.search(code.text):
            code.add("execute", _worst_host(scopes, "other"), "a shell on a connection")
    if connects is not None or fetches is not None:
        for scope in list(dict.fromkeys(scopes)) or _NOWHERE:
            code.add("network", scope)
    elif any(scope == "metadata" for scope in scopes):
        code.add("network", "metadata")
    if fetches is None and connects is None:
        return
    secret = bool(ENVIRONMENT.search(code.text)) or any(
        _is_secret(code, string_literal) for string_literal in code.some(LITERAL, _MAX_LITERALS)
    )
    if secret and (SENDS.search(code.text) or connects is not None):
        code.add("secret", _worst_host(scopes, "unknown"), "a secret over the network")


def _worst_host(scopes: Sequence[Scope], without: Scope) -> Scope:
    order: tuple[Scope, ...] = ("metadata", "other", "unknown", "listed", "private", "loopback")
    return next((scope for scope in order if scope in scopes), without)


def _is_secret(code: Code, match: re.Match[str]) -> bool:
    text = match[match.lastindex or 0]
    return (
        3 < len(text) < 300
        and not text.startswith("http")
        and ("/" in text or text.startswith("."))
        and code.places.place(text).secret
    )


def _files(code: Code) -> None:
    for match in code.some(OPENS):
        where = code.place(
            re.split(r"[\n;=]", code.text[max(0, match.start() - 200) : match.start()])[-1]
        )
        if where.scope == "credentials":
            code.add("read", where.scope, where.path)
    for match in code.some(READS):
        argument = argument_at(code.text, match.end())
        where = code.place(argument)
        mode = re.search(r",\s*(?:mode\s*=\s*)?[\"']([rwaxbt+]+)[\"']", argument)
        writes = (
            match[0].startswith(("open", "fopen", "File.open", "io.open"))
            and mode is not None
            and bool(set(mode[1]) & set("wax+"))
        )
        if where.scope != "unknown":
            code.add("write" if writes else "read", where.scope, where.path, wide=where.wide)
            if writes and where.scope == "startup":
                code.add("persistence", "startup", where.path)
    for match in code.some(WRITES):
        where = code.place(argument_at(code.text, match.end()))
        if where.scope != "unknown":
            code.add("write", where.scope, where.path, wide=where.wide)
            if where.scope == "startup":
                code.add("persistence", "startup", where.path)
