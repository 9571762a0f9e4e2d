"""Options and operands of a command, from its words: short and long options, clusters, values
behind `=` or in the next word.

Which options take a value differs from command to command, so the tables list them. Everything else
is an operand.
"""

from collections.abc import Collection, Iterator

import msgspec

from policy.effects.shell.command import Command, Word

_SHORTEST = 3
"""Characters of an option that is too short to be another one cut short."""


class Args(msgspec.Struct, frozen=True):
    """The options with and without a value, dashes included, and the operands."""

    flags: tuple[str, ...]
    values: tuple[tuple[str, Word], ...]
    operands: tuple[Word, ...]

    def has(self, names: str) -> bool:
        """Is one of these options given, as `-r|--recursive`? A long one may be cut short, as GNU
        programs take it: `--recurs`."""
        options = names.split("|")
        for flag in self.flags:
            if flag in options or _begins(flag, options):
                return True
        return bool(self.values) and bool(self.all(names))

    def all(self, names: str) -> list[Word]:
        """Return the values of these options."""
        options = names.split("|")
        return [
            value for option, value in self.values if option in options or _begins(option, options)
        ]

    def first(self, names: str) -> Word | None:
        """Return the value of the first of these options."""
        values = self.all(names)
        return values[0] if values else None

    @property
    def texts(self) -> list[str]:
        """The operands as far as they are known."""
        return [word.known for word in self.operands]

    def starts(self, *texts: str) -> bool:
        """Are these the first operands, in lower case?"""
        return [text.lower() for text in self.texts[: len(texts)]] == list(texts)


def _begins(option: str, names: Collection[str]) -> bool:
    return option.startswith("--") and full_name(option, names) in names


def full_name(option: str, names: Collection[str]) -> str:
    """Return the one of these long options that is meant, which GNU programs and git take cut
    short: `--outp`."""
    if option in names or len(option) <= _SHORTEST:
        return option
    return next((name for name in names if name.startswith(option)), option)


def args_of(command: Command, valued: Collection[str] = (), *, single: bool = False) -> Args:
    """Take a command's words apart. `valued`: options that take a value. `single`: long options
    have one dash, and none are clusters."""
    flags: list[str] = []
    values: list[tuple[str, Word]] = []
    operands: list[Word] = []
    words = iter(command.words[1:])
    for word in words:
        text = word.text if word.text is not None else word.prefix
        if not text.startswith("-") or text == "-":
            operands.append(word)
        elif text == "--":
            operands += list(words)
        elif text.startswith("--") or single:
            option, equals, _ = text.partition("=")
            name = option if single else full_name(option, valued)
            if equals:
                values.append((name, tail(word, len(option) + 1)))
            elif name in valued and (value := next(words, None)) is not None:
                values.append((name, value))
            else:
                flags.append(name)
        else:
            _cluster(word, text, valued, words, flags, values)
    return Args(tuple(flags), tuple(values), tuple(operands))


def _cluster(
    word: Word,
    text: str,
    valued: Collection[str],
    words: Iterator[Word],
    flags: list[str],
    values: list[tuple[str, Word]],
) -> None:
    for position in range(1, min(len(text), 64)):
        name = "-" + text[position]
        if name not in valued:
            flags.append(name)
            continue
        remainder = text[position + 1 :]
        value = tail(word, position + 1) if remainder or word.text is None else next(words, None)
        if value is not None:
            values.append((name, value))
        return


def tail(word: Word, start: int) -> Word:
    """Return a word without its first characters, which are known."""
    if word.text is not None:
        return Word(
            word.text[start:], is_glob=word.is_glob, outputs=word.outputs, variables=word.variables
        )
    return Word(
        None,
        word.prefix[start:],
        word.bare[start:],
        word.is_glob,
        word.is_many,
        word.variables,
        word.outputs,
        tuple(gap - start for gap in word.gaps if gap >= start),
    )
