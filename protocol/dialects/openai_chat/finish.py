"""The finish reasons of chat/completions (docs/change/protocol.md 1.3): a line for each meaning,
with the stop reasons for which its first word is written. The other words are read too: those of
older clients and of compatible servers. None: upstream failed and says it this way."""

from protocol.events import StopReason

_FINISH: tuple[tuple[str, StopReason | None, tuple[StopReason, ...]], ...] = (
    (
        "stop eos eos_token end_turn stop_sequence",
        StopReason.END_TURN,
        (StopReason.END_TURN, StopReason.STOP_SEQUENCE),
    ),
    (
        "length max_tokens model_length",
        StopReason.MAX_TOKENS,
        (
            StopReason.MAX_TOKENS,
            StopReason.CONTEXT_WINDOW,
            StopReason.PAUSE_TURN,
            StopReason.COMPACTION,
        ),
    ),
    ("tool_calls function_call tool_use", StopReason.TOOL_USE, (StopReason.TOOL_USE,)),
    ("content_filter sensitive", StopReason.REFUSAL, (StopReason.REFUSAL,)),
    ("model_context_window_exceeded", StopReason.CONTEXT_WINDOW, ()),
    ("abort error insufficient_system_resource network_error", None, ()),
)
MEANINGS = {word: meaning for words, meaning, _ in _FINISH for word in words.split()}
WORDS = {reason: words.split()[0] for words, _, reasons in _FINISH for reason in reasons}
