"""Token counts of Converse answers: as Messages, input is without what the cache gave or took."""

from typing import Any

import msgspec

from protocol.bytes.bookkeeping import tame_fields
from protocol.dialects.converse.wire import TokenUsage
from protocol.errors import RemoteProtocolError
from protocol.events import Usage


def read_usage(usage: dict[str, Any] | None) -> tuple[Usage, dict[str, Any], list[str]]:
    """Return the modelled counts, the object as far as it is numbers and words, and the names of
    the rest. Raises RemoteProtocolError."""
    if not usage:
        return Usage(), {}, []
    try:
        known = msgspec.convert(usage, TokenUsage)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise RemoteProtocolError(
            "upstream sent something else where its dialect has a number of tokens"
        ) from error
    tame, withheld = tame_fields(usage, "usage")
    return (
        Usage(
            known.inputTokens,
            known.outputTokens,
            known.cacheReadInputTokens,
            known.cacheWriteInputTokens,
        ),
        tame,
        withheld,
    )
