"""Azure and Foundry: a resource's address, under which each dialect has its place; a key in
`api-key`, or a token of Entra.

An address with a path is taken as it is, so that a gateway of the operator's own may stand in
front.
"""

from urllib.parse import quote, urlsplit

from protocol.errors import UpstreamTokenMissing
from providers import endpoints, tokens
from providers.doors.plain import Door, longest_first
from providers.doors.tokened import TokenedDoor
from providers.tokens import Token
from settings.upstreams import Upstream

LOGIN = "https://login.microsoftonline.com"
_SCOPES = ("https://ai.azure.com/.default", "https://cognitiveservices.azure.com/.default")


def _base(upstream: Upstream, overlap: str) -> str:
    deployment = upstream.deployment
    version = f"api-version={quote(upstream.api_version, safe='')}" if upstream.api_version else ""
    place = ""
    if urlsplit(upstream.base_url).path.strip("/") == "":
        place = "/openai" if deployment else upstream.way.place
    if deployment:
        place += f"/deployments/{quote(deployment, safe='')}"
    return endpoints.based(upstream.base_url, place, query=version, overlap=overlap)


class AzureDoor(Door):
    """With a key."""

    def base(self) -> str:
        """The resource, and the place of the dialect or of the deployment in it."""
        return _base(self.upstream, self.dialect.base_overlap)

    def listing(self) -> str | None:
        """Models are listed at the `v1` API alone."""
        return None if self.upstream.deployment else super().listing()


class EntraDoor(TokenedDoor):
    """With a token for an application."""

    base, listing = AzureDoor.base, AzureDoor.listing

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._words = longest_first((*(word.decode() for word in self._words), _secret(upstream)))

    async def ask(self) -> Token:
        """Get a token by client credentials; the secret is read each time."""
        upstream = self.upstream
        try:
            secret = _secret(upstream)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UpstreamTokenMissing(
                f"no access token can be asked for: {upstream.client_secret_file}: {reason}"
            ) from None
        if not secret:
            raise UpstreamTokenMissing(
                "no access token can be asked for: the application's secret is empty or not set"
            )
        form = {
            "grant_type": "client_credentials",
            "client_id": upstream.client_id or "",
            "client_secret": secret,
            "scope": upstream.scope or _SCOPES[bool(upstream.deployment)],
        }
        return await tokens.exchange(
            self._pool,
            f"{LOGIN}/{quote(upstream.tenant or '', safe='')}/oauth2/v2.0/token",
            form,
            upstream,
        )


def _secret(upstream: Upstream) -> str:
    return endpoints.secret(upstream.client_secret_file, upstream.client_secret_env)
