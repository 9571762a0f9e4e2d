"""The monitor `secrets`: keys and passwords in a call's arguments."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from policy.base import Context, ToolCall
from policy.effects.credentials import check_kind, secrets_in
from policy.monitors.base import Monitor
from policy.monitors.effect_monitor import Share
from policy.monitors.fields import nodes
from policy.scores import Score

_MAX_CHARS = 1_048_576
"""Of a call's texts together; what is longer gets the score of a secret, as nobody looked."""


class SecretsOptions(BaseModel):
    """Options of the monitor `secrets`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    value: Share = 0.8
    """The score of a call that contains a secret."""
    ignore: tuple[Annotated[str, AfterValidator(check_kind)], ...] = ()
    """Kinds of secrets to ignore, such as `jwt` or `named`."""


class SecretsMonitor(Monitor):
    """Scores calls that carry secrets; the others score 0. No score contains the secret."""

    name = "secrets"

    def __init__(self, **options: object) -> None:
        """Take the options."""
        self.options = SecretsOptions.model_validate(options)

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call by the texts among its arguments."""
        kinds: dict[str, float] = {}
        left = _MAX_CHARS
        for name, _, node in nodes(call.value):
            # a key with the text that it names, as `api_key=...` in one
            text = f"{name}: {node}" if isinstance(node, str) else ""
            left -= len(text)
            if left < 0:
                kinds["too_long"] = self.options.value
                break
            for secret in secrets_in(text):
                if secret.kind not in self.options.ignore:
                    kinds[secret.kind] = self.options.value
        return Score(self.name, self.options.value if kinds else 0.0, kinds, ", ".join(kinds))
