"""The configuration of logins by OpenID Connect: whom people log in at, and who may do what.

Pure: nothing is asked of the provider here. Its client secret is named, never held.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_ISSUER = (
    r"^(https://([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"|http://(localhost|127(\.[0-9]{1,3}){3}|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]{0,500})?$"
)
PersonRole = Literal["auditor", "admin", "approver"]
"""Roles that a person may have: those of keys that do something on the pages."""
Claim = Annotated[str, Field(min_length=1, max_length=200)]


class Oidc(BaseModel):
    """An OpenID Connect provider, at which people log in to the pages
    (docs/run/pages.md#log-in-as-a-person). Needs `pages.url`; the redirect URI to register is that
    address with `/debug/login/oidc/done`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    issuer: Annotated[str, Field(pattern=_ISSUER)]
    """The provider's issuer, exactly as its tokens name it: `https://`, or `http://` on this
    machine. All its other addresses come from its discovery document."""
    client_id: Claim
    """What Sluice is called there."""
    client_secret_env: str | None = None
    """The environment variable of `sluice pages` with the client's secret."""
    client_secret_file: str | None = None
    """The file with it, read anew at each login. One of the two is needed."""
    scopes: tuple[Claim, ...] = ("profile",)
    """Scopes to ask for besides `openid`."""
    roles_claim: Claim = "groups"
    """The claim, of the ID token or else of UserInfo, that says what a person may do: a text or a
    list. Dots lead into objects: `realm_access.roles`."""
    roles: Annotated[dict[Claim, tuple[PersonRole, ...]], Field(min_length=1, max_length=200)]
    """Roles by value of that claim. A person without any is not let in."""
    name_claim: Claim = "name"
    """The claim with the name that pages and the record show, before `(oidc:SUBJECT)`."""
    login_s: Annotated[int, Field(ge=60, le=43200)] = 3600
    """How long a login lasts. Then the provider is asked again, and so are the person's roles."""

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
