"""A policy that approves a request of its own making."""

from collections.abc import Callable

from policy.base import Block, Policy
from protocol.request import ChatRequest

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


class Approve(Policy):
    """Makes of the request what a test says."""

    name = "approve"

    def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
        return self.change(request)

    @staticmethod
    def change(request: ChatRequest) -> ChatRequest:
        """Nothing."""
        return request


def approving(change: Callable[[ChatRequest], ChatRequest]) -> Policy:
    kind: type[Policy] = type("Approve", (Approve,), {"change": staticmethod(change)})
    return kind()
