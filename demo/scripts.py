"""Scripts for the scripted model (docs/use/scripts.md): parses a file into turns, and reports every
mistake with its line.

A file holds JSON, one object a line, of three forms. A turn: what the model says in one answer. A
trajectory: an id and a list of turns, so that one file may hold many. A tool call as ControlArena's
trajectories have it: each is a turn of its own.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Literal

import msgspec

from protocol.bounds import (
    SCRIPT_CALLS,
    SCRIPT_FILE_BYTES,
    SCRIPT_TRAJECTORIES,
    SCRIPT_TURNS,
    SCRIPT_WAIT_S,
)
from protocol.errors import PipelineError
from protocol.events import StopReason, Usage

PREFIX, SUFFIX = "script-", ".jsonl"
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=SCRIPT_WAIT_S)]
Length = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Split = (
    Literal["byte", "token", "whole"]
    | Length
    | Annotated[tuple[Length, ...], msgspec.Meta(min_length=1, max_length=1_000)]
)
"""How texts and arguments are cut into deltas: one character each, words and marks, uncut, so many
characters, or such lengths again and again."""


class ScriptError(PipelineError):
    """A script that is not there, or cannot be read. The message names the file, without its
    folder, and the line."""

    code, http_status = "bad_script", 500


class NoScript(ScriptError):
    """There is no script of that name."""

    code, http_status = "model_not_found", 404


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `arguments`: a JSON object, taken to the letter; or a string, which is the exact
    text, JSON or not."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as the model writes them."""
        raw = bytes(self.arguments)
        return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error instead of an answer."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    message: str = "the script says so"


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: thinking, then text, then calls. What it does not say of its pace, its trajectory
    says."""

    text: str = ""
    thinking: str = ""
    calls: Annotated[tuple[ScriptedCall, ...], msgspec.Meta(max_length=SCRIPT_CALLS)] = ()
    stop: StopReason | None = None
    """Unset: `tool_use` where there are calls, else `end_turn`."""
    usage: Usage | None = None
    wait_s: Seconds | None = None
    """Silence before the answer."""
    gap_s: Seconds | None = None
    """Silence before each further piece of a stream."""
    split: Split | None = None
    ending: Literal["", "error", "cut"] = ""
    """An answer that breaks half-way: with an error, or without a word."""
    error: Fault | None = None
    note: str = ""
    """For people."""


class Trajectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns that belong together, with what holds for each of them that does not say otherwise."""

    turns: Annotated[tuple[ScriptedTurn, ...], msgspec.Meta(min_length=1, max_length=SCRIPT_TURNS)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = ""
    wait_s: Seconds = 0.0
    gap_s: Seconds = 0.0
    split: Split = "token"
    note: str = ""


class _ArenaCall(msgspec.Struct, frozen=True):
    """A line of ControlArena's: what Inspect's ToolCall is written as. Other fields are for its own
    viewers."""

    function: str
    arguments: msgspec.Raw
    id: str = ""
    type: Literal["function", "custom"] | None = None


class ScriptFile(msgspec.Struct, frozen=True):
    """A file, read."""

    file: str
    trajectories: Mapping[str, Trajectory]

    def trajectory(self, name: str) -> Trajectory:
        """Return the trajectory of that id; without one, the only one. Raises NoScript."""
        if not name and len(self.trajectories) == 1:
            return next(iter(self.trajectories.values()))
        if name not in self.trajectories:
            some = ", ".join(map(repr, list(self.trajectories)[:5])) + (
                ", ..." if len(self.trajectories) > 5 else ""
            )
            problem = (
                f"has no trajectory {name!r}"
                if name
                else "has several trajectories: put `:` and an id behind the model's name"
            )
            raise NoScript(f"{self.file} {problem}; there are {some}", param="model")
        return self.trajectories[name]


_turn, _trajectory = msgspec.json.Decoder(ScriptedTurn), msgspec.json.Decoder(Trajectory)
_arena, _any = msgspec.json.Decoder(_ArenaCall), msgspec.json.Decoder(dict[str, msgspec.Raw])


def place(model: str) -> tuple[str, str]:
    """Return the file and the trajectory that a model's name asks for. Raises NoScript where no
    file can have that name: a client chooses it, and no folder can be named."""
    name, _, trajectory = model.removeprefix(PREFIX).partition(":")
    if _FILE.fullmatch(name) is None:
        form = f"{PREFIX}NAME or {PREFIX}NAME:ID, where NAME has letters, digits, `.`, `_` and `-`"
        raise NoScript(f"the model {model[:100]!r} names no script: it is {form}", param="model")
    return name + SUFFIX, trajectory


def read(path: Path) -> ScriptFile:
    """Read a file. Raises ScriptError, NoScript where there is none."""
    try:
        stat = path.stat()
        if not S_ISREG(stat.st_mode):
            raise ScriptError(f"the script {path.name} is not a file")
        if stat.st_size > SCRIPT_FILE_BYTES:
            raise ScriptError(
                f"the script {path.name} has {stat.st_size:,} bytes; one may have"
                f" {SCRIPT_FILE_BYTES:,}"
            )
        with path.open("rb") as opened:
            data = opened.read(SCRIPT_FILE_BYTES + 1)
    except FileNotFoundError:
        raise NoScript(
            f"there is no script {path.name} in the folder of scripts", param="model"
        ) from None
    except OSError as error:
        raise ScriptError(f"the script {path.name} cannot be read: {error.strerror}") from error
    return parse(path.name, data[:SCRIPT_FILE_BYTES])


def parse(file: str, data: bytes) -> ScriptFile:
    """Return what a file's bytes say. Raises ScriptError with the line."""
    turns, trajectories = list[ScriptedTurn](), dict[str, Trajectory]()
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            parsed = _line(line)
            if isinstance(parsed, ScriptedTurn):
                turns.append(parsed)
            elif (identity := parsed.id or str(len(trajectories) + 1)) in trajectories:
                raise ValueError(f"another trajectory has the id {identity!r}")
            else:
                trajectories[identity] = parsed
            _bound(turns, trajectories)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise ScriptError(f"{file} line {number}: {error}") from error
    if not turns and not trajectories:
        raise ScriptError(f"{file} line 1: has no turn")
    return ScriptFile(file, trajectories or {file.removesuffix(SUFFIX): Trajectory(tuple(turns))})


def _bound(turns: list[ScriptedTurn], trajectories: Mapping[str, Trajectory]) -> None:
    if turns and trajectories:
        raise ValueError(
            "a file has either turns, which are one trajectory, or trajectories (`turns`) on its"
            " lines, not both"
        )
    if len(turns) > SCRIPT_TURNS:
        raise ValueError(f"a trajectory has at most {SCRIPT_TURNS:,} turns")
    if len(trajectories) > SCRIPT_TRAJECTORIES:
        raise ValueError(f"a file has at most {SCRIPT_TRAJECTORIES:,} trajectories")


def _line(line: bytes) -> ScriptedTurn | Trajectory:
    """Return what one line says. Raises ValueError, MsgspecError."""
    fields = _any.decode(line)
    if "function" in fields:
        call = _arena.decode(line)
        parsed: ScriptedTurn | Trajectory = ScriptedTurn(
            calls=(ScriptedCall(call.function, call.arguments, call.id),)
        )
    elif "turns" in fields:
        parsed = _trajectory.decode(line)
    else:
        parsed = _turn.decode(line)
    for turn in parsed.turns if isinstance(parsed, Trajectory) else (parsed,):
        for text in _texts(turn):
            text.encode()
    return parsed


def _texts(turn: ScriptedTurn) -> Iterator[str]:
    """Every text of a turn. Raises ValueError for a call without a name, and arguments that are
    neither an object nor a text."""
    yield from (turn.text, turn.thinking)
    for call in turn.calls:
        if not call.name:
            raise ValueError("a call has no name")
        if not bytes(call.arguments).startswith((b"{", b'"')):
            raise ValueError(
                f"the arguments of the call {call.name!r} are neither an object nor a text"
            )
        yield from (call.name, call.id, call.text)


def faults(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the file and what is wrong with it, for each script of a folder that cannot be
    played."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if _FILE.fullmatch(path.name.removesuffix(SUFFIX)) is None:
            yield (
                path.name,
                (
                    f"{path.name}: no model can name it; a script's name has letters, digits, `.`,"
                    " `_` and `-`"
                ),
            )
            continue
        try:
            read(path)
        except ScriptError as error:
            yield path.name, error.message
