"""Server-sent events by bytes: a stream is cut into events without changing a byte, and one event is read.

Lines end in CRLF, LF or CR and nothing else (WHATWG, Server-sent events, 9.2.5); HTTP clients' line iterators also
split on U+2028 and tear JSON. What the splitter returns, joined, is what it was given.
"""

from protocol.errors import RemoteProtocolError

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Cuts a byte stream at blank lines. Holds at most `max_event_bytes`; never scans a byte twice."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._held = bytearray()
        self._scanned = 0
        self._line_empty = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, each with its blank line. Raises RemoteProtocolError past the bound."""
        if not self._held and not self._after_cr and self._line_empty and b"\r" not in data and data.endswith(b"\n\n"):
            # what providers send: whole events, LF only
            events = [part + b"\n\n" for part in data[:-2].split(b"\n\n")]
            if b"\n\n\n" not in data and max(map(len, events)) <= self._max:
                return events
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> list[bytes]:
        held = self._held
        events: list[bytes] = []
        held += data
        position, start = self._scanned, 0
        size = len(held)
        empty, after_cr = self._line_empty, self._after_cr
        while position < size:
            byte = held[position]
            if after_cr:
                after_cr = False
                if byte == 10:
                    # the LF of a CRLF belongs to the line that the CR ended
                    position += 1
                    if start == position - 1 and events:
                        events[-1] += b"\n"
                        start = position
                    continue
            if byte == 10 or byte == 13:
                position += 1
                after_cr = byte == 13
                if empty:
                    if after_cr and position < size and held[position] == 10:
                        position += 1
                        after_cr = False
                    events.append(bytes(held[start:position]))
                    start = position
                empty = True
                continue
            line_end = _line_end(held, position)
            empty = False
            position = line_end
        del held[:start]
        self._scanned, self._line_empty, self._after_cr = position - start, empty, after_cr
        if len(held) > self._max:
            raise RemoteProtocolError(f"upstream sent an event of more than {self._max} bytes")
        return events

    def finish(self) -> list[bytes]:
        """Return what is left: an event that its stream did not end."""
        rest = bytes(self._held)
        self._held.clear()
        self._scanned, self._line_empty, self._after_cr = 0, True, False
        return [rest] if rest else []


def _line_end(held: bytearray, position: int) -> int:
    """Return where the line at `position` ends: at its LF or CR, or at the end of what is held."""
    lf = held.find(b"\n", position)
    end = len(held) if lf < 0 else lf
    cr = held.find(b"\r", position, end)
    return end if cr < 0 else cr


def parse_event(chunk: bytes) -> tuple[str, bytes]:
    """Return the event's name ("" for none) and its data; a comment gives neither."""
    if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") and chunk.find(b"\n") == len(chunk) - 2 and b"\r" not in chunk:
        return "", chunk[6:-2]
    if chunk.startswith(_BOM):
        chunk = chunk[3:]
    name, data = "", []
    for line in chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return name, b"\n".join(data)
