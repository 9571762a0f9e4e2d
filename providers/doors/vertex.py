"""Vertex AI of Google: models of Google and Claude in a project, with a service account's token.

Claude's body has no `model`, which stands in the path, and names the version that the header has
elsewhere. Beta features stay in the header.
"""

from urllib.parse import quote

import msgspec

from protocol.request import Endpoint
from providers import endpoints, google_token
from providers.doors.plain import apart, fields_of, model_of, value_of, written
from providers.doors.tokened import TokenedDoor
from providers.tokens import Token

_HOSTS = {
    "global": "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}
_SHOWN = "includeServerSideToolInvocations"


class VertexDoor(TokenedDoor):
    """Models of one publisher in a project and a location."""

    def base(self) -> str:
        """The publisher's place in the project."""
        upstream, location = self.upstream, self.upstream.location or ""
        host = (
            upstream.base_url
            or f"https://{_HOSTS.get(location, f'{location}-aiplatform.googleapis.com')}"
        )
        project = quote(upstream.project or "", safe=":")
        return endpoints.based(
            host, f"/v1/projects/{project}/locations/{location}{upstream.way.place}"
        )

    def path(self, endpoint: Endpoint) -> str:
        """Where an endpoint is; models of Google may have an `@` in their names."""
        return super().path(endpoint).replace("%40", "@")

    async def edited(self, endpoint: Endpoint, body: bytes) -> tuple[str, bytes]:
        """Return a request's path and body."""
        return await apart(len(body), lambda: self._edited(endpoint, body))

    def _edited(self, endpoint: Endpoint, body: bytes) -> tuple[str, bytes]:
        if not self.upstream.way.version:
            return self.path(endpoint), without_shown(body)
        fields = fields_of(body)
        fields["anthropic_version"] = msgspec.Raw(msgspec.json.encode(self.upstream.way.version))
        if endpoint == "count_tokens":
            return "/models/count-tokens:rawPredict", written(fields)
        model = quote(model_of(fields), safe="@:")
        kind = "streamRawPredict" if value_of(fields, "stream") is True else "rawPredict"
        del fields["model"]
        return f"/models/{model}:{kind}", written(fields)

    async def ask(self) -> Token:
        """Get a token for the service account."""
        path = self.upstream.credentials_file or ""
        return await google_token.ask(self._pool, path, self.upstream)


def without_shown(body: bytes) -> bytes:
    """A request to a model of Google without what asks for each step of a tool that the provider
    runs: Vertex refuses the field, and shows searches and code in any case."""
    if _SHOWN.encode() not in body:
        return body
    fields = fields_of(body)
    config = value_of(fields, "toolConfig")
    if not isinstance(config, dict) or _SHOWN not in config:
        return body
    left = {name: value for name, value in config.items() if name != _SHOWN}
    del fields["toolConfig"]
    return written(
        fields | ({"toolConfig": msgspec.Raw(msgspec.json.encode(left))} if left else {})
    )
