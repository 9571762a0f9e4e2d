"""Sessions in this process: the code that decides about real calls, fed until it has no more
effects. Nothing is sent and nothing stored.

A judge is asked by yielding its question, so that the same code serves immediate judges, slow
judges, and none.
"""

import time
from collections.abc import Generator, Sequence

from policy.base import Judgement, JudgeQuestion, Policy
from policy.loading import load
from policy.session.approvals import PeoplesAnswer, judgement_of
from policy.session.choosing import session_of
from policy.session.effects import (
    SESSION_VERSION,
    CallInfo,
    Output,
    Respond,
    SendUpstream,
    WantedSegment,
)
from policy.session.session import Session
from protocol.dialects.table import DIALECTS
from protocol.records import WHY, EventRecord, Record
from protocol.request import DialectName
from settings.config import Config

CALL_ID, _NONCE = "00000000-0000-7000-8000-000000000000", "0" * 32
_KEY = "trial"
_PLACEHOLDER_KEY = "placeholders of a trial hide nothing"
_MOST_STEPS = 1_000
"""More than a session with a hundred calls and sixteen questions about each takes."""


def loaded(
    config: Config, series: str, search_path: Sequence[str] = ()
) -> tuple[list[Policy], str]:
    """Load a series to try it; return its policies and its revision, which is that of workers but
    where those make placeholders by a key of their own. Raises PolicyFailed."""
    return load(
        config.policies[series],
        search_path=search_path,
        session_version=SESSION_VERSION,
        config=config,
        redact_key=_PLACEHOLDER_KEY,
    )


class Series:
    """The policies of one series, loaded once, and the context of its sessions."""

    def __init__(
        self, name: str, policies: Sequence[Policy], revision: str, config: Config
    ) -> None:
        self.name, self.policies, self.revision = name, policies, revision
        # the built-in models' names, which are routed whatever upstreams there are
        self.config = config.model_copy(update={"demo": True})
        self._info: dict[str, CallInfo] = {}

    def session(self, dialect: DialectName) -> Session:
        """Return a new session for a client of this dialect."""
        info = self._info.get(dialect)
        if info is None:
            info = self._info[dialect] = CallInfo(
                CALL_ID,
                0,
                dialect,
                DIALECTS[dialect].answers,
                _KEY,
                "",
                _NONCE,
                _KEY,
                self.name,
                self.revision,
                durable=False,
                max_arguments_bytes=self.config.limits.event_bytes,
            )
        return session_of(info, self.policies, self.config)


class Fed:
    """One session, and its outcome so far. `is_open`: a judge was asked and did not answer;
    `is_held`: people were, and nobody is there; `is_deferred`: another model is asked."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.refused: Respond | None = None
        """What the client gets instead of an answer, where the request itself was refused."""
        self.outputs: list[Output] = []
        self.records: list[Record] = []
        self.waited_ns = 0
        """CPU time that judges took in this thread."""
        self.is_open = self.is_held = self.is_deferred = self._is_sent = False

    def settle(self) -> Generator[JudgeQuestion, Judgement | None, None]:
        """Do what the session wants done: commits are there at once, judges are asked (None: nobody
        can be)."""
        session = self.session
        for _ in range(_MOST_STEPS):
            if session.out.is_empty:
                return
            taken = session.drain()
            if isinstance(taken.lookup, WantedSegment):
                # there is no model to go on with: what is blocked ends the turn
                session.segment(None, ())
            elif taken.lookup:
                session.turns(())
            self.records += taken.records
            for output in taken.outputs:
                self._keep(output)
            for wanted in taken.asks:
                if wanted.is_for_people:
                    self.is_held = True
                    pending = judgement_of(PeoplesAnswer("pending"))
                    session.judgement(wanted.block, wanted.step, pending, 0)
                    continue
                began = time.thread_time_ns()
                judgement = yield wanted.question
                self.waited_ns += time.thread_time_ns() - began
                if judgement is None:
                    self.is_open = True
                    continue
                session.judgement(wanted.block, wanted.step, judgement, 0)
            for block in taken.waits:
                session.committed(block, "", 0)

    def why(self, block: int | None) -> str:
        """Return the sentence of the record that says why a call was decided as it was."""
        whys = (r for r in self.records if isinstance(r, EventRecord) and r.kind == WHY)
        return next((r.detail for r in whys if r.number == block), "")

    def _keep(self, output: Output) -> None:
        if type(output) is Respond:
            self.refused = output
        elif type(output) is SendUpstream:
            # a second one asks another model for the turn: what that says is not known here
            self.is_deferred, self._is_sent = self._is_sent, True
        else:
            self.outputs.append(output)
