"""Commands whose effects depend on their options and words, as tables of rules.

A row is a line of names, with ` : ` before the options that take the next word (`one-dash` among
them: long options have one dash). Its rules stand below, indented, as `CONDITIONS -> ACTIONS`: the
first whose conditions all hold counts, and after one that begins with `+` the next is tried, too.
What goes on is indented more. `<NAME>` stands for what `NAME := ...` says, which goes on without a
blank. Quotes keep blanks.

Conditions; `!` before one says that it does not hold:

    -x|--long           one of these options is given
    -x|--long=REGEX     with such a value
    2  2=a|b  2~REGEX   there is a second operand, it is one of these, it matches as a whole;
                        `1-3` and `2-` are any of several; `2=a-guard` names what protects
    w2 w2=a|b w2~REGEX  the same for all words behind the name; `words` is any of them, `last` the
                        last operand
    line~REGEX          is found in all words, `text~REGEX` in the operands, `input~REGEX` in the
                        words or what it reads; `here`: it runs on this machine
    @PLACES=a|b!~REGEX  one of these words names a place of such a scope, with such a path; with `!`
                        all in it, with `!!` it by its name
    name=a|b  stdin  root  sets=A|B

Actions, with ` ; ` between them. Words are `operands`, `files` (operands but `-`), `paths` (those
that look like one), `last`, `2`,
`2-`, `unknown` and `printed` (those that are), options for
their values, `words` for all, or a path that begins with `.`; with `:REGEX` what its group matches:

    KIND SCOPE TARGET [wide]          an effect; in its target stand `{}` for the operands, `{all}`
                                      for these and the options behind them, `{2-}`, `{1-2}`, `{line}`,
                                      `{--}` for what is behind the dashes, `{name}`
    KIND [SCOPE]@WORDS[=a|b][~REGEX]  the effect on the places of these words
    reads, writes, deletes WORDS [wide]
    reach WORDS [sends] [account]     a connection to these hosts
    host WORDS                        these hosts are asked
    fetches PATH WORDS                what is there now comes from these hosts
    unsure WHY                        the text does not show all
    send SCOPE HOST [account]         what it reads goes there
    prints-secret, prints-much, prints-token, nothing
    call NAME                         what no table can say

Behind `wide` and `sends` may stand `:CONDITION`, with several of which one must hold.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

import msgspec

from policy.effects.effect import Kind, Scope
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of, tail
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.protective_services import is_guard

_TOKEN = re.compile(r"(?:[^\s']|'[^']*')+")
_DEFINED = re.compile(r"(?m)^([A-Z_]+) := (.*(?:\n {8,}.*)*)$")
_RANGE = re.compile(r"w?(\d+)(-?)(\d*)")
_SUBJECT = re.compile(r"([\w-]+)([=~]?)(.*)", re.DOTALL)
_IN_TARGET = re.compile(r"\{(?:\w*|\d+-\d*|--)\}")
_KINDS = frozenset(get_args(Kind))
_FLAGS = {
    "prints-secret": "is_secret",
    "prints-much": "is_bulk",
    "prints-token": "prints_token",
}


class _Case(msgspec.Struct):
    """One command that rules are tried on: its words behind the name and its operands, as far as
    they are known."""

    command: Command
    args: Args
    findings: Findings
    words: list[str]
    texts: list[str]


Condition = Callable[[_Case], bool]
Action = Callable[[_Case], object]
Words = Callable[[_Case], Iterable[Word]]


class _Rule(msgspec.Struct):
    """Conditions, actions, and whether the next rule is tried as well."""

    conditions: list[Condition]
    actions: list[Action]
    goes_on: bool


class Row:
    """The rules of some commands, made of their text when the first of them is seen."""

    def __init__(self, options: str, lines: list[str], calls: Mapping[str, Handler]) -> None:
        # in their order: an option that is cut short is the first that begins so
        self.valued = dict.fromkeys(options.split())
        self.lines = lines
        self.calls = calls
        self.rules: list[_Rule] = []

    def __call__(self, command: Command, args: Args, findings: Findings) -> None:
        """Add what the rules say of a command."""
        if not self.rules:
            self.rules = [_rule(line, self.calls) for line in self.lines]
        if self.valued:
            args = args_of(command, self.valued, single="one-dash" in self.valued)
        words = command.texts
        case = _Case(command, args, findings, words, args.texts)
        for rule in self.rules:
            if all(holds(case) for holds in rule.conditions):
                for act in rule.actions:
                    act(case)
                if not rule.goes_on:
                    return


def rows(table: str, **calls: Handler) -> dict[str, Handler]:
    """Return the rows of a table by the names of their commands. `calls`: what `call` names."""
    for name, text in _DEFINED.findall(table):
        table = table.replace(f"<{name}>", re.sub(r"\n {8,}", "", text))
    table = re.sub(r"\n {8,}", " ", _DEFINED.sub("", table))
    made: dict[str, Handler] = {}
    for block in re.split(r"\n+(?! )", table.strip()):
        head, *lines = block.splitlines()
        names, _, options = head.partition(" : ")
        made |= dict.fromkeys(names.split(), Row(options, lines, calls))
    return made


def _tokens(text: str) -> list[str]:
    return [token.replace("'", "") for token in _TOKEN.findall(text)]


def _rule(line: str, calls: Mapping[str, Handler]) -> _Rule:
    before, _, after = line.strip().rpartition("-> ")
    conditions = [_condition(token) for token in _tokens(before.removeprefix("+"))]
    actions = [_action(_tokens(part), calls) for part in after.split(" ; ")]
    return _Rule(conditions, actions, before.startswith("+"))


# -- conditions


def _condition(token: str) -> Condition:
    if token.startswith("!"):
        holds = _condition(token[1:])
        return lambda case: not holds(case)
    if token.startswith("-"):
        return _given(token)
    if token.startswith("@"):
        places = _places(token[1:])
        return lambda case: bool(places(case))
    match = _SUBJECT.fullmatch(token)
    subject, sign, text = match.groups() if match is not None else (token, "", "")
    fits = _fits(sign, text)
    match subject:
        case "line":
            return lambda case: re.search(text, " ".join(case.words)) is not None
        case "text":
            return lambda case: re.search(text, " ".join(case.texts)) is not None
        case "input":
            return lambda case: (
                re.search(text, f"{case.command.line} {case.command.stdin.text[:4096]}") is not None
            )
        case "here":
            inside = (("docker",), ("podman",))
            return lambda case: case.command.place == "here" or case.command.wrappers[-1:] in inside
        case "name":
            return lambda case: fits(case.command.name)
        case "stdin":
            return lambda case: case.command.stdin.kind != "none"
        case "root":
            return lambda case: case.command.is_root
        case "sets":
            return lambda case: any(fits(name) for name, _ in case.command.assignments)
        case "words":
            return lambda case: any(map(fits, case.words))
        case "last":
            return lambda case: any(map(fits, case.texts[-1:]))
    span = _span(subject)
    if subject.startswith("w"):
        return lambda case: any(map(fits, case.words[span]))
    return lambda case: any(map(fits, case.texts[span]))


def _fits(sign: str, text: str) -> Callable[[str], bool]:
    if text == "a-guard":
        return is_guard
    if sign == "=":
        return frozenset(text.split("|")).__contains__
    if sign == "~":
        pattern = re.compile(text)
        return lambda word: pattern.fullmatch(word) is not None
    return lambda word: True


def _given(token: str) -> Condition:
    names, sign, text = token.partition("=")
    if not sign:
        return lambda case: case.args.has(names)
    pattern = re.compile(text)
    return lambda case: any(pattern.fullmatch(word.known) for word in case.args.all(names))


def _span(text: str) -> slice:
    """Read `2`, `2-` and `1-3`, which may have a `w` before them."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    first = int(match[1])
    return slice(first - 1, int(match[3]) if match[3] else None if match[2] else first)


