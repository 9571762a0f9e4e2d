"""The configuration of logins by OpenID Connect: whom people log in at, and who may do what.

Pure: nothing is asked of the provider here. Its client secret is named, never held.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

ISSUER = (
    r"^(https://([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"|http://(localhost|127(\.[0-9]{1,3}){3}|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]{0,500})?$"
)
PersonRole = Literal["auditor", "admin", "approver"]
"""Roles that a person may have: those of keys that do something on the pages."""
Claim = Annotated[str, Field(min_length=1, max_length=200)]


class Oidc(BaseModel):
    """An OpenID Connect provider, at which people log in (docs/run/pages.md#log-in-as-a-person).
    Needs `pages.url`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    issuer: Annotated[str, Field(pattern=ISSUER)]
    """Its issuer, exactly as its tokens name it; `http://` on this machine alone."""
    client_id: Claim
    """The name of Sluice there."""
    client_secret_env: str | None = None
    """The environment variable of `sluice pages` with its secret."""
    client_secret_file: str | None = None
    """The file with it. One of the two is needed."""
    scopes: tuple[Claim, ...] = ("profile",)
    """Scopes to ask for besides `openid`."""
    roles_claim: Claim = "groups"
    """The claim that says what a person may do: a text or a list. Dots lead into objects."""
    roles: Annotated[dict[Claim, tuple[PersonRole, ...]], Field(min_length=1, max_length=200)]
    """Roles by its values."""
    name_claim: Claim = "name"
    """The claim with the name to show."""
    login_s: Annotated[int, Field(ge=60, le=43200)] = 3600
    """Seconds until the provider is asked again."""

    @model_validator(mode="after")
    def _names_its_secret(self) -> "Oidc":
        if (self.client_secret_env is None) == (self.client_secret_file is None):
            raise ValueError(
                "name the client's secret with client_secret_env or with client_secret_file"
            )
        return self


class LoginSettings(BaseModel):
    """How people log in to the pages, besides with keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    oidc: Oidc | None = None
    """Unset: with keys alone."""
