"""Runs shells: a program text in an option, in a file, or in what they read."""

import re

from policy.effects.shell.command import Program, Word
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_text
from policy.effects.shell.run.state import Invocation, Out, texts

STDIN = tuple("- /dev/stdin /dev/fd/0 /proc/self/fd/0 /dev/tty".split())
_VALUED = tuple("-o +o -O +O --rcfile --init-file --init-command -C --command".split())
"""Options that take the next word."""


def shell(machine: Machine, call: Invocation) -> Out:
    """`bash`, `sh` and the others: `-c text`, a file, or what they read."""
    fields = call.fields
    at = 1
    is_text = reads_stdin = False
    while at < len(fields):
        text = fields[at].text
        if text in _VALUED:
            value = call.at(at + 1)
            if text in ("--rcfile", "--init-file") and (known := machine.read(value)):
                run_text(machine, call, known.text, "file", is_child=True)
            if text in ("--init-command", "--command") and at + 1 < len(fields):
                return run_text(machine, call, value, "argument", is_child=True)
            at += 2
        elif text in ("-", "--"):
            at += 1
            break
        elif re.match(r"[-+][A-Za-z]", text):
            is_text = is_text or (text[0] == "-" and "c" in text[1:])
            reads_stdin = reads_stdin or (text[0] == "-" and "s" in text[1:])
            at += 2 if text[-1] in "oO" and len(text) > 1 else 1
        elif text.startswith("--"):
            at += 1
        else:
            break
    words = texts(fields[at + 1 :])
    if is_text:
        if at >= len(fields):
            return machine.silent(call)
        return run_text(
            machine,
            call,
            fields[at].text,
            "argument",
            is_child=True,
            arguments=words[1:],
            zero=words[0] if words else "",
        )
    if at < len(fields) and not reads_stdin and fields[at].text not in STDIN:
        return script(machine, call, fields[at].text, words)
    return from_stdin(machine, call, words if not reads_stdin else texts(fields[at:]))


def from_stdin(machine: Machine, call: Invocation, arguments: list[str]) -> Out:
    """Run what a shell reads as its program."""
    if call.stdin is None:
        if call.file is None:
            return machine.silent(call)
        place = machine.emit(call, Program("sh", Word(None), "file"))
        return machine.unknown_output(place)
    return run_text(
        machine,
        call,
        call.stdin.text,
        "command" if call.stdin.commands else "stdin",
        is_child=True,
        arguments=arguments,
    )


def script(machine: Machine, call: Invocation, path: str, arguments: list[str]) -> Out:
    """Run a script in a file, if the text wrote it itself."""
    known = machine.read(path)
    if known is not None:
        return run_text(
            machine,
            call,
            known.text,
            "command" if path in machine.sources else "file",
            is_child=True,
            arguments=arguments,
            zero=path,
        )
    place = machine.emit(call, Program("sh", machine.word(machine.unknowns.blur(path)), "file"))
    return machine.unknown_output(place)
