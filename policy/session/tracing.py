"""The series of a call that has debug lines: the same, but each hook call is reported, with its
arguments, its result and how long it took.

What a policy receives, and what happens with what it returns, does not change: a call's copy of
each policy gets a subclass whose hooks call the policy's own. Must not know: the clock, where lines
go.
"""

from collections.abc import Callable, Sequence
from typing import Any

from policy.base import HOOKS, Context, Policy
from policy.session.chain import Chain
from policy.session.effects import Tracer
from policy.session.faults import policy_name

_TRACER = "_sluice_tracer"
_TOLD = sorted(HOOKS - {"for_call"})


class TracedChain(Chain):
    """A series whose hook calls are reported."""

    def __init__(
        self, tracer: Tracer, policies: Sequence[Policy], context: Context, **options: Any
    ) -> None:
        self._tracer = tracer
        super().__init__(policies, context, **options)

    def _for_call(self, policy: Policy, context: Context) -> Policy:
        clone = super()._for_call(policy, context)
        try:
            traced = _traced(type(clone))
            vars(clone)[_TRACER] = self._tracer
            clone.__class__ = traced
        except Exception as error:  # noqa: BLE001 - foreign code: a class that cannot be derived from goes untold
            self._tracer.hook(policy_name(policy), "", (), error, 0)
        return clone


_kinds: dict[type[Policy], type[Policy]] = {}
"""The traced classes, by those of the policies: all policies of a process stay loaded."""


def _traced(kind: type[Policy]) -> type[Policy]:
    if kind not in _kinds:
        hooks = {
            name: _told(name, getattr(kind, name))
            for name in _TOLD
            if getattr(kind, name) is not getattr(Policy, name)
        }
        # where its module is says whether it is one of ours, and its name is what it is called by
        same = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
        derive: Any = type(kind)
        _kinds[kind] = derive(kind.__name__, (kind,), same | hooks)
    return _kinds[kind]


def _told(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call_hook(self: Policy, *args: Any) -> Any:
        tracer: Tracer = vars(self)[_TRACER]
        began = tracer.clock_ns()
        try:
            result = hook(self, *args)
        except BaseException as error:
            tracer.hook(policy_name(self), name, args, error, tracer.clock_ns() - began)
            raise
        tracer.hook(policy_name(self), name, args, result, tracer.clock_ns() - began)
        return result

    return call_hook
