"""Finish reasons of Gemini (docs/change/protocol.md 1.15): what each means."""

from protocol.events import StopReason

REFUSED = frozenset(
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR"
    " IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION".split()
)
"""The provider held the answer back."""
FAILED = {
    "MALFORMED_FUNCTION_CALL": "the model wrote a tool call that its provider could not read",
    "UNEXPECTED_TOOL_CALL": "the model called a tool although the request offered none",
    "TOO_MANY_TOOL_CALLS": "the model called tools too often",
    "MISSING_THOUGHT_SIGNATURE": "the request lacks a thought signature that the provider needs",
    "MALFORMED_RESPONSE": "the model wrote an answer that its provider could not read",
    "NO_IMAGE": "the model made no image",
    "IMAGE_OTHER": "the provider could not make the image",
    "OTHER": "the provider ended the answer for a reason that it does not name",
}
"""The answer is none: a made-up stop would be worse than an error."""


def meaning(word: str, *, has_calls: bool) -> StopReason | None:
    """Return the stop reason; None where the answer failed. Gemini says STOP for calls, too."""
    if word in REFUSED:
        return StopReason.REFUSAL
    if word == "MAX_TOKENS":
        return StopReason.MAX_TOKENS
    if word == "STOP":
        return StopReason.TOOL_USE if has_calls else StopReason.END_TURN
    return None


def failure(word: str) -> str:
    """Return the sentence for an answer that failed."""
    return FAILED.get(word, "the upstream ended its answer with an unknown finish reason")
