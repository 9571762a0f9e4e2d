"""Where a call stands in the worker that owns it.

A worker claims a call that nobody had, or takes one over from a worker that died, stalled or was
stopped. Both begin with the request body. A call that was taken over is then replayed: its session
gets the same entries and facts again and must come out where the last owner stood. Until then
nothing of it goes out, because it went out before. From there on both are the same. A call that
ends takes nothing more: its end is written with the records that it has at that moment, and
whatever a step that is still under way does to it goes nowhere.

Whether the session can be trusted is another question, which `OwnedCall.is_broken` answers: a
session may break in any phase, and its call then ends in the order of that phase.
"""

from enum import StrEnum

from protocol.errors import LocalProtocolError


class Phase(StrEnum):
    """Where the call stands."""

    CLAIMED = "claimed"
    """Nobody had it before; its body is not read yet."""
    TAKEN_OVER = "taken over"
    """Another worker had it; its body is not read yet."""
    REPLAYING = "replaying"
    """It has begun again, and gets what the last owner had."""
    RUNNING = "running"
    """What it gives goes out."""
    ENDING = "ending"
    """Its end is being written; it takes nothing more."""


class Step(StrEnum):
    """What moves it."""

    TAKE_OVER = "take over"
    BEGIN = "begin"
    CATCH_UP = "catch up"
    END = "end"


_NEXT = {
    (Phase.CLAIMED, Step.TAKE_OVER): Phase.TAKEN_OVER,
    (Phase.CLAIMED, Step.BEGIN): Phase.RUNNING,
    (Phase.CLAIMED, Step.END): Phase.ENDING,
    (Phase.TAKEN_OVER, Step.BEGIN): Phase.REPLAYING,
    (Phase.TAKEN_OVER, Step.END): Phase.ENDING,
    # a beginning that took too long begins again, as a refusal
    (Phase.REPLAYING, Step.BEGIN): Phase.REPLAYING,
    (Phase.REPLAYING, Step.CATCH_UP): Phase.RUNNING,
    (Phase.REPLAYING, Step.END): Phase.ENDING,
    (Phase.RUNNING, Step.BEGIN): Phase.RUNNING,
    (Phase.RUNNING, Step.END): Phase.ENDING,
    # the step that begins it may be on its way to the other thread when it is ended
    (Phase.ENDING, Step.BEGIN): Phase.ENDING,
}


def next_phase(phase: Phase, step: Step) -> Phase:
    """Return the phase that follows. Raises LocalProtocolError for a step that is not possible."""
    try:
        return _NEXT[phase, step]
    except KeyError:
        raise LocalProtocolError(f"a call that is {phase} cannot {step}") from None
