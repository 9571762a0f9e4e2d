"""Who is notified of tool calls that wait for people, as the configuration says. Pure."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from protocol.requests.addresses import check_base_url

MOST_TARGETS = 16
PUBLIC_URL = r"^(https?://[!-~]{1,1000}[^/])?$"


def _check_url(url: str) -> str:
    check_base_url(url)
    return url


class Notified(BaseModel):
    """A program that is notified by a POST. Redirects are not followed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Its name in logs."""
    url: Annotated[str, AfterValidator(_check_url), Field(pattern=r"^[!-~]*$", max_length=2_000)]
    """Where to post to; it may be in a private network."""
    form: Literal["sluice", "slack"] = "sluice"
    """`sluice`: a signed JSON object (docs/run/approvals.md#notices). `slack`: what Slack's incoming
    webhooks take: a sentence and a link."""
    secret_env: str = ""
    """The variable with the secret that signs, in the environment of audit writers. Required for
    the form `sluice`."""

    @model_validator(mode="after")
    def _signs(self) -> "Notified":
        if (self.form == "sluice") != bool(self.secret_env):
            raise ValueError(
                "`secret_env` goes with the form `sluice`, which is signed, and with that alone"
            )
        return self


class Approvals(BaseModel):
    """Notices of tool calls that wait for people (docs/run/approvals.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    public_url: Annotated[str, Field(pattern=PUBLIC_URL)] = ""
    """The address at which people reach `/debug`; links in notices begin with it."""
    notify: Annotated[tuple[Notified, ...], Field(max_length=MOST_TARGETS)] = ()
    """Who is notified when a request is made, and when it ends."""

    @model_validator(mode="after")
    def _has_links(self) -> "Approvals":
        if self.notify and not self.public_url:
            raise ValueError("notices have a link: say where people reach /debug as `public_url`")
        if len({one.name for one in self.notify}) < len(self.notify):
            raise ValueError("two of `notify` have the same name")
        return self
