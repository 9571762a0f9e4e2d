"""The OpenID Connect provider of the configuration: its addresses, its keys, and what it says of
somebody.

Its discovery document and keys are read for each login, but once in ten seconds at most: so they
are never old, and strangers cannot have it asked all the time. What cannot be read lets nobody in.
Must not know: requests of browsers, logins.
"""

import asyncio
import contextlib
import os
import re
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from db.page_sessions import Person
from pages.http.oidc import tokens
from pages.http.oidc.fetch import ProviderAway, fetch
from pages.http.oidc.tokens import LoginRefused
from settings.login import Oidc

FRESH_S = 10.0
"""How long what was read counts, and what could not be read."""
# in the clear on this machine alone
_ADDRESS = re.compile(r"(https://|http://(localhost|127\.0\.0\.1|\[::1\])[:/])[!-~]+")


class Provider:
    """Asks one provider. Every method raises ProviderAway where that does not answer as it must."""

    def __init__(self, oidc: Oidc) -> None:
        self._oidc = oidc
        self._known: tuple[dict[str, Any], KeySet] | ProviderAway = ProviderAway("not asked yet")
        self._read_at, self._reading = -FRESH_S, asyncio.Lock()

    async def login_url(self, asked: Mapping[str, str]) -> str:
        """Return where to send somebody to log in, with these parameters."""
        metadata, _ = await self._read()
        url, scopes = _address(metadata, "authorization_endpoint"), ("openid", *self._oidc.scopes)
        client = {"client_id": self._oidc.client_id, "scope": " ".join(scopes)}
        query = urlencode({"response_type": "code", **client, **asked})
        return f"{url}{'&' if '?' in url else '?'}{query}"

    async def person(self, asked: Mapping[str, str], nonce: str) -> Person:
        """Return who logged in, for a code and what it was asked for with. Raises LoginRefused."""
        metadata, keys = await self._read()
        form = {"grant_type": "authorization_code", **asked}
        pair = f"{quote_plus(self._oidc.client_id)}:{quote_plus(self._secret())}"
        client = {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        answer = await fetch(_address(metadata, "token_endpoint"), client, form)
        if "id_token" not in answer:
            reason = str(answer.get("error"))[:64]
            raise LoginRefused(f"the provider does not go on with this login ({reason})")
        token = str(answer["id_token"])
        claims = tokens.verified(token, keys, self._oidc, exp=None, nonce=nonce)
        has_more = metadata.get("userinfo_endpoint") is not None
        if has_more and tokens.claim_of(claims, self._oidc.roles_claim) is None:
            bearer = {"authorization": f"Bearer {answer.get('access_token')}"}
            more = await fetch(_address(metadata, "userinfo_endpoint"), bearer)
            if more.get("sub") == claims.get("sub"):
                claims = more | claims
        return tokens.person_of(claims, self._oidc)

    async def logout(self, token: str) -> dict[str, Any]:
        """Return whose logins a logout token ends, as `PageSessions.end_of_person` takes it. Raises
        LoginRefused."""
        _, keys = await self._read()
        claims = tokens.verified(token, keys, self._oidc, events=None)
        return tokens.logout_of(claims, self._oidc)

    def _secret(self) -> str:
        file, variable = self._oidc.client_secret_file, self._oidc.client_secret_env
        try:
            return Path(file).read_text("utf-8").strip() if file else os.environ[variable or ""]
        except (OSError, UnicodeDecodeError, KeyError) as error:
            raise ProviderAway("the client's secret is not where the configuration says") from error

    async def _read(self) -> tuple[dict[str, Any], KeySet]:
        """Return the discovery document and the keys."""
        async with self._reading:
            if time.monotonic() - self._read_at >= FRESH_S:
                try:
                    self._known = await self._asked()
                except ProviderAway as error:
                    self._known = error
                # from now: who waited here while it did not answer need not wait for it again
                self._read_at = time.monotonic()
            if isinstance(self._known, ProviderAway):
                raise ProviderAway(self._known.message) from self._known
            return self._known

    async def _asked(self) -> tuple[dict[str, Any], KeySet]:
        issuer = self._oidc.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = await fetch(url, {})
        if metadata.get("issuer") != issuer:
            raise ProviderAway("the provider's discovery document names another issuer")
        published = (await fetch(_address(metadata, "jwks_uri"), {})).get("keys")
        keys = list[Key]()
        for key in published if isinstance(published, list) else ():
            # one that is not understood does not take away the others (RFC 7517, 5)
            with contextlib.suppress(JoseError, ValueError, TypeError, KeyError):
                keys.append(JWKRegistry.import_key(key))
        if not keys:
            raise ProviderAway("the provider has no keys that can be read")
        return metadata, KeySet(keys)


def _address(metadata: Mapping[str, Any], name: str) -> str:
    url = str(metadata.get(name))
    if _ADDRESS.fullmatch(url) is None:
        raise ProviderAway(f"the provider's {name} is missing or no https:// address")
    return url
