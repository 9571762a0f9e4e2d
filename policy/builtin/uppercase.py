"""The smallest example of a policy that changes text."""

from policy.base import Policy, TextBlock
from protocol.events import BlockKind


class Uppercase(Policy):
    """Turn the answer's text into capitals. Reasoning stays: its signature vouches for the
    original.

    Results of tools and citations pass as they are: this is an example of form, and keeps nothing
    secret.
    """

    name = "uppercase"
    keeps_request = False

    def on_text(self, text: str, block: TextBlock) -> str:
        """Return the piece in capitals; no piece depends on its neighbours, so nothing is held
        back."""
        return text.upper() if block.kind is BlockKind.TEXT else text
