"""The scripted model: it plays trajectories from files (docs/use/scripts.md) as an upstream of
either dialect, with no provider key.

Which file it plays follows from the model's name, and which turn from the number of the assistant's
turns in the request. So it keeps nothing between requests: a retry, or a call that another worker
took over, gets the same bytes. Like the demo model it runs in a process of its own (`demo_server`),
and it reads files beside that process's event loop.
"""

import asyncio
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import cycle
from pathlib import Path

from demo import answer as demo_answer
from demo import scripts
from demo.answer import DemoPace
from demo.model import ScriptedAnswer as Answer
from demo.scripts import ScriptedCall, ScriptedTurn, Split, Trajectory
from protocol import events as e
from protocol.bounds import SCRIPT_FILES
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest, LocalProtocolError, PipelineError
from protocol.request import ChatRequest, DialectName

_TOKENS = re.compile(r"\s?\w{1,6}|[^\w\s]+|\s+")
OVER = (
    "The script is over: this is a scripted model of Sluice, not a language model, and it has no"
    " turn {turn}."
)


class ScriptModel:
    """Plays the files of a folder; the last few are kept for as long as they do not change."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._cache = dict[str, tuple[tuple[int, int], scripts.ScriptFile]]()
        self._reading = asyncio.Lock()

    async def answer(self, dialect: DialectName, endpoint: str, body: bytes) -> Answer:
        """Return the answer to a request body. What cannot be played is answered with the dialect's
        error."""
        try:
            if endpoint == "count_tokens":
                return Answer(steps=[(0, b'{"input_tokens": %d}' % max(1, len(body) // 4))])
            request = await asyncio.to_thread(CLIENTS[dialect].decode_request, body)
            file, identity = scripts.place(request.model)
            async with self._reading:
                script = await asyncio.to_thread(self._read, file)
            return play(script.trajectory(identity), request, body)
        except PipelineError as error:
            return Answer(error.http_status, steps=[(0, DIALECTS[dialect].error_body(error))])

    def _read(self, file: str) -> scripts.ScriptFile:
        path = self._folder / file
        try:
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            return scripts.read(path)
        known = self._cache.pop(file, None)
        script = known[1] if known is not None and known[0] == seen else scripts.read(path)
        self._cache[file] = seen, script
        while len(self._cache) > SCRIPT_FILES:
            self._cache.pop(next(iter(self._cache)))
        return script


def play(trajectory: Trajectory, request: ChatRequest, body: bytes) -> Answer:
    """Return the turn that is due as an answer. Raises InvalidRequest for one that the dialect
    cannot write."""
    number = sum(turn.role == "assistant" for turn in request.turns)
    turn = (
        trajectory.turns[number]
        if number < len(trajectory.turns)
        else ScriptedTurn(text=OVER.format(turn=number + 1))
    )
    if turn.error is not None:
        again = "1" if turn.error.status in (429, 503, 529) else None
        body = demo_answer.error_body(request.dialect, turn.error.status, turn.error.message)
        return Answer(turn.error.status, retry_after=again, steps=[(0, body)])
    split = trajectory.split if turn.split is None else turn.split
    pace = DemoPace(
        trajectory.wait_s if turn.wait_s is None else turn.wait_s,
        trajectory.gap_s if turn.gap_s is None else turn.gap_s,
        turn.ending,
        "the script says so",
    )
    identity = sha256(body).hexdigest()[:24]
    usage = turn.usage or e.Usage(max(1, len(body) // 4), _tokens(turn))
    steps = demo_answer.paced(
        ChatRequest(
            dialect=request.dialect,
            model=request.model,
            stream=request.stream,
            include_usage=request.include_usage,
        ),
        lambda: events(turn, split, usage, model=request.model, identity=identity),
        pace,
        call_id=identity,
    )
    if not request.stream:
        try:
            steps = iter(list(steps))
        except LocalProtocolError as error:
            raise InvalidRequest(
                f"turn {number + 1} of the script cannot be said in one piece: {error}; stream it",
                param="stream",
            ) from error
    return Answer(
        content_type="text/event-stream" if request.stream else "application/json", steps=steps
    )


def events(
    turn: ScriptedTurn, split: Split, usage: e.Usage, *, model: str, identity: str
) -> Iterator[e.Event]:
    """Yield a turn as a dialect's encoder takes it, in the deltas that `split` asks for."""
    yield e.MessageStart(
        "", model, e.Usage(usage.input_tokens, 1, usage.cache_read_tokens, usage.cache_write_tokens)
    )
    index = 0
    for kind, text in ((e.BlockKind.THINKING, turn.thinking), (e.BlockKind.TEXT, turn.text)):
        if text or (kind is e.BlockKind.TEXT and not turn.calls):
            yield e.BlockStart(index, kind)
            yield from (e.TextDelta(index, piece) for piece in pieces(text, split))
            if kind is e.BlockKind.THINKING:
                yield e.SignatureDelta(index, f"script-signature-{identity}")
            yield e.BlockStop(index)
            index += 1
    for number, call in enumerate(turn.calls):
        yield from _call(index, call, call.id or f"call_{identity[:8]}{number}", split)
        index += 1
    stop = turn.stop or (e.StopReason.TOOL_USE if turn.calls else e.StopReason.END_TURN)
    yield e.MessageStop(stop, usage)


def _call(index: int, call: ScriptedCall, identity: str, split: Split) -> Iterator[e.Event]:
    yield e.BlockStart(index, e.BlockKind.TOOL_USE, id=identity, name=call.name)
    text = call.text
    yield from (
        e.ArgumentsDelta(index, piece) for piece in ([] if text == "{}" else pieces(text, split))
    )
    yield e.BlockStop(index)


def pieces(text: str, split: Split) -> list[str]:
    """Return the pieces of a text, which together are the text."""
    if split == "whole":
        return [text] if text else []
    if split == "token":
        return _TOKENS.findall(text)
    lengths, parts, at = (
        cycle((split,) if isinstance(split, int) else (1,) if isinstance(split, str) else split),
        list[str](),
        0,
    )
    while at < len(text):
        length = next(lengths)
        parts.append(text[at : at + length])
        at += length
    return parts


def _tokens(turn: ScriptedTurn) -> int:
    """An estimate: a token for every four characters."""
    return max(
        1,
        (
            len(turn.text)
            + len(turn.thinking)
            + sum(len(call.name) + len(call.text) for call in turn.calls)
        )
        // 4,
    )
