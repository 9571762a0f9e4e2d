"""One HTTP/1.1 answer as llhttp (httptools) reads it. What its callbacks raise would only be
wrapped, so they leave marks, and whoever feeds the parser looks at them."""

import httptools


class HttpAnswer:
    """The marks of an answer to one request."""

    def __init__(self) -> None:
        self.parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        """None once the head is complete."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        """Of the body, until somebody takes them."""
        self.has_head = self.is_complete = self.is_spoiled = False
        self.until_close = self.stays = False
        """Does its body end with the connection; may the connection be used again?"""

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind the body is ignored."""
        if not self.has_head:
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """The end of a head, also of a 1xx."""
        if self.is_complete or self.has_head or self.parser is None:
            return
        self.status = self.parser.get_status_code()
        if self.status < 200:
            return
        self.has_head = True
        coding = self.headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            # we accept no other, and where its end is would be a guess
            self.is_spoiled = True
        self.until_close = (
            coding is None
            and b"content-length" not in self.headers
            and self.status not in (204, 304)
        )
        # asked here: at the end of an answer the parser has forgotten it
        self.stays = not self.until_close and self.parser.should_keep_alive()
        # each holds the other
        self.parser = None

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if not self.is_complete and not self.is_spoiled:
            self.parts.append(body)

    def on_message_begin(self) -> None:
        """An answer begins."""
        # a second answer to one request
        self.is_spoiled = self.is_spoiled or self.is_complete

    def on_message_complete(self) -> None:
        """An answer is complete, also a 1xx."""
        if self.has_head:
            self.is_complete = not self.is_spoiled or self.is_complete
        else:
            # 1xx: the answer is still to come
            self.headers = {}
