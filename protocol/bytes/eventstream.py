"""Binary event streams of AWS (`application/vnd.amazon.eventstream`): a stream is cut into messages
without changing a byte, and one message is read.

A message: its length, the length of its headers and the CRC-32 of these two (4 bytes each, big
endian), headers, payload, and the CRC-32 of all before. A header: length and bytes of its name, its
type, its value. What the splitter returns, joined, is what it was given.
"""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, error

from protocol import bounds
from protocol.bytes.value_count import count_values
from protocol.errors import RemoteProtocolError

CONTENT_TYPE = b"application/vnd.amazon.eventstream"
_PRELUDE = Struct(">III")
_U16, _U32 = Struct(">H"), Struct(">I")
_PRELUDE_BYTES, _CRC_BYTES = 12, 4
_LEAST = _PRELUDE_BYTES + _CRC_BYTES
_LARGE = 32 * 1024
"""Bytes of a payload up to which it is read without a look at how much is in it."""
_MOST_KEPT = 512
"""Bytes of headers that are read once: all messages of a kind have the same."""
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value, by its type: true, false, byte, short, integer, long, timestamp,
UUID."""
_BYTES, _STRING = 6, 7


def _sizes(data: bytes | bytearray, at: int, most: int) -> tuple[int, int]:
    """Return the lengths of the message that begins at `at`, and of its headers. Raises
    RemoteProtocolError."""
    total, headers, crc = _PRELUDE.unpack_from(data, at)
    if zlib.crc32(data[at : at + 8]) != crc:
        raise RemoteProtocolError(
            "the lengths of an upstream's event-stream message do not have their checksum"
        )
    if total > most:
        raise RemoteProtocolError(
            f"upstream sent an event-stream message of {total:,} bytes; one may have {most:,}"
        )
    if total < _LEAST or headers > total - _LEAST:
        raise RemoteProtocolError(
            "the lengths of an upstream's event-stream message contradict each other"
        )
    if headers > bounds.MAX_MESSAGE_HEADER_BYTES:
        raise RemoteProtocolError(
            f"upstream sent an event-stream message with {headers:,} bytes of headers; one may have"
            f" {bounds.MAX_MESSAGE_HEADER_BYTES:,}"
        )
    return total, headers


class EventStreamSplitter:
    """Cuts a byte stream into whole messages by their lengths. Holds at most `max_bytes`, the most
    that one message may have."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._held = bytearray()
        self._due = _PRELUDE_BYTES
        """Bytes that have to be there before anything can be cut."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes. Raises RemoteProtocolError at lengths that are
        wrong or past a bound; messages that were whole before them are returned first, and the next
        call raises."""
        if (
            not self._held
            and len(data) >= _PRELUDE_BYTES
            and _sizes(data, 0, self._max)[0] == len(data)
        ):
            # what providers send mostly: one whole message
            return [data]
        held, at = self._held, 0
        held += data
        if len(held) < self._due:
            return []
        messages: list[bytes] = []
        self._due = _PRELUDE_BYTES
        try:
            while len(held) - at >= _PRELUDE_BYTES:
                end = at + _sizes(held, at, self._max)[0]
                if end > len(held):
                    self._due = end - at
                    break
                messages.append(bytes(held[at:end]))
                at = end
        except RemoteProtocolError:
            if not messages:
                raise
        del held[:at]
        return messages

    def finish(self) -> list[bytes]:
        """Return what is left: a message that its stream did not end, which `parse_message`
        refuses. Raises as `feed`."""
        remainder = bytes(self._held)
        self._held.clear()
        if len(remainder) >= _PRELUDE_BYTES:
            _sizes(remainder, 0, self._max)
        self._due = _PRELUDE_BYTES
        return [remainder] if remainder else []


def parse_message(raw: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return a message's headers that are strings, and its payload. Raises RemoteProtocolError:
    cut, wrong checksums, headers that contradict themselves, too much in it. The headers may be
    shared: nobody changes them."""
    size = len(raw)
    if size < _LEAST:
        raise RemoteProtocolError("an event-stream message of the upstream was cut")
    total, length = _sizes(raw, 0, size)
    if total != size:
        raise RemoteProtocolError(
            "an event-stream message of the upstream is not as long as it says"
        )
    (crc,) = _U32.unpack_from(raw, size - _CRC_BYTES)
    if zlib.crc32(raw[:-_CRC_BYTES]) != crc:
        raise RemoteProtocolError(
            "an event-stream message of the upstream does not have its checksum"
        )
    end = _PRELUDE_BYTES + length
    headers, payload = raw[_PRELUDE_BYTES:end], raw[end:-_CRC_BYTES]
    if (
        len(payload) > _LARGE
        and (values := count_values(payload, bounds.MAX_EVENT_VALUES)) > bounds.MAX_EVENT_VALUES
    ):
        raise RemoteProtocolError(
            f"upstream sent an event of {values:,} JSON values; one may have"
            f" {bounds.MAX_EVENT_VALUES:,}"
        )
    return (_kept_headers(headers) if length <= _MOST_KEPT else _read_headers(headers)), payload


def readable(start: bytes) -> str:
    """Return the beginning of a message as text to be read: a line for each header, then the
    payload. Empty where it is no message."""
    if len(start) < _PRELUDE_BYTES:
        return ""
    try:
        total, length = _sizes(start, 0, 2**32)
        end = _PRELUDE_BYTES + length
        headers = _read_headers(start[_PRELUDE_BYTES:end])
    except RemoteProtocolError:
        return ""
    lines = "".join(f"{name}: {value}\n" for name, value in headers.items())
    return lines + "\n" + start[end : total - _CRC_BYTES].decode(errors="backslashreplace")


def _read_headers(data: bytes) -> Mapping[str, str]:
    """Read a message's headers. Raises RemoteProtocolError."""
    headers: dict[str, str] = {}
    at, names = 0, set[bytes]()
    try:
        while at < len(data):
            start = at + 1
            at = start + data[at]
            name, kind = data[start:at], data[at]
            if not name or name in names:
                raise RemoteProtocolError(
                    "an event-stream message of the upstream has a header twice, or one without a"
                    " name"
                )
            names.add(name)
            if (fixed := _FIXED.get(kind)) is not None:
                at += 1 + fixed
            elif kind in (_BYTES, _STRING):
                (size,) = _U16.unpack_from(data, at + 1)
                start = at + 3
                at = start + size
                if kind == _STRING:
                    headers[name.decode()] = data[start:at].decode()
            else:
                raise RemoteProtocolError(
                    "an event-stream message of the upstream has a header of the unknown type"
                    f" {kind}"
                )
    except (IndexError, error, UnicodeDecodeError) as wrong:
        raise RemoteProtocolError(
            "the headers of an upstream's event-stream message cannot be read"
        ) from wrong
    if at != len(data):
        raise RemoteProtocolError(
            "the headers of an upstream's event-stream message cannot be read"
        )
    return headers


_kept_headers = lru_cache(maxsize=64)(_read_headers)


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Write a message with headers that are strings."""
    named = b"".join(
        bytes((len(name),)) + name + b"\x07" + _U16.pack(len(value)) + value
        for name, value in ((n.encode(), v.encode()) for n, v in headers.items())
    )
    lengths = Struct(">II").pack(_LEAST + len(named) + len(payload), len(named))
    body = lengths + _U32.pack(zlib.crc32(lengths)) + named + payload
    return body + _U32.pack(zlib.crc32(body))
