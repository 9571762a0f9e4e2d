"""Server-sent events by bytes: a stream is cut into events without changing a byte, and one event
is read.

Lines end in CRLF, LF or CR and nothing else (WHATWG, Server-sent events, 9.2.5); HTTP clients' line
iterators also split on U+2028 and tear JSON. What the splitter returns, joined, is what it was
given.
"""

import re

from protocol import bounds
from protocol.bytes.value_count import count_values
from protocol.errors import RemoteProtocolError

_LARGE = 32 * 1024
"""Bytes up to which an event is read without a look at how much is in it."""
_BOM = b"\xef\xbb\xbf"
# atomic groups: a CRLF must never be read as CR and LF, which would be a blank line
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CR, _DEL, _A8, _A9, _C2, _E2 = 0x0D, 0x7F, 0xA8, 0xA9, 0xC2, 0xE2
"""Looked for as numbers: 0.02 us each, as bytes 0.13, because `in` raises and drops an exception
first."""
_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
"""U+0080 to U+009F in UTF-8."""


class EventSplitter:
    """Cuts a byte stream at blank lines. Holds at most `max_event_bytes`; scans no byte twice but
    the last two of a piece."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._held = bytearray()
        self._scanned = 0
        self._has_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, each with its blank line. Raises
        RemoteProtocolError past the bound."""
        if not data:
            return []
        if not self._has_cr:
            self._has_cr = _CR in data
            # what providers send: whole events, LF only, and mostly one at a time
            if not self._has_cr and not self._held and data[0] != 10:
                first = data.find(b"\n\n")
                if 0 < first == len(data) - 2 and len(data) <= self._max:
                    return [data]
                if data.endswith(b"\n\n") and data.find(b"\n\n\n") < 0:
                    return self._bounded([part + b"\n\n" for part in data[:-2].split(b"\n\n")])
        self._held += data
        return self._bounded(self._cut_any() if self._has_cr else self._cut_lf())

    def _bounded(self, events: list[bytes]) -> list[bytes]:
        if len(self._held) > self._max or (events and max(map(len, events)) > self._max):
            raise RemoteProtocolError(f"upstream sent an event of more than {self._max} bytes")
        return events

    def _cut_lf(self) -> list[bytes]:
        held, start, search = self._held, 0, self._scanned
        events: list[bytes] = []
        while start < len(held):
            if held[start] == 10:
                # a blank line where an event would begin
                end = start + 1
            else:
                boundary = held.find(b"\n\n", max(start, search))
                if boundary < 0:
                    break
                end = boundary + 2
            events.append(bytes(held[start:end]))
            start = end
        self._keep(start)
        return events

    def _cut_any(self) -> list[bytes]:
        held, start, search = self._held, 0, self._scanned
        events: list[bytes] = []
        while start < len(held):
            match = _LINE_END.match(held, start) or _BLANK_LINE.search(held, max(start, search))
            if match is None:
                break
            events.append(bytes(held[start : match.end()]))
            start = match.end()
        self._keep(start)
        return events

    def _keep(self, start: int) -> None:
        del self._held[:start]
        # a blank line may begin in the last line end, of one byte or two
        self._scanned = max(0, len(self._held) - 2)

    def finish(self) -> list[bytes]:
        """Return what is left: an event that its stream did not end."""
        remainder = bytes(self._held)
        self._held.clear()
        self._scanned, self._has_cr = 0, False
        return [remainder] if remainder else []


def _has_control(data: bytes) -> bool:
    """Is there one of U+0080 to U+009F? A pattern takes ten times as long."""
    at = data.find(_C2)
    while at >= 0:
        if data[at + 1] < 0xA0:
            return True
        at = data.find(_C2, at + 2)
    return False


def escape_breaks(data: bytes) -> bytes:
    """Return JSON, or frames of it, with characters escaped that clients may take for line ends.

    `str.splitlines`, and so the line iterators of HTTP clients, split at U+0085, U+2028 and U+2029.
    A model that wrote one into an argument could choose which part of it, and of the rest of the
    stream, its client reads. In JSON these characters can stand in strings only.
    """
    if data.isascii() and _DEL not in data:
        return data
    if _E2 in data and (_A8 in data or _A9 in data):
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if _DEL in data:
        data = data.replace(b"\x7f", b"\\u007f")
    if _C2 in data and _has_control(data):
        data = _CONTROL.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), data)
    return data


def parse_event(chunk: bytes) -> tuple[str, bytes]:
    """Return the event's name ("" for none) and its data; a comment gives neither. Raises
    RemoteProtocolError past a bound."""
    if len(chunk) > _LARGE:
        _check(chunk)
    if _CR not in chunk and chunk.endswith(b"\n\n"):
        last = len(chunk) - 2
        line = chunk.find(b"\n")
        if line == last:
            if chunk.startswith(b"data: "):
                return "", chunk[6:-2]
        elif (
            chunk.startswith(b"event: ")
            and chunk.startswith(b"data: ", line + 1)
            and chunk.find(b"\n", line + 7) == last
        ):
            return chunk[7:line].decode("utf-8", "replace"), chunk[line + 7 : -2]
    return _parse_lines(chunk)


def _check(chunk: bytes) -> None:
    """Refuse what takes long to read though it is no larger than others."""
    if (lines := chunk.count(b"\n") + chunk.count(b"\r")) > bounds.MAX_EVENT_LINES:
        raise RemoteProtocolError(
            f"upstream sent an event of {lines:,} lines; one may have {bounds.MAX_EVENT_LINES:,}"
        )
    if (values := count_values(chunk, bounds.MAX_EVENT_VALUES)) > bounds.MAX_EVENT_VALUES:
        raise RemoteProtocolError(
            f"upstream sent an event of {values:,} JSON values; one may have"
            f" {bounds.MAX_EVENT_VALUES:,}"
        )


def _parse_lines(chunk: bytes) -> tuple[str, bytes]:
    name, data = "", []
    for line in chunk.removeprefix(_BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return name, b"\n".join(data)
