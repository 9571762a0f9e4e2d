"""A provider's endpoints: address, path, headers and the key, whatever dialect is spoken there.

Today there is one way: the dialect's own API below `base_url`, with the key in the dialect's own header. Azure and Vertex will be others.
Where a request goes, with which headers and key, comes from the configuration alone.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from protocol.config import Upstream
from protocol.dialects import DIALECTS
from protocol.request import Endpoint
from providers.http1 import Origin


def provider_key(upstream: Upstream) -> str:
    """Return the provider's key from where the configuration says it is, or an empty string. Raises OSError, UnicodeDecodeError."""
    if upstream.api_key_file:
        return Path(upstream.api_key_file).read_text(encoding="utf-8").strip()
    return os.environ.get(upstream.api_key_env or "", "")


def headers(upstream: Upstream) -> dict[str, str]:
    """Return the headers of every request to an upstream, names in lower case: the configured ones, the dialect's and its key's."""
    dialect = DIALECTS[upstream.dialect]
    found = {"content-type": "application/json", "accept-encoding": "identity", **dialect.headers}
    found |= {name.lower(): value for name, value in upstream.headers.items()}
    if key := provider_key(upstream):
        name, value = dialect.key_header
        found[name] = value.format(key=key)
    return found


def betas(upstream: Upstream, configured: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the header for a request's beta features, `configured` being the headers of all: nothing where there is none."""
    header = DIALECTS[upstream.dialect].betas_header
    return {header: joined(configured.get(header, ""), names)} if header and names else {}


def joined(configured: str, names: Iterable[str]) -> str:
    """Return the header's value: the operator's names first, then those of the request, each once. Nothing is replaced."""
    return ",".join(dict.fromkeys(name for name in [*map(str.strip, configured.split(",")), *names] if name))


def address(upstream: Upstream, endpoint: Endpoint) -> tuple[Origin, str]:
    """Return where an endpoint is, and its path there; `endpoint` as `Dialect.asked` names it."""
    dialect = DIALECTS[upstream.dialect]
    name, _, model = endpoint.partition(" ")
    base = upstream.base_url.rstrip("/").removesuffix(dialect.base_overlap)
    return Origin(base), dialect.upstream_paths[name].format(model=quote(model, safe=""))