# -- words and places


def _words(text: str) -> Words:
    """Read which words an action is about."""
    source, colon, regex = text.partition(":")
    if colon:
        words, pattern = _words(source), re.compile(regex)
        return lambda case: [
            tail(word, match.start(1)) if match.end(1) == match.end() else Word(match[1])
            for word in words(case)
            if (match := pattern.fullmatch(word.known)) is not None
        ]
    if text == "words":
        return lambda case: case.command.words[1:]
    if text in ("unknown", "printed"):
        is_any = text == "unknown"
        return lambda case: [
            word for word in case.args.operands if word.text is None and (is_any or word.outputs)
        ]
    if text.startswith("-"):
        return lambda case: case.args.all(text)
    if text.startswith("."):
        return lambda case: [Word(text)]
    if text == "files":
        return lambda case: [word for word in case.args.operands if word.known != "-"]
    if text == "paths":
        return lambda case: [
            word
            for word in case.args.operands
            if word.text is None or re.search(r"[/.]|^[~*]", word.text)
        ]
    if text == "last":
        return lambda case: case.args.operands[-1:]
    span = _span("1-" if text == "operands" else text)
    return lambda case: case.args.operands[span]


def _places(text: str) -> Callable[[_Case], list[PathTarget]]:
    """Read `WORDS=a|b~REGEX`: the places of these words that have such a scope and path."""
    before, _, regex = text.partition("~")
    source, sign, scopes = before.rstrip("!").partition("=")
    is_broad, is_whole = before.endswith("!"), before.endswith("!!")
    words, listed = _words(source), scopes.split("|")
    fits = _fits("~" if regex else "", regex)

    def choose(case: _Case) -> list[PathTarget]:
        return [
            place
            for word in words(case)
            for place in case.findings.places(word)
            if (not sign or place.scope in listed)
            and fits(place.path)
            and (place.whole or not is_broad or (place.wide and not is_whole))
        ]

    return choose


