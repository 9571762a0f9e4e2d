"""The finish reasons of chat/completions: what each means, and for which stop reasons it is written (docs/protocol.md 1.3)."""

from protocol.events import StopReason

_FINISH: tuple[tuple[str, StopReason | None, tuple[StopReason, ...]], ...] = (
    ("stop", StopReason.END_TURN, (StopReason.END_TURN, StopReason.STOP_SEQUENCE)),
    ("length", StopReason.MAX_TOKENS, (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.PAUSE_TURN, StopReason.COMPACTION)),
    ("tool_calls", StopReason.TOOL_USE, (StopReason.TOOL_USE,)),
    ("function_call", StopReason.TOOL_USE, ()),
    ("content_filter", StopReason.REFUSAL, (StopReason.REFUSAL,)),
    # words of compatible servers
    ("eos", StopReason.END_TURN, ()),
    ("eos_token", StopReason.END_TURN, ()),
    ("end_turn", StopReason.END_TURN, ()),
    ("stop_sequence", StopReason.END_TURN, ()),
    ("max_tokens", StopReason.MAX_TOKENS, ()),
    ("model_length", StopReason.MAX_TOKENS, ()),
    ("tool_use", StopReason.TOOL_USE, ()),
    # upstream failed and says it this way
    ("abort", None, ()),
    ("error", None, ()),
    ("insufficient_system_resource", None, ()),
)
MEANINGS = {word: meaning for word, meaning, _ in _FINISH}
WORDS = {reason: word for word, _, reasons in _FINISH for reason in reasons}
