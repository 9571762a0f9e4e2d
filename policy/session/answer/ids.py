"""The ids of one call's tool calls: upstream's, or ours where upstream's are not unique.

Theory. A client answers a tool call by its id, so an id must name one tool call of the
conversation. Some upstreams send none, or count anew in each answer. From the first such id on,
every tool call of the call gets an id made of the call's own and the block's number: a second owner
that replays the stream makes the same ones.
"""

import re
from array import array
from base64 import b32encode
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import sha256
from string import ascii_lowercase, ascii_uppercase, digits, hexdigits
from typing import Literal
from uuid import UUID

from protocol.errors import RemoteProtocolError
from protocol.request import ChatRequest, OtherPart, ToolUsePart
from protocol.target import Ids

_BEGINNING = re.compile(r"(?:[A-Za-z]+[_-])*(?:0\d(?=[A-Za-z0-9]{8}))?")
"""Words of an id's maker (`call_`, `chatcmpl-tool-`) and the number of a version (`toolu_01`)."""
_HEX = re.compile(r"[0-9a-f-]{16,}")
_TRIES = 8
"""Ids of one length that are tried: very short ones are soon all in use."""
_STEM = 31
"""Characters of an id of ours before the block's number."""


def minted(call_id: str, block: int | Literal[""]) -> str:
    """Return the id of the tool call in `block`: at most 40 letters, digits and `_`, which every
    provider takes back."""
    return f"call_{b32encode(UUID(call_id).bytes).decode().rstrip('=').lower()}{block}"


def alike(example: str, seed: str) -> str:
    """Return an id that looks as if whoever made `example` had made it: the same beginning and
    length, and other letters and digits.

    The beginning is words, and the number of a version behind them.
    """
    begin = _BEGINNING.match(example)
    prefix_size = begin.end() if begin is not None else 0
    suffix = example[prefix_size:]
    is_hex = _HEX.fullmatch(suffix) is not None
    made: list[str] = [example[:prefix_size]]
    digest = b""
    for place, letter in enumerate(suffix):
        if place % 32 == 0:
            digest = sha256(f"{seed}:{place}".encode()).digest()
        alphabet = letter
        if letter.isascii() and letter.isalnum():
            alphabet = (
                digits
                if letter in digits
                else ascii_lowercase
                if letter in ascii_lowercase
                else ascii_uppercase
            )
        if is_hex and letter != "-":
            alphabet = hexdigits[:16]
        made.append(alphabet[digest[place % 32] % len(alphabet)])
    return "".join(made)


class CallIds:
    """The ids that are in use: in the request as it was sent, and in the answers to it."""

    def __init__(self, call_id: str) -> None:
        self._call_id, self._mints = call_id, False
        # sorted hashes, because a request may hold thousands of ids, and these stay as long as the
        # call
        self._before = array("q")
        self._known = set[str]()

    def look_at(self, sent: ChatRequest, ids: Ids) -> None:
        """Take the ids in a request. `ids`: what the upstream's own are worth."""
        self._mints = self._mints or ids == "mint"
        self._before = array("q", sorted(map(hash, _ids_in(sent))))

    def take(self, identity: str) -> None:
        """Take the id of a call that the provider runs: its result names it, so it stays. Raises
        RemoteProtocolError for one in use."""
        if identity in self._known:
            raise RemoteProtocolError("upstream gave two tool calls one id")
        self._known.add(identity)

    def alike(self, example: str, seed: str) -> str:
        """Return an id like `example` that names no call yet: by a digit longer where those of its
        length are in use."""
        while True:
            for attempt in range(_TRIES):
                identity = alike(example, f"{seed}:{attempt}" if attempt else seed)
                if not self._is_known(identity):
                    self._known.add(identity)
                    return identity
            example += "0"

    def of(self, block: int, identity: str, *, is_native: bool = True) -> str:
        """Return the id for the client's tool call in `block`; `identity` is upstream's, empty
        where it sent none.

        A call that is not `is_native` has none by its form, which tells nothing of the others.
        """
        if self._mints or not identity or self._is_ours(identity) or self._is_known(identity):
            self._mints = self._mints or is_native
            return minted(self._call_id, block)
        self._known.add(identity)
        return identity

    def _is_ours(self, identity: str) -> bool:
        # an upstream that learns the call's id could send what a later block is given; vendors' ids
        # are shorter
        return len(identity) > _STEM and identity.startswith(minted(self._call_id, ""))

    def _is_known(self, identity: str) -> bool:
        wanted = hash(identity)
        place = bisect_left(self._before, wanted)
        return identity in self._known or (
            place < len(self._before) and self._before[place] == wanted
        )


def _ids_in(sent: ChatRequest) -> Iterator[str]:
    for turn in sent.turns:
        for part in turn.parts:
            if isinstance(part, ToolUsePart):
                yield part.id
            elif isinstance(part, OtherPart) and part.kind.endswith("tool_use"):
                yield str(part.body.get("id"))
