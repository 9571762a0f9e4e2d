"""Counts what the interpreter does in a running process. Python loads it by its name where this
folder is on PYTHONPATH.

SIGUSR1 begins to count, in the thread that runs the event loop; SIGUSR2 ends it. Each is answered
by a file in GATE_COUNTS: `PID.counting`, and `PID.counted` with two numbers: instructions
(bytecodes) and calls of functions, those in C too. Until then nothing is slower than without it.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

_instructions = _calls = 0


def _profile(_frame: FrameType, event: str, _argument: object) -> None:
    global _calls
    if event in ("call", "c_call"):
        _calls += 1


def _enter(frame: FrameType, _event: str, _argument: object) -> object:
    frame.f_trace_lines, frame.f_trace_opcodes = False, True
    return _trace


def _trace(_frame: FrameType, event: str, _argument: object) -> object:
    global _instructions
    if event == "opcode":
        _instructions += 1
    return _trace


def _answer(name: str, text: str) -> None:
    path = Path(os.environ["GATE_COUNTS"], f"{os.getpid()}.{name}")
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _begin(*_: object) -> None:
    global _instructions, _calls
    _answer("counting", "")
    _instructions = _calls = 0
    sys.setprofile(_profile)
    sys.settrace(_enter)  # type: ignore[arg-type]


def _end(*_: object) -> None:
    sys.settrace(None)
    sys.setprofile(None)
    _answer("counted", f"{_instructions} {_calls}")


if "GATE_COUNTS" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
