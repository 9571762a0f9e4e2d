"""Runs what earlier calls of a conversation ran, before a text is read: their files, variables and
folder are there when it begins.

Must not know: which calls those are.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from policy.effects.shell.parse.budget import MAX_NODES, NotRead, StepBudget
from policy.effects.shell.parse.parsing import parse
from policy.effects.shell.run.machine import Machine

FAULTS = (
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


def run_earlier(machine: Machine, steps: Sequence[EarlierStep], keeps: Keeps) -> bool:
    """Run the steps in their order; say whether all of them were read.

    What could not be read of them says nothing about the text that follows, which has a budget of
    its own.
    """
    is_whole = True
    values = machine.variables.values
    for number, step in enumerate(steps):
        machine.budget = StepBudget(max(_LEAST_NODES, MAX_NODES // len(steps)))
        folder = values.pop("PWD", None) if step.is_apart else values.get("PWD")
        try:
            if step.path:
                _write(machine, step)
            else:
                body, _ = parse(step.text, machine.budget)
                machine.run(body, None)
        except (NotRead, *FAULTS):
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
    machine.budget = StepBudget()
    return is_whole


def _write(machine: Machine, step: EarlierStep) -> None:
    known = machine.files.get(machine.path(step.path)) if step.old else None
    if known is not None and step.old in known:
        machine.write(step.path, known.replace(step.old, step.text, 1))
    else:
        machine.write(step.path, step.text, is_more=step.adds)
