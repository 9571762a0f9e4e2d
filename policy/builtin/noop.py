"""The policy that allows everything the codecs model."""

from policy.base import Policy


class Noop(Policy):
    """Allow every event."""

    name = "noop"
    keeps_request = False
    is_noop = True
