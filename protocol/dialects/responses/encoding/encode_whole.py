"""Events to the one body of a Responses answer that is not streamed."""

from collections.abc import Sequence

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import escape_breaks
from protocol.dialects.responses import failures
from protocol.dialects.responses.encoding.encode_answer import AnswerEncoder
from protocol.events import Event, UpstreamFailed


class WholeEncoder(AnswerEncoder):
    """The one body for a client that does not stream."""

    content_type = "application/json"

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the body with MessageStop, nothing before."""
        body = b""
        for event in events:
            was_ended = self.ended
            self.take(event)
            if type(event) is UpstreamFailed:
                body = failures.failed_response(event)[2]
            elif self.ended and not was_ended:
                body = dumps(self.response)
        return escape_breaks(body)
