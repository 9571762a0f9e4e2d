"""Which session a call gets, by the policies of its series."""

from collections.abc import Sequence

from policy.base import Policy
from policy.session.continuing import ContinuingSession
from policy.session.deferring import DeferringSession
from policy.session.effects import CallInfo
from policy.session.session import Session
from settings.config import Config


def session_of(call: CallInfo, policies: Sequence[Policy], config: Config) -> Session:
    """Return the session for a call under this series."""
    for policy in policies:
        if policy.defers_to and call.endpoint != "count_tokens":
            return DeferringSession(call, policies, config)
    kinds = {policy.on_block for policy in policies}
    if "continue" in kinds and "stop" not in kinds and call.endpoint != "count_tokens":
        return ContinuingSession(call, policies, config)
    return Session(call, policies, config)
