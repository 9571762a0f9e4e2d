"""Reads a shell text: the commands that would really run, and what about them is not sure. Never
raises; its work is bounded."""

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from policy.effects.shell.command import Resolved
from policy.effects.shell.parse.budget import (
    MAX_NODES,
    MAX_TEXT_BYTES,
    NotRead,
    OutOfWork,
    StepBudget,
)
from policy.effects.shell.parse.parsing import parse
from policy.effects.shell.run.dispatching import dispatch
from policy.effects.shell.run.finished_commands import commands_of
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.values import as_text, is_known, without_signs

_UNSEEN = re.compile(
    "[\0\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_BLANKS = re.compile("[\v\f\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_WIDE = {0xFF00 + code: 0x20 + code for code in range(0x01, 0x5F)}
_SURROGATES = re.compile("[\ud800-\udfff]")
_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    re.error,
)
"""What the machine should never raise: a text that makes it do so is not understood."""
_LEAST_NODES = 80


class EarlierStep(msgspec.Struct, frozen=True):
    """One thing that an earlier call did: a text for a shell, or, with a `path`, what was written
    into the file there.

    `adds`: in the place of `old`, or behind what the file held. `is_apart`: in a folder of its own,
    where it left the shell's folder alone.
    """

    text: str
    path: str = ""
    adds: bool = False
    old: str = ""
    is_apart: bool = False


Keeps = Callable[[str, int], bool]
"""Does the shell stay in a folder to which it went so many steps ago?"""


def plain(text: str) -> str:
    """Return the text as the most lenient reader takes it: one kind of line end, nothing that
    nobody sees, wide letters as plain ones."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and "\0" not in text and "\v" not in text and "\f" not in text:
        return text
    text = _BLANKS.sub(" ", _UNSEEN.sub("", _SURROGATES.sub("\ufffd", text)))
    return without_signs(text.translate(_WIDE))


def resolve(
    text: str,
    *,
    home: str = "~",
    project: str = ".",
    earlier: Sequence[EarlierStep] = (),
    keeps: Keeps = lambda folder, ago: True,
) -> Resolved:
    """Find the commands of a text. `home` and `project`: what stands for the home folder and for
    the one it begins in. `earlier`: what ran before it, whose commands are in the list, too."""
    if len(text) > MAX_TEXT_BYTES or (
        not text.isascii() and len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES
    ):
        return Resolved(
            (), (f"size: a text of more than {MAX_TEXT_BYTES // 1024} KiB is not read",)
        )
    machine = Machine(home, project, dispatch)
    is_whole = True
    if earlier:
        steps = [step if step.path else replace(step, text=plain(step.text)) for step in earlier]
        is_whole = _run_earlier(machine, steps, keeps)
    since, before = len(machine.drafts), dict(machine.files)
    try:
        body, errors = parse(plain(text), machine.budget)
        for error in errors:
            machine.unsure(error)
        machine.run(body, None)
        machine.finish()
    except (OutOfWork, NotRead) as error:
        machine.unsure(error.reason)
    except _FAULTS as error:
        # Nothing here should raise; if something does, the text is one that is not understood.
        machine.unsure(f"parse: {type(error).__name__}")
    commands = commands_of(machine)
    if not commands and not machine.reasons:
        machine.unsure("empty: no command was found")
    files = [
        (machine.word(path).known, text)
        for path, text in machine.files.items()
        if text.strip() and is_known(text) and before.get(path) != text
    ]
    return Resolved(
        commands,
        tuple(machine.reasons),
        tuple((path.replace("/./", "/"), as_text(text)) for path, text in files),
        since,
        is_whole,
    )


def _run_earlier(machine: Machine, steps: Sequence[EarlierStep], keeps: Keeps) -> bool:
    """Run the steps in their order; say whether all of them were read.

    What could not be read of them says nothing about the text that follows, which has a budget of
    its own.
    """
    is_whole = True
    values = machine.variables.values
    machine.is_past = True
    for number, step in enumerate(steps):
        machine.budget = StepBudget(max(_LEAST_NODES, MAX_NODES // len(steps)))
        folder = values.pop("PWD", None) if step.is_apart else values.get("PWD")
        try:
            if step.path:
                _write(machine, step)
            else:
                body, _ = parse(step.text, machine.budget)
                machine.run(body, None)
        except (NotRead, *_FAULTS):
            is_whole = False
        values = machine.variables.values
        if step.is_apart:
            values.pop("PWD", None)
            if folder is not None:
                values["PWD"] = folder
        elif (now := machine.cwd()) and not keeps(machine.word(now).known, len(steps) - 1 - number):
            del values["PWD"]
    machine.called.update(machine.functions)
    machine.reasons.clear()
    machine.variables.noted.clear()
    machine.budget, machine.is_past = StepBudget(), False
    return is_whole


def _write(machine: Machine, step: EarlierStep) -> None:
    known = machine.files.get(machine.path(step.path)) if step.old else None
    if known is not None and step.old in known:
        machine.write(step.path, known.replace(step.old, step.text, 1))
    else:
        machine.write(step.path, step.text, is_more=step.adds)
