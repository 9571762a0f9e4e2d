"""Arguments of a call that come in pieces: values by their JSON paths, put together to one object
(Vertex, `partialArgs`).

We never ask for it, because a call waits until it is complete anyway. Each leaf comes once: a
repeated path, or another one inside it, could mean two objects, so it is refused.
"""

import re
from typing import Any

import msgspec

from protocol.bounds import MAX_ANSWER_VALUES, MAX_SCHEMA_DEPTH
from protocol.bytes.json_strict import dumps
from protocol.errors import RemoteProtocolError

_STEP = re.compile(r"\.([^.\[\]'\"]+)|\[([0-9]{1,7})\]|\['([^'\\]*)'\]|\[\"([^\"\\]*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
Step = str | int


class _Text:
    """A string that may go on."""

    __slots__ = ("goes_on", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.goes_on = True


class Arguments:
    """The object of one call."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self._texts: dict[str, _Text] = {}
        self._places: list[tuple[Any, Step, _Text]] = []
        """Where each text will stand."""
        self._count = 0

    def take(self, pieces: list[Any]) -> None:
        """Take pieces. Raises RemoteProtocolError for what does not say one object."""
        for piece in pieces:
            path = piece.get("jsonPath") if isinstance(piece, dict) else None
            if not isinstance(path, str):
                raise RemoteProtocolError("upstream sent a part of an argument without its path")
            value_names = [name for name in _VALUES if name in piece]
            if len(value_names) != 1:
                raise RemoteProtocolError(
                    "upstream sent a part of an argument that has not one value"
                )
            self._one(
                path,
                value_names[0],
                piece[value_names[0]],
                goes_on=piece.get("willContinue") is True,
            )

    def _one(self, path: str, kind: str, value: Any, *, goes_on: bool) -> None:
        if (text := self._texts.get(path)) is not None:
            if kind != "stringValue" or not text.goes_on or not isinstance(value, str):
                raise RemoteProtocolError("upstream sent an argument twice")
            text.pieces.append(value)
            text.goes_on = goes_on
            return
        if kind == "stringValue":
            if not isinstance(value, str):
                raise RemoteProtocolError("upstream sent an argument of another type than it says")
            text = self._texts[path] = _Text()
            text.pieces.append(value)
            text.goes_on = goes_on
            self._put(_steps(path), text)
            return
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            goes_on
            or not {"numberValue": number, "boolValue": isinstance(value, bool), "nullValue": True}[
                kind
            ]
        ):
            raise RemoteProtocolError("upstream sent an argument of another type than it says")
        self._put(_steps(path), None if kind == "nullValue" else value)

    def _put(self, steps: list[Step], leaf: Any) -> None:
        self._count += len(steps)
        if self._count > MAX_ANSWER_VALUES:
            raise RemoteProtocolError("upstream sent too many parts of arguments")
        holder: Any = self._root
        for step, below in zip(steps, [*steps[1:], None], strict=True):
            made: Any = leaf if below is None else [] if isinstance(below, int) else {}
            if isinstance(made, _Text):
                self._places.append((holder, step, made))
            holder = _into(holder, step, made, is_leaf=below is None)

    def text(self) -> str:
        """Return the object as JSON text."""
        for holder, step, text in self._places:
            holder[step] = "".join(text.pieces)
        return dumps(self._root).decode()


def _steps(path: str) -> list[Step]:
    if not path.startswith("$"):
        raise RemoteProtocolError("upstream sent a path of an argument that cannot be read")
    steps: list[Step] = []
    place = 1
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None or len(steps) >= MAX_SCHEMA_DEPTH:
            raise RemoteProtocolError("upstream sent a path of an argument that cannot be read")
        name, number, quoted, doubly = match.groups()
        steps.append(
            int(number)
            if number is not None
            else next(n for n in (name, quoted, doubly) if n is not None)
        )
        place = match.end()
    if not steps or isinstance(steps[0], int):
        raise RemoteProtocolError("upstream sent a path of an argument that names none")
    return steps


def _into(holder: Any, step: Step, made: Any, *, is_leaf: bool) -> Any:
    """Go one step down, making what is not there; a leaf is new, and lists grow by one."""
    if isinstance(step, int):
        if not isinstance(holder, list) or step > len(holder) or (is_leaf and step < len(holder)):
            raise RemoteProtocolError("upstream sent a list of arguments out of order, or twice")
        if step == len(holder):
            holder.append(made)
    else:
        if not isinstance(holder, dict) or (is_leaf and step in holder):
            raise RemoteProtocolError("upstream sent an argument twice")
        holder.setdefault(step, made)
    return holder[step]


def whole(args: msgspec.Raw) -> str:
    """Return the arguments of a call that came whole, as JSON text exactly as upstream wrote it.
    Raises RemoteProtocolError."""
    try:
        text = bytes(args).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("upstream sent arguments of a call that are not UTF-8") from error
    if text in ("", "null"):
        return "{}"
    if not text.startswith("{"):
        raise RemoteProtocolError("upstream sent arguments of a call that are no object")
    return text
