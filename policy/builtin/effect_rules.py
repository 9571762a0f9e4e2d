"""Rule conditions about what a call does, whatever its text: effects on scopes, in commands, paths
and addresses.

A `deny` rule applies where one effect is among those that its condition names. An `allow` rule
vouches for a call only where everything in it is: every command, redirect, assignment, path and
address, and nothing is unsure.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from policy.builtin.rule_options import Does, NamedEffects, Network, Paths, Secrets, Shell, several
from policy.effect_sentences import describe_worst, shown_command
from policy.effects.credentials import secrets_in
from policy.effects.effect import Effect, matches
from policy.effects.places import Places
from policy.effects.touch import LocatedEffect, Source, Touch
from policy.patterns import NamePatterns
from protocol.bytes.folding import fold

if TYPE_CHECKING:
    from policy.effects.shell.command import Command, Word


class _Named:
    """Effects that are named, and none of `but`. Names in an exemption count exactly: what only
    looks like one is none."""

    def __init__(self, named: NamedEffects, *, is_exact: bool) -> None:
        self.kinds, self._scopes = frozenset(named.effects or ()), frozenset(named.scope or ())
        self._wide, self._is_exact = named.wide, is_exact
        self._target, self._by = (
            None if names is None else NamePatterns(names) for names in (named.target, named.by)
        )
        but = named.but if isinstance(named, Does) else ()
        self._but = [_Named(effects, is_exact=True) for effects in but]
        self.is_any = named.wide is None and not any(
            (self.kinds, self._scopes, self._target, self._by, self._but)
        )

    def has(self, effect: Effect) -> bool:
        """Is the effect one of these?"""
        fits = NamePatterns.match if self._is_exact else NamePatterns.means
        return (
            matches(effect, self.kinds, self._scopes, self._wide)
            and (self._target is None or fits(self._target, effect.target))
            and (self._by is None or fits(self._by, effect.by))
            and not any(exemption.has(effect) for exemption in self._but)
        )


_SOURCES: dict[type, Source] = {Shell: "shell", Paths: "paths", Network: "network"}
"""Where effects are looked for; those of `does` everywhere."""


class Condition:
    """One compiled condition of a rule. It ignores whatever is outside the arguments and sources
    that it covers."""

    def __init__(self, clause: Does | Paths | Network) -> None:
        if isinstance(clause, Paths):
            named = NamedEffects(
                effects=several(clause.does),
                scope=clause.scope,
                wide=clause.wide,
                target=clause.target,
            )
        elif isinstance(clause, Network):
            named = NamedEffects(
                effects=("network",), scope=clause.scope, wide=clause.sends, target=clause.target
            )
        else:
            named = clause
        self._named = _Named(named, is_exact=False)
        self.kinds, self.speaks_of_effects = self._named.kinds, not self._named.is_any
        self._source = _SOURCES.get(type(clause))
        arguments = several(clause.argument)
        self._arguments = None if arguments is None else frozenset(map(fold, arguments))
        commands = clause.commands if isinstance(clause, Shell) else None
        self._commands = [tuple(command.split()) for command in commands or ()]
        self._names = frozenset(words[0] for words in self._commands)
        self.wants_unsure = isinstance(clause, Shell) and bool(clause.unsure)
        self.names_commands = commands is not None
        self.is_about_commands = self._source in (None, "shell")

    def finds(self, touch: Touch) -> bool:
        """Is one effect, and one command, among those that are named?"""
        if self.kinds and self.kinds.isdisjoint(touch.kinds):
            return False
        if self.names_commands and not any(map(self.forbids, touch.commands)):
            return False
        if not self.speaks_of_effects:
            return self.names_commands or (
                not self.wants_unsure and any(map(self.is_about, touch.acts))
            )
        return any(self.is_about(act) and self.has(act.effect) for act in touch.acts)

    def finds_of(self, touch: Touch) -> list[Effect]:
        """The effects among those that are named."""
        return (
            [act.effect for act in touch.acts if self.is_about(act) and self.has(act.effect)]
            if self.speaks_of_effects
            else []
        )

    def is_about(self, act: LocatedEffect) -> bool:
        """Does it say anything about this effect?"""
        return self.covers(act.source, act.argument)

    def covers(self, source: Source, argument: str) -> bool:
        """Does it say what may be done by what stands in this argument?"""
        return self._source in (None, source) and (
            self._arguments is None or fold(argument) in self._arguments
        )

    def has(self, effect: Effect) -> bool:
        """Is the effect among those that are named?"""
        return self._named.has(effect)

    def forbids(self, command: "Command") -> bool:
        """Is it one of `commands`, wherever it lies and in whatever case it is written?"""
        texts = [command.name, *(word.text for word in command.words[1:])]
        return any(
            texts[0] == words[0].rpartition("/")[2].lower() and _leads(texts, words)
            for words in self._commands
        )

    def is_named(self, command: "Command") -> bool:
        """Is it one of `commands`, exactly, and so is what it runs under? What does nothing by
        itself needs no name."""
        from policy.effects.shell.commands.effects_of import is_elsewhere, is_transparent

        if any(
            name not in _PLAIN_WRAPPERS and name not in self._names for name in command.wrappers
        ):
            return False
        if is_transparent(command):
            return True
        texts = [word.text for word in command.words]
        path = texts[0] or ""
        names = (path,) if is_elsewhere(command) else (path, path.rpartition("/")[2])
        at = 1
        while command.name == "git" and at < len(texts) and texts[at] in _FIRST_OPTIONS:
            at += 2 if texts[at] == "-C" else 1
        # `npx tsc` names what `npx` runs
        behind = command.wrappers[-1:]
        return any(
            (words[0] in names and texts[at : at + len(words) - 1] == list(words[1:]))
            or (
                len(words) > 1
                and words[:1] == behind
                and texts[: len(words) - 1] == list(words[1:])
            )
            for words in self._commands
        )


_FIRST_OPTIONS = ("-C", "-P", "--no-pager", "--no-optional-locks")
"""Options before a subcommand of git that run nothing."""


def _leads(texts: Sequence[str | None], words: Sequence[str]) -> bool:
    """Are these the first words of a command, whatever options and their values stand between
    them?"""
    at = 1
    for word in words[1:]:
        while (
            at < len(texts)
            and texts[at] != word
            and any((text or "-").startswith("-") for text in texts[at - 1 : at + 1])
        ):
            at += 1
        if texts[at : at + 1] != [word]:
            return False
        at += 1
    return True


def kinds_of(conditions: Sequence[Condition]) -> frozenset[str] | None:
    """Return kinds of which a call must have one, or the conditions do not hold; None where there
    may be others, too."""
    condition = conditions[0]
    return None if condition.wants_unsure else condition.kinds or None


Held = Literal["no", "unsure", "yes"]


def denied(conditions: Sequence[Condition], touch: Touch) -> Held:
    """Do all conditions hold; or would they if what is unsure did, where a condition says that this
    counts?"""
    if len(conditions) == 1:
        # as most rules have it
        return (
            "yes"
            if conditions[0].finds(touch)
            else "unsure"
            if touch.unsure and conditions[0].wants_unsure
            else "no"
        )
    held = [condition.finds(touch) for condition in conditions]
    if all(held):
        return "yes"
    if touch.unsure and all(
        is_held or condition.wants_unsure
        for is_held, condition in zip(held, conditions, strict=True)
    ):
        return "unsure"
    return "no"


def why(conditions: Sequence[Condition], touch: Touch, places: Places) -> str:
    """Return what a call does that the conditions name, in a sentence; empty where they name no
    effect and no command."""
    effects = [effect for condition in conditions for effect in condition.finds_of(touch)]
    if effects:
        return describe_worst(effects, places)
    named = [condition for condition in conditions if condition.names_commands]
    for command in touch.commands:
        if any(condition.forbids(command) for condition in named):
            return f"would run `{shown_command(f'{command.name} {command.line}')}`"
    return ""


def allowed(conditions: Sequence[Condition], touch: Touch, places: Places) -> bool:
    """Is everything that a call does named by a condition that is about it, and by each that is,
    and nothing unsure?"""
    if touch.unsure or not (touch.acts or touch.commands):
        return False
    for_commands = [condition for condition in conditions if condition.is_about_commands]
    if not all(_is_vouched_for(command, for_commands) for command in touch.commands) or not _stay(
        touch.commands, for_commands, places
    ):
        return False
    for act in touch.acts:
        about = [condition for condition in conditions if condition.is_about(act)]
        if not about or not all(
            condition.has(act.effect) or not condition.speaks_of_effects for condition in about
        ):
            return False
    return True


def _is_vouched_for(command: "Command", conditions: Sequence[Condition]) -> bool:
    """Is a command named, or is everything that it does among its effects, which are named?"""
    if not conditions or not all(
        _is_plain(name, value, command.name) for name, value in command.assignments
    ):
        return False
    naming = [condition for condition in conditions if condition.names_commands]
    if not naming:
        return _is_described(command)
    if not any(condition.speaks_of_effects for condition in naming) and _writes(command):
        # a command that is named may do what it does, but not into files that nobody named
        return False
    return all(condition.is_named(command) for condition in naming)


def _stay(commands: Sequence["Command"], conditions: Sequence[Condition], places: Places) -> bool:
    """Do commands that are named run no program by their options, and may they write wherever these
    lead, as far as effects are named?"""
    from policy.effects.shell.commands.file_commands import programs_of_options, strays

    if not any(condition.names_commands for condition in conditions):
        return True
    paths = [(command, path) for command in commands for path in strays(command)]
    if len(paths) > _MAX_STRAYS or any(map(programs_of_options, commands)):
        return False
    speaking = [condition for condition in conditions if condition.speaks_of_effects]
    for command, path in paths if speaking else ():
        where = places.place(path, cwd="" if command.cwd is None else command.cwd.known)
        effect = Effect.of("write", where.scope, where.path, by=command.name)
        if not all(condition.has(effect) for condition in speaking):
            return False
    return True


_MAX_STRAYS = 200
"""Paths in options of which nothing is known that are looked at in one call: some 20
milliseconds."""
_PLAIN_VARIABLES = frozenset(
    """LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME TZ TERM COLUMNS LINES CI DEBUG VERBOSE NO_COLOR
    FORCE_COLOR CLICOLOR COLORTERM NODE_ENV RAILS_ENV RUST_BACKTRACE PYTHONDONTWRITEBYTECODE
    PYTHONUNBUFFERED PYTHONHASHSEED CGO_ENABLED
    GIT_TERMINAL_PROMPT GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME
    GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE REPLY
    MAPFILE OPTARG OPTIND""".split()
)
"""Variables in capitals that change how a program prints or what it notes. Any other may make it
run another program, read other settings or write a file: an `allow` rule vouches for none of
them."""


def _is_plain(name: str, value: "Word", command: str) -> bool:
    from policy.effects.shell.variable_names import OWN_NAME

    if name == "IFS":
        return command == "read" or value.text == ""
    if name in ("PAGER", "GIT_PAGER", "MANPAGER"):
        return value.text == "cat"
    return name in _PLAIN_VARIABLES or OWN_NAME.fullmatch(name) is not None


_PLAIN_WRAPPERS = frozenset(
    """nice ionice nohup setsid timeout gtimeout stdbuf command builtin exec env xargs find eval trap sh bash dash zsh ksh
    environment""".split()
)
"""What runs a command as it would run by itself, so that the command alone must be named."""


def _is_described(command: "Command") -> bool:
    from policy.effects.shell.commands.effects_of import is_described

    return is_described(command) and _PLAIN_WRAPPERS.issuperset(command.wrappers)


def _writes(command: "Command") -> bool:
    return any(
        ">" in redirect.op and redirect.target.text not in ("/dev/null", *map(str, range(10)))
        for redirect in command.redirects
    )


def compiled(*clauses: Does | Paths | Network | None) -> list[Condition]:
    """Return the conditions of a rule; all must hold."""
    return [Condition(clause) for clause in clauses if clause is not None]


def has_secret(secrets: Secrets, texts: Iterable[str]) -> bool:
    """Does one of the texts hold a credential of these kinds?"""
    names = None if secrets.kinds is None else NamePatterns(secrets.kinds)
    return any(
        names is None or names.match(secret.kind) for text in texts for secret in secrets_in(text)
    )
