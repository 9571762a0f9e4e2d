"""Runs texts that a command or a variable holds for a shell."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from policy.effects.shell.command import Program, ProgramSource
from policy.effects.shell.parse import escapes
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import is_known

VARIABLES = frozenset(
    """PAGER MANPAGER GIT_PAGER BAT_PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR SUDO_EDITOR GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF
    GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS PROMPT_COMMAND LESSOPEN LESSCLOSE BROWSER
    RSYNC_RSH TAR_OPTIONS CVS_RSH
    FCEDIT MANOPT""".split()
)
"""Variables whose value other programs run."""


def run_values(machine: Machine, call: Invocation, values: Iterable[str], wrapper: str) -> None:
    """Run texts that a tool would run."""
    for value in values:
        if value.strip() and any(is_known(sign) for sign in value):
            machine.program(value, replace(call, wrappers=(*call.wrappers, wrapper), stdin=None))


def running(
    commands: Callable[[list[str]], Iterable[str]], *, is_elsewhere: bool = False
) -> Callable[[Machine, Invocation], Out]:
    """Make the handler of a tool that runs texts, here or on other hosts. `commands` finds them
    among its words."""

    def handle(machine: Machine, call: Invocation) -> Out:
        place = machine.emit(call)
        around = replace(call, place="remote") if is_elsewhere else call
        run_values(machine, around, commands(call.words), machine.drafts[place].name)
        return machine.unknown_output(place)

    return handle


def run_environment(machine: Machine, call: Invocation, assigns: Iterable[tuple[str, str]]) -> None:
    """Run what variables make other programs run."""
    for name, value in assigns:
        if name in ("PS0", "PS1", "PS2", "PS4", "BASH_ENV", "ENV") and (
            "$(" in value or "`" in value
        ):
            run_values(machine, call, [f': "{value}"'], name)
        elif value.startswith("() {"):
            # A function for shells that it starts, and what older ones run behind it.
            run_values(machine, call, [value[2:]], "environment")
        elif name in VARIABLES:
            run_values(machine, call, [value], "environment")
        elif name in ("BASH_ENV", "ENV") and (known := machine.read(value)) is not None:
            run_values(machine, call, [known.text], name)


def run_text(
    machine: Machine,
    call: Invocation,
    text: str,
    source: ProgramSource,
    *,
    is_child: bool,
    arguments: list[str] | None = None,
    zero: str = "",
) -> Out:
    """Note a command that runs a shell text, and run that. If it is not known it is the command's
    own program, which nobody read."""
    known = machine.unknowns.blur(text) if not is_known(text) else ""
    is_read = (
        bool(text.strip())
        and text.strip() not in (known, *machine.sources)
        and any(is_known(sign) for sign in text.strip())
    )
    program = Program("sh", machine.word(text), source, is_read or not text.strip())
    place = machine.emit(call, program)
    if not is_read:
        return machine.unknown_output(place)
    if (
        source == "command"
        and "\\" in text
        and call.stdin is not None
        and [machine.drafts[index].name for index in call.stdin.commands] == ["echo"]
    ):
        # The `echo` of some shells resolves escapes by itself.
        text = "\n".join(dict.fromkeys((text, escapes.echo(text))))
    inner = replace(
        call,
        wrappers=(*call.wrappers, machine.drafts[place].name),
        stdin=None if source in ("stdin", "command") else call.stdin,
    )
    return machine.program(text, inner, is_child=is_child, arguments=arguments, zero=zero)


def source(machine: Machine, call: Invocation) -> Out:
    """`source file`, `. file`: a program in a file, which may be one that the text wrote, or
    `<(...)`."""
    path = call.at(1)
    arguments = texts(call.fields[2:]) or None
    known = (
        call.stdin
        if path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-")
        else machine.read(path)
    )
    if known is not None:
        return run_text(
            machine,
            call,
            known.text,
            "command" if path in machine.sources or known.commands else "file",
            is_child=False,
            arguments=arguments,
        )
    place = machine.emit(call, Program("sh", machine.word(machine.unknowns.blur(path)), "file"))
    return machine.unknown_output(place)
