"""A call in the light of the calls before it: `bash i.sh` after a download of `i.sh` runs what a
host sent, as `curl | bash` does.

The earlier calls that matter are read as if they stood in front of the call, in one text, and of
that reading only what the call itself adds counts. So what would be stopped in one call is stopped
in two, and nothing that is known of the call alone is taken back: a history that lies makes
decisions stricter.

Lazy: nothing of the history is looked at before a call comes that could build on it. Bounded by the
marks in `past_calls` and `relevance`, newest first.
"""

from functools import cached_property

import msgspec

from policy.base import ToolCall
from policy.effects.argument_values import quoted
from policy.effects.effect import Effect
from policy.effects.history.known_secrets import is_given_away, sent_by, values_shown
from policy.effects.history.past_calls import CallStep, PastCall, look_at, past_calls, steps_of
from policy.effects.history.relevance import Chosen, choose, stays_in, wants_of
from policy.effects.places import Places
from policy.effects.touch import LocatedEffect, Touch
from protocol.conversations.earlier_turns import EarlierTurns


class EarlierCalls:
    """The calls of earlier answers, and those of the present one that were released.

    What it says of a call depends on the request and the calls before it in the answer alone. A
    call that is asked about again, as its arguments were replaced, has the same ones before it.
    """

    def __init__(self, turns: EarlierTurns) -> None:
        self._turns = turns
        self._answer: dict[int, PastCall] = {}
        self._values: dict[Places, frozenset[str]] = {}

    @property
    def is_lost(self) -> bool:
        """Can nobody say what came before?"""
        return self._turns.is_lost

    def remember(self, call: ToolCall) -> None:
        """Add a call of this answer that is released, for those behind it."""
        if call.block not in self._answer:
            self._answer[call.block] = look_at(call.name, call.arguments)

    def touch(self, call: ToolCall, alone: Touch, places: Places) -> Touch:
        """Return what a call does after all that came before. `alone`: what it does by itself."""
        if not (self._answer or self._is_continued):
            return alone
        acts, unsure = dict.fromkeys(alone.acts), dict.fromkeys(alone.unsure)
        chosen = Chosen()
        steps = steps_of(call.name, call.arguments)
        if steps and (before := self._before(call)):
            sends = any(step.source == "network" for step in steps)
            chosen = choose(before, wants_of(alone, sends=sends), places)
            for step in steps if chosen.steps else ():
                effects, whys = _read_after(step, chosen, places)
                acts |= {LocatedEffect(step.source, step.argument, each): None for each in effects}
                unsure |= dict.fromkeys(whys)
        for act, sent in sent_by(alone, places):
            if is_given_away(self._secrets(places), sent + _written(chosen)):
                effect = Effect.of("secret", act.effect.scope, act.effect.target, by=call.name)
                acts[LocatedEffect("network", act.argument, effect)] = None
        kinds = frozenset(act.effect.kind for act in acts)
        return msgspec.structs.replace(alone, acts=tuple(acts), unsure=tuple(unsure), kinds=kinds)

    @cached_property
    def _is_continued(self) -> bool:
        return any(turn.role == "assistant" for turn in self._turns)

    @cached_property
    def _earlier(self) -> list[PastCall]:
        """The calls of earlier answers that may have left something behind, newest first."""
        calls = [look_at(call.name, call.arguments) for call in past_calls(self._turns)]
        return [past for past in calls if past.marks or past.names]

    def _before(self, call: ToolCall) -> list[PastCall]:
        answered = [past for block, past in self._answer.items() if block < call.block]
        return [*reversed(answered), *self._earlier]

    def _secrets(self, places: Places) -> frozenset[str]:
        if places not in self._values:
            self._values[places] = values_shown(self._turns, places)
        return self._values[places]


def _written(chosen: Chosen) -> str:
    """What earlier calls wrote into files that a call names."""
    return "\n".join(
        step.text
        for step in chosen.steps
        if step.path or (">" in step.text and "://" not in step.text)
    )


def _read_after(step: CallStep, chosen: Chosen, places: Places) -> tuple[list[Effect], list[str]]:
    """Read what a call does behind the steps that were chosen; return what it does besides what
    it does alone, and why that may be incomplete."""
    from policy.effects.shell.reading import read, read_after

    is_apart = step.is_apart or step.source != "shell"
    text = f"tee {quoted(step.path)}" if step.path else step.text

    def keeps(folder: str, ago: int) -> bool:
        return not (is_apart and ago == 0) and stays_in(folder, ago, places)

    reading = read_after(text, places, chosen.steps, keeps)
    known = frozenset(read(text, places).effects)
    whys: list[str] = []
    if chosen.is_foreign:
        # parts of files, which an editor was given, are no whole programs
        whys += [why for why in reading.unsure if not why.startswith(("parse:", "empty:"))]
        if not (chosen.is_whole and reading.is_whole):
            whys.append("size: more of the conversation than is read with a call")
    return [effect for effect in reading.effects if effect not in known], whys
