"""A policy that defers calls of one tool."""

from policy.base import ALLOW, Defer, Policy, ToolCall, Verdict


class Hands(Policy):
    """Hands the turn to `model` where `tool` is called; what that model asks for is allowed."""

    name = "hands"
    keeps_request = False

    def __init__(self, model: str, tool: str = "bash") -> None:
        self.defers_to, self.tool = (model,), tool

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the name alone."""
        return (
            Defer(self.defers_to[0], "critical")
            if call.name == self.tool and not call.is_deferred
            else ALLOW
        )
