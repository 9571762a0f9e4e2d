"""The OpenID Connect provider of the configuration: its addresses, its keys, and what it says of
somebody.

Its discovery document and keys are read anew after ten minutes, and keys as soon as a token names
one that is not known. What cannot be read lets nobody in. Must not know: requests of browsers,
logins.
"""

import asyncio
import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode

from joserfc.jwk import KeySet

from db.page_sessions import Person
from pages.http.oidc import tokens
from pages.http.oidc.fetch import ProviderAway, fetch
from pages.http.oidc.tokens import KeyUnknown, LoginRefused, Logout
from settings.login import Oidc

FRESH_S = 600.0
"""How long what was read counts."""
AGAIN_S = 10.0
"""The least time from one reading to the next: also of one that failed."""
T = TypeVar("T")


@dataclass(slots=True)
class _Known:
    """What was read of a provider, and when, by a clock that only goes on."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    keys: KeySet = field(default_factory=lambda: KeySet([]))
    at: float = -FRESH_S
    failure: ProviderAway | None = None


class Provider:
    """Asks one provider. Every method raises ProviderAway where that does not answer as it must;
    `now` is the time that its tokens are held against."""

    def __init__(self, oidc: Oidc, now: Callable[[], float] = time.time) -> None:
        self.oidc = oidc
        self._now = now
        self._known = _Known()
        self._reading = asyncio.Lock()

    async def login_url(self, asked: Mapping[str, str]) -> str:
        """Return where to send somebody to log in, with these parameters."""
        url = self._address(await self._metadata(), "authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self.oidc.client_id,
            "scope": " ".join(self.oidc.scopes),
            **asked,
        }
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def check_issuer(self, issuer: str | None) -> None:
        """Raise LoginRefused where an answer names another issuer, or none though this one always
        does (RFC 9207)."""
        name = "authorization_response_iss_parameter_supported"
        is_missing = issuer is None and (await self._metadata()).get(name) is True
        if is_missing or issuer not in (None, self.oidc.issuer):
            raise LoginRefused("this answer is of another provider")

    async def person(self, code: str, verifier: str, nonce: str, redirect_uri: str) -> Person:
        """Return who logged in, for the code that the provider sent. Raises LoginRefused."""
        metadata = await self._metadata()
        form, headers = self._credentials(metadata)
        form |= {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        status, answer = await fetch(self._address(metadata, "token_endpoint"), headers, form)
        if answer.get("error") == "invalid_grant":
            raise LoginRefused("this login was completed before, or took too long: begin again")
        token = answer.get("id_token")
        if status != 200 or not isinstance(token, str):
            raise ProviderAway("the provider does not take this client's code")
        claims = await self._checked(
            lambda keys: tokens.id_claims(token, keys, self.oidc, self._now(), nonce)
        )
        if tokens.lacks(claims, self.oidc) and "userinfo_endpoint" in metadata:
            bearer = {"authorization": f"Bearer {answer.get('access_token')}"}
            url = self._address(metadata, "userinfo_endpoint")
            status, more = await fetch(url, bearer)
            if status == 200 and more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return tokens.person_of(claims, self.oidc)

    async def logout(self, token: str) -> Logout:
        """Return whom a logout token is about. Raises LoginRefused."""
        return await self._checked(
            lambda keys: tokens.logout_of(token, keys, self.oidc, self._now())
        )

    async def _checked(self, check: Callable[[KeySet], T]) -> T:
        await self._metadata()
        try:
            return check(self._known.keys)
        except KeyUnknown:
            # it may have changed its keys since
            await self._metadata(AGAIN_S)
            return check(self._known.keys)

    def _credentials(self, metadata: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
        """The fields and the headers that say which client this is."""
        oidc = self.oidc
        try:
            secret = (
                Path(oidc.client_secret_file).read_text(encoding="utf-8").strip()
                if oidc.client_secret_file
                else os.environ.get(oidc.client_secret_env or "", "")
            )
        except (OSError, UnicodeDecodeError) as error:
            raise ProviderAway("the client's secret cannot be read") from error
        if not secret:
            raise ProviderAway("the client's secret is not set")
        ways = metadata.get("token_endpoint_auth_methods_supported")
        if isinstance(ways, list) and "client_secret_basic" not in ways:
            return {"client_id": oidc.client_id, "client_secret": secret}, {}
        pair = f"{quote_plus(oidc.client_id)}:{quote_plus(secret)}"
        return {}, {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _address(self, metadata: Mapping[str, Any], name: str) -> str:
        url = metadata.get(name)
        # in the clear only where the issuer itself is, on this machine
        schemes = ("https://", "http://") if self.oidc.issuer.startswith("http://") else "https://"
        is_fit = isinstance(url, str) and url.startswith(schemes) and url.isascii()
        if not is_fit or not isinstance(url, str) or not url.isprintable() or " " in url:
            raise ProviderAway(f"the provider's {name} is missing or no https:// address")
        return url

    async def _metadata(self, fresh_s: float = FRESH_S) -> Mapping[str, Any]:
        """Return the discovery document, and know the keys, read less than `fresh_s` ago."""
        async with self._reading:
            known = self._known
            age_s = time.monotonic() - known.at
            if age_s >= (AGAIN_S if known.failure else fresh_s):
                self._known = known = await self._read()
        if known.failure is not None:
            raise known.failure
        return known.metadata

    async def _read(self) -> _Known:
        try:
            return _Known(*await self._documents(), at=time.monotonic())
        except ProviderAway as error:
            return _Known(at=time.monotonic(), failure=error)

    async def _documents(self) -> tuple[Mapping[str, Any], KeySet]:
        issuer = self.oidc.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, metadata = await fetch(url, {})
        if status != 200 or metadata.get("issuer") != issuer:
            raise ProviderAway(
                "the provider's discovery document is missing or names another issuer"
            )
        status, answer = await fetch(self._address(metadata, "jwks_uri"), {})
        keys = tokens.key_set(answer.get("keys"))
        if status != 200 or not keys:
            raise ProviderAway("the provider has no keys that can be used")
        return metadata, keys
