"""Signatures of requests to AWS, version 4: an HMAC over what is sent, with a key that is derived
for a day, a region and a service.

A signature holds for 5 minutes, so requests are signed when they are sent. The path is escaped once
more for the signature than it travels, as all services but S3 want it. Only the headers that are
returned or named here are signed.
"""

import hmac
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote

import msgspec

_ALGORITHM = "AWS4-HMAC-SHA256"


class AwsKey(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A key that signs; with a token where it is for a time only."""

    id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "AwsKey(...)"


class Scope(msgspec.Struct, frozen=True):
    """What a signature is for."""

    region: str
    service: str


def signed(
    key: AwsKey,
    scope: Scope,
    *,
    at: str,
    host: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
) -> dict[str, str]:
    """Return the headers to add to a POST of `body`, so that it is signed.

    `at` is the time in UTC as `20261128T043100Z`. `target` is the path with its query, as it
    travels. `headers` are those that are to be signed besides, names in lower case.
    """
    digest = sha256(body).hexdigest()
    added = {"x-amz-content-sha256": digest, "x-amz-date": at}
    if key.token:
        added["x-amz-security-token"] = key.token
    path, _, query = target.partition("?")
    whole = sorted({"host": host, **headers, **added}.items())
    names = ";".join(name for name, _ in whole)
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in whole)
    canonical = "\n".join(
        ("POST", quote(_dotless(path), safe="/~"), _sorted_query(query), lines, names, digest)
    )
    at_scope = f"{at[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((_ALGORITHM, at, at_scope, sha256(canonical.encode()).hexdigest()))
    signature = hmac.new(_derived(key.secret, at[:8], scope), text.encode(), sha256).hexdigest()
    added["authorization"] = (
        f"{_ALGORITHM} Credential={key.id}/{at_scope}, SignedHeaders={names}, Signature={signature}"
    )
    return added


@lru_cache(maxsize=64)
def _derived(secret: str, day: str, scope: Scope) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in (day, scope.region, scope.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _dotless(path: str) -> str:
    """Return a path without empty and dotted parts, which a server takes out before it looks at the
    signature."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts) + ("/" if parts and path.endswith("/") else "")


def _sorted_query(query: str) -> str:
    pairs = sorted(
        (name, value)
        for name, _, value in (part.partition("=") for part in query.split("&") if part)
    )
    return "&".join(f"{name}={value}" for name, value in pairs)
