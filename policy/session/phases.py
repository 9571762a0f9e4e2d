"""The phases of a session, and which step leads from one to the next."""

from typing import Final, Literal

Phase = Literal[
    "new", "waiting", "approved", "answering", "paused", "drained", "superseded", "stopped"
]
Step = Literal["wait", "approve", "send", "pause", "drain", "go_on", "stop", "ask_again", "outlast"]

# A new session waits first if its request continues kept answers: without these it cannot even be
# read. Once it was read and the policies let it pass it is approved, and stays so while recorded
# turns are looked up. Then it is sent, and the answer is taken. Where upstream pauses its turn, what
# else comes of that answer is withheld; the turn is drained once all before the pause has gone out,
# and goes on when the upstream answer has ended, too: the next segment is a request of its own,
# approved and sent as the first. Whatever ends the message or refuses the request stops the session:
# then nothing more is taken, though verdicts that are still to come may release what waits. Only
# another model's answer in place of this one begins anew, from a turn that has ended
# (`policy.session.deferring`), and another attempt from one that failed (`policy.session.routes.routed`);
# while the rest of the failed answer still comes, the session is superseded. A step that is not here
# is a bug: it raises KeyError, and the call is denied.
PHASES: Final[dict[tuple[Phase, Step], Phase]] = {
    ("new", "wait"): "waiting",
    ("new", "approve"): "approved",
    ("new", "stop"): "stopped",
    ("waiting", "approve"): "approved",
    ("waiting", "stop"): "stopped",
    ("approved", "send"): "answering",
    ("approved", "stop"): "stopped",
    ("answering", "pause"): "paused",
    ("answering", "stop"): "stopped",
    ("answering", "ask_again"): "approved",
    ("answering", "outlast"): "superseded",
    ("superseded", "go_on"): "answering",
    ("superseded", "stop"): "stopped",
    ("paused", "drain"): "drained",
    ("paused", "stop"): "stopped",
    ("paused", "ask_again"): "approved",
    ("drained", "drain"): "drained",
    ("drained", "go_on"): "approved",
    ("drained", "stop"): "stopped",
    ("stopped", "drain"): "stopped",
    ("stopped", "stop"): "stopped",
    ("stopped", "ask_again"): "approved",
}

RESTING: Final[tuple[Phase, ...]] = ("paused", "drained", "stopped")
"""Nothing more is expected of this upstream answer."""

DEAF: Final[tuple[Phase, ...]] = ("stopped", "superseded")
"""Nothing of what comes is taken."""
