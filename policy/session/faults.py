"""Faults of policies: a hook is foreign code, which may raise anything, and whatever it was to
decide about is blocked. Must not know: what is decided about.
"""

import logging
import sys

from policy.base import Block, Policy
from policy.hooks import raised_at
from protocol.errors import TookTooLong

log = logging.getLogger(__name__)


def policy_name(policy: Policy) -> str:
    """The policy's stable name."""
    return policy.name or type(policy).__name__


def fault(policy: Policy, hook: str, call_id: str, problem: str = "") -> Block:
    """Note a fault and return its block. To be called where a hook raised, whatever it raised.

    A hook is synchronous, so no cancellation can reach it: what looks like one is its own. Only
    Ctrl-C passes.
    """
    error = sys.exc_info()[1]
    if isinstance(error, KeyboardInterrupt):
        raise error
    # without the traceback: an error's text can hold prompts
    problem = (
        type(error).__name__ if error is not None else problem or "returned what the hook may not"
    )
    at = raised_at(error, type(policy).__module__) if error is not None else ""
    log.error(
        "policy fault",
        extra={
            "policy": policy_name(policy),
            "hook": hook,
            "call_id": call_id,
            "error": problem,
            "at": at,
        },
    )
    return Block("fault")


def hook_result(policy: Policy, hook: str, call_id: str, *arguments: object) -> object:
    """What a hook returned, or the block of a fault: it is foreign code, and may raise anything."""
    try:
        # looked up in here: what stands there may raise, too
        returned: object = getattr(policy, hook)(*arguments)
        return returned
    except TookTooLong:
        raise
    except BaseException:  # noqa: BLE001 - whatever it raised, what it was to decide about is blocked
        return fault(policy, hook, call_id)
