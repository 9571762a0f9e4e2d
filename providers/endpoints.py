"""What all doors to providers share: where a key is, the headers of every request, and where an
endpoint is below a base URL.

Where a request goes, with which headers and key, comes from the configuration alone.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from protocol.dialects.table import DIALECTS
from protocol.request import Endpoint
from settings.upstreams import Upstream

_BEARER = "authorization"


def secret(file: str | None, variable: str | None) -> str:
    """Return a secret from where the configuration says it is, or an empty string. Raises OSError,
    UnicodeDecodeError."""
    if file:
        return Path(file).read_text(encoding="utf-8").strip()
    return os.environ.get(variable or "", "")


def provider_key(upstream: Upstream) -> str:
    """Return the provider's key, or an empty string. Raises OSError, UnicodeDecodeError."""
    return secret(upstream.api_key_file, upstream.api_key_env)


def common_headers(upstream: Upstream) -> dict[str, str]:
    """Return the headers of every request to an upstream, names in lower case: the dialect's and
    the configured ones."""
    defaults = {
        "content-type": "application/json",
        "accept-encoding": "identity",
        **DIALECTS[upstream.dialect].headers,
    }
    return defaults | {name.lower(): value for name, value in upstream.headers.items()}


def headers(upstream: Upstream, key_header: tuple[str, str] | None = None) -> dict[str, str]:
    """Return `common_headers` and the key's: the configured one, else `key_header` (name, form of
    the value), else the dialect's. Raises OSError, UnicodeDecodeError."""
    request_headers = common_headers(upstream)
    if key := provider_key(upstream):
        name, value = key_header or DIALECTS[upstream.dialect].key_header
        if upstream.key_header is not None:
            name = upstream.key_header.lower()
            value = "Bearer {key}" if name == _BEARER else "{key}"
        request_headers[name] = value.format(key=key)
    return request_headers


def betas(
    upstream: Upstream, configured: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Return the header for a request's beta features, `configured` being the headers of all:
    nothing where there is none."""
    header = DIALECTS[upstream.dialect].betas_header
    return {header: joined(configured.get(header, ""), names)} if header and names else {}


def joined(configured: str, names: Iterable[str]) -> str:
    """Return the header's value: the operator's names first, then those of the request, each once.
    Nothing is replaced."""
    return ",".join(
        dict.fromkeys(name for name in [*map(str.strip, configured.split(",")), *names] if name)
    )


def based(base_url: str, path: str = "", *, query: str = "", overlap: str = "") -> str:
    """Return an address with `path` behind its own, of which the ending `overlap` is taken away,
    and `query` before its own."""
    url = urlsplit(base_url)
    base_path = url.path.rstrip("/").removesuffix(overlap) if overlap else url.path.rstrip("/")
    return urlunsplit(
        url._replace(path=base_path + path, query="&".join(filter(None, (query, url.query))))
    )


def path_of(endpoint: Endpoint, paths: Mapping[Endpoint, str]) -> str:
    """Return an endpoint's path; `endpoint` as `Dialect.asked` names it."""
    name, _, model = endpoint.partition(" ")
    return paths[name].format(model=quote(model, safe=""))
