"""A dialect that nobody speaks: proof that a dialect is a folder and one line in the table. Imports
no other dialect.

A request is `{"model", "stream", "turns", "tools"}`, an answer steps from `{"begin"}` to `{"end"}`:
events of a stream, or a list.
"""

from protocol.dialects.base import ClientDialect
from protocol.dialects.modules import (
    ClientErrorsModule,
    DecodeModule,
    EncodeModule,
    ReadModule,
    WriteModule,
)


class Toy(ClientDialect):
    """The toy."""

    __slots__ = ()
    name = "toy"
    client_paths = {"/toy/ask": "ask"}
    about = {"ask": "the toy's API"}
    error_paths = ("/toy",)
    answers = "ask"
    upstream_paths = {"ask": "/{model}/ask", "tell": "/{model}/tell?as=steps", "models": "/models"}
    streams = "tell"
    key_header = ("x-toy-key", "{key}")
    keepalive = b": still here\n\n"
    judge_replies = ("tool",)
    ids = "mint"

    def _decode(self) -> DecodeModule:
        from tests.support.toy import decode

        return decode

    def _write(self) -> WriteModule:
        from tests.support.toy import write

        return write

    def _failures(self) -> ClientErrorsModule:
        from tests.support.toy import failures

        return failures

    def _read(self) -> ReadModule:
        from tests.support.toy import read

        return read

    def _encode(self) -> EncodeModule:
        from tests.support.toy import encode

        return encode


DIALECT = Toy()
