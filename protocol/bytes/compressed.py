"""Opens compressed bodies in bounded pieces: gzip, and zstd in one frame. Must not know: HTTP.

What a body opens to is not known before it is opened, so nothing is opened ahead: whoever takes the
pieces counts them, and stops where there are too many.
"""

import re
import sys
import zlib
from collections.abc import Iterable, Iterator

from protocol.bounds import MAX_RATIO
from protocol.errors import InvalidRequest, TooLarge

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

CODINGS = ("gzip", "zstd")
"""The codings that can be opened, as `content-encoding` names them."""
PIECE_BYTES = 64 * 1024
_FREE_BYTES = 64 * 1024
"""Which `MAX_RATIO` does not count."""
_WINDOW_LOG = 23
"""8 MiB, the most that a sender may use in HTTP (RFC 9659)."""
_Q = re.compile(r"\s*([!-~]+?)\s*(?:;\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?", re.IGNORECASE)


class Opener:
    """One compressed body. `is_over`: its end was there."""

    __slots__ = ("_coding", "_gzip", "_in", "_is_full", "_out", "_zstd")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if coding == "gzip" else None
        self._zstd = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        )
        self._in = self._out = 0
        self._is_full = False
        """Did the last piece end where it had to? Then there may be more without further bytes."""

    @property
    def is_over(self) -> bool:
        """Was the end of the compressed data there?"""
        return self._gzip.eof if self._gzip is not None else self._zstd.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes open to, in pieces of at most `PIECE_BYTES`; every piece has to be
        taken before the next call. Raises InvalidRequest for bytes that are not of the coding or
        come behind its end, TooLarge for a body that grows too much."""
        self._in += len(data)
        while data or self._is_full:
            if self.is_over:
                raise InvalidRequest(
                    f"bytes follow the end of the {self._coding} data of this body; compress it as"
                    " one piece, or send it without content-encoding",
                    code="bad_compression",
                    param="content-encoding",
                )
            try:
                piece, data = self._open(data)
            except (zlib.error, zstd.ZstdError):
                raise InvalidRequest(
                    f"the body is not the {self._coding} data that its content-encoding says;"
                    " compress it so, or send it without content-encoding",
                    code="bad_compression",
                    param="content-encoding",
                ) from None
            self._is_full = len(piece) == PIECE_BYTES and not self.is_over
            self._out += len(piece)
            if self._out > max(_FREE_BYTES, MAX_RATIO * self._in):
                raise TooLarge(
                    f"the body opens to more than {MAX_RATIO} times its size; send it without"
                    " content-encoding"
                )
            if piece:
                yield piece

    def _open(self, data: bytes) -> tuple[bytes, bytes]:
        """Return one piece, and the bytes that are still to be opened or come behind the end."""
        if self._gzip is not None:
            piece = self._gzip.decompress(data, PIECE_BYTES)
            return piece, self._gzip.unconsumed_tail or self._gzip.unused_data
        piece = self._zstd.decompress(data, PIECE_BYTES)
        return piece, self._zstd.unused_data if self._zstd.eof else b""

    def finish(self) -> None:
        """The body is complete. Raises InvalidRequest where its compressed data is not."""
        if not self.is_over:
            raise InvalidRequest(
                f"the {self._coding} data of this body has no end: it was cut; send it again",
                code="bad_compression",
                param="content-encoding",
            )


def takes_gzip(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Does a request ask for gzip (RFC 9110, 12.5.3), and not rather for plain bytes?"""
    weights: dict[str, float] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for part in value.decode("latin-1").split(","):
                if (match := _Q.fullmatch(part)) is not None:
                    weights[match[1].lower()] = float(match[2] or 1)
    weight = weights.get("gzip", weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get("identity", 0.0)
