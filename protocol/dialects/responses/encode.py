"""Events to streamed Responses answers. Whole bodies:
`protocol.dialects.responses.encoding.encode_whole`; both:
`protocol.dialects.responses.encoding.encode_answer`.

Nearly every event is a piece of text: its frame is the same but for the text and the number.
"""

from collections.abc import Sequence
from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import escape_breaks
from protocol.dialects.responses.encoding.encode_answer import AnswerEncoder
from protocol.dialects.responses.encoding.encode_whole import WholeEncoder
from protocol.events import Event, TextDelta
from protocol.request import ChatRequest

_DELTAS = {
    "output_text": ("response.output_text.delta", "content_index", b',"logprobs":[]'),
    "refusal": ("response.refusal.delta", "content_index", b""),
    "reasoning_text": ("response.reasoning_text.delta", "content_index", b""),
    "summary_text": ("response.reasoning_summary_text.delta", "summary_index", b""),
}
_MANY = 2048
_TAILS = tuple(b"%d}\n\n" % number for number in range(_MANY))
"""Ends of frames by their number: writing it takes as long as all the rest of a short text's
frame."""
_ENDS = ("_text.done", "refusal.done", "response.failed")
"""Events after which no text goes on."""


class StreamEncoder(AnswerEncoder):
    """Frames for a client that streams."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, request: ChatRequest, call_id: str, created: int) -> None:
        super().__init__(request, call_id, created)
        self._out: list[bytes] = []
        self._number = 0
        self._index = -1
        """The block whose text goes on, -1 for none."""
        self._prefix = self._suffix = b""
        self._texts: list[str] = []

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events`."""
        out = self._out = []
        for event in events:
            if type(event) is TextDelta and event.index == self._index:
                self._texts.append(event.text)
                number = self._number
                self._number = number + 1
                out += (
                    self._prefix,
                    dumps(event.text),
                    self._suffix,
                    _TAILS[number] if number < _MANY else b"%d}\n\n" % number,
                )
            else:
                self.take(event)
        return escape_breaks(b"".join(out))

    def put(self, kind: str, fields: dict[str, Any]) -> None:
        """Write an event."""
        if kind.endswith(_ENDS):
            self._index = -1
        self._out += (
            b"event: ",
            kind.encode(),
            b"\ndata: ",
            dumps({"type": kind, "sequence_number": self._number, **fields}),
            b"\n\n",
        )
        self._number += 1

    def text_opened(self, part: str, item: dict[str, Any], number: int) -> None:
        """Text of this part follows."""
        assert self._block is not None or part == "refusal"
        if self._block is None or self._part is None:
            return
        kind, field, more = _DELTAS[part]
        at = {"type": kind, "item_id": item["id"], "output_index": self._count, field: number}
        self._prefix = b"event: %s\ndata: %s" % (kind.encode(), dumps(at)[:-1] + b',"delta":')
        self._suffix = more + b',"sequence_number":'
        self._index, self._texts = self._block.index, self._part.pieces

    def logprobs(self, entries: list[Any]) -> None:
        """Put these beside the text that was written just now."""
        out = self._out
        if len(out) > 3 and out[-4] is self._prefix:
            out[-2] = b',"logprobs":%s,"sequence_number":' % dumps(entries)


def make(request: ChatRequest, *, call_id: str, created: int) -> StreamEncoder | WholeEncoder:
    """Return the encoder that `request` asks for."""
    return (StreamEncoder if request.stream else WholeEncoder)(request, call_id, created)