# -- actions


def _flag(tokens: list[str], name: str) -> Condition:
    """Read `name`, or `name:CONDITION` once or more, of an action, and take it away there."""
    marked = [token for token in tokens if token == name or token.startswith(f"{name}:")]
    tokens[:] = [token for token in tokens if token not in marked]
    if name in marked:
        return lambda case: True
    conditions = [_condition(token[len(name) + 1 :]) for token in marked]
    return lambda case: any(holds(case) for holds in conditions)


def _action(tokens: list[str], calls: Mapping[str, Handler]) -> Action:
    verb, *more = tokens
    if verb == "nothing":
        return lambda case: None
    if verb == "unsure":
        return lambda case: case.findings.unsure.append(more[0])
    if verb == "fetches":
        hosts = _words(more[1])
        return lambda case: case.findings.downloads.extend(
            (_filled(more[0], case), case.findings.reach(word)) for word in hosts(case)
        )
    if verb == "call":
        handler = calls[more[0]]
        return lambda case: handler(case.command, case.args, case.findings)
    if verb in _FLAGS:
        return lambda case: setattr(case.findings, _FLAGS[verb], True)
    wide, sends = _flag(more, "wide"), _flag(more, "sends")
    is_account = more[-1] == "account"
    if verb == "send":
        scope = msgspec.convert(more[0], Scope)
        return lambda case: case.findings.sends.append((scope, _filled(more[1], case), is_account))
    if verb in _KINDS:
        return _effect(msgspec.convert(verb, Kind), more, wide)
    words = _words(more[0])
    match verb:
        case "reads":
            return lambda case: case.findings.read(*words(case), wide=wide(case))
        case "writes":
            return lambda case: case.findings.write(*words(case), wide=wide(case))
        case "deletes":
            return lambda case: case.findings.delete(*words(case), wide=wide(case))
        case "reach":
            return lambda case: [
                case.findings.reach(word, sends=sends(case), account=is_account)
                for word in words(case)
            ]
        case "host":
            return lambda case: case.findings.ask(*words(case))
    raise ValueError(verb)


def _effect(kind: Kind, tokens: list[str], wide: Condition) -> Action:
    named, at, source = tokens[0].partition("@")
    scope = msgspec.convert(named, Scope) if named else None
    if at:
        places = _places(source)

        def add(case: _Case) -> None:
            findings = case.findings
            for place in places(case):
                source = findings.downloaded(place.path) if kind == "execute" else None
                findings.add(kind, source or scope or place.scope, place.path, wide=wide(case))

        return add
    target = " ".join(tokens[1:])
    return lambda case: case.findings.add(
        kind,
        scope or "unknown",
        _filled(target, case),
        wide=wide(case),
    )


def _filled(target: str, case: _Case) -> str:
    return _IN_TARGET.sub(lambda match: _named(case, match), target)


def _named(case: _Case, match: re.Match[str]) -> str:
    """Return what braces in a target stand for."""
    match match[0]:
        case "{}":
            return " ".join(case.texts)
        case "{line}":
            return " ".join(case.words)
        case "{all}":
            return " ".join([*case.texts, *(word for word in case.words if word[:1] == "-")])
        case "{name}":
            return case.command.name
        case "{--}":
            return " ".join(case.words[case.words.index("--") + 1 :])
        case _:
            return " ".join(case.texts[_span(match[0][1:-1])])
