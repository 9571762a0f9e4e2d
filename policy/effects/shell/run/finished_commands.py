"""Turns the commands that were found into the values that other modules see."""

from policy.effects.shell.command import NO_STDIN, Command, Redirect, Stdin, Word
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.state import PendingCommand
from policy.effects.shell.run.values import Field


def commands_of(machine: Machine) -> tuple[Command, ...]:
    """Return what was found, in its order."""
    commands = [_command(machine, draft) for draft in machine.drafts]
    if noted := machine.variables.noted:
        commands.append(Command("", (), tuple([(name, Word(None)) for name in sorted(noted)])))
    return tuple(commands)


def _command(machine: Machine, draft: PendingCommand) -> Command:
    call = draft.call
    word = machine.word_of
    return Command(
        draft.name,
        # lists: each generator is a function more, and this runs for every command
        tuple(
            [
                # as nearly all words are: what `word` makes of such a one
                (
                    Word(field.text, "", "", field.is_glob, field.is_many)
                    if field.text.isascii() and field.text[:1] != "~"
                    else word(field)
                )
                for field in call.fields
            ]
        ),
        tuple([(name, word(Field(text))) for name, text in call.assigns]),
        tuple([Redirect(op, fd, word(target)) for op, fd, target in call.redirs]),
        _stdin(machine, draft),
        draft.feeds,
        call.is_root,
        call.wrappers,
        word(Field(draft.cwd)) if draft.cwd else None,
        call.place,
        call.host,
        draft.programs,
    )


def _stdin(machine: Machine, draft: PendingCommand) -> Stdin:
    read = draft.call.stdin
    if read is None:
        return (
            NO_STDIN
            if draft.call.file is None
            else Stdin("file", path=machine.word_of(draft.call.file))
        )
    word = machine.word(read.text)
    last = read.commands[-1] if read.commands else -1
    if word.text is not None:
        return Stdin(
            "text", word.text.removeprefix("./") if read.text.startswith("~") else word.text, last
        )
    others = tuple(
        dict.fromkeys(index for index in (*word.outputs, *read.commands) if index != last)
    )
    return Stdin(
        "command" if read.commands else "unknown",
        word.prefix,
        last,
        others=others,
        variables=word.variables,
    )
