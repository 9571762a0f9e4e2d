"""Checks the addresses of upstreams: what an address repeats or lacks, whose door it is, models
that are not behind one."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from protocol.dialects.table import DIALECTS
from settings.config import Config
from settings.upstreams import Upstream
from sluice.config_mistakes import Finding

_DATED = re.compile(r"[0-9]{4}-[0-9]{2}")
"""How versions of Azure's older addresses begin."""
_AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
_VERTEX = "aiplatform.googleapis.com"


_NEEDS = {
    "api.openai.com": "/v1",
    "api.groq.com": "/openai/v1",
    "api.mistral.ai": "/v1",
    "api.x.ai": "/v1",
    "openrouter.ai": "/api/v1",
    "generativelanguage.googleapis.com": "/v1beta",
}
"""Providers that serve nothing at the root of their host, and the path that their address ends
in."""
_AT_ROOT = ("api.deepseek.com", "api.perplexity.ai")
_REPEATED = re.compile(r"((?:/[^/]+)+)\1(?=/|$)")


def address_mistakes(config: Config) -> Iterator[Finding]:
    """Yield upstreams at whose address nothing can answer: it has a part of its path twice, or a
    known provider's path not at all."""
    for name, upstream in config.upstreams.items():
        if upstream.door != "plain":
            continue
        parts, sent = urlsplit(upstream.base_url), _requested(upstream)
        needed = (
            _NEEDS.get(parts.hostname or "") if DIALECTS[upstream.dialect].client_base else None
        )
        place = ("upstreams", name, "base_url")
        if repeated := _REPEATED.search(sent):
            message = f"has {repeated[1]} twice where requests are sent, to {sent}: take one away"
            yield Finding(
                "error",
                place,
                next((better for _, better in _twice(upstream, parts.path.rstrip("/"))), message),
            )
        elif needed and not parts.path.strip("/"):
            yield Finding(
                "error",
                place,
                "has no path: requests to this provider go to"
                f" {parts.scheme}://{parts.hostname}{needed}",
            )


def _requested(upstream: Upstream) -> str:
    """Return the path at an upstream to which requests are sent."""
    dialect, path = DIALECTS[upstream.dialect], urlsplit(upstream.base_url).path.rstrip("/")
    return path.removesuffix(dialect.base_overlap) + dialect.upstream_paths[dialect.answers]


def address_warnings(config: Config) -> Iterator[Finding]:
    """Yield upstreams whose address is not what their door expects, so that the provider answers
    404 or 401, and routes of models that are not there."""
    for name, upstream in config.upstreams.items():
        says = {"plain": _plain, "azure": _azure, "vertex": _vertex, "bedrock": _bedrock}[
            upstream.door
        ]
        for setting, message in says(upstream, urlsplit(upstream.base_url).path.rstrip("/")):
            yield Finding("warning", ("upstreams", name, setting), message)
    for number, route in enumerate(config.models):
        target = config.upstreams.get(route.upstream)
        if target is None or not (word := target.way.models):
            continue
        if wrong := next(
            (
                pattern
                for pattern in route.names
                if word not in pattern and not pattern.startswith("arn:")
            ),
            "",
        ):
            message = (
                f"{wrong!r} is not behind `door: {target.door}` with `dialect: {target.dialect}`,"
                f" which is for models with {word!r} in their names: lead it to an upstream of"
                " another dialect (docs/run/providers.md)"
            )
            yield Finding("warning", ("models", number, "names"), message)


def _twice(upstream: Upstream, path: str) -> Iterator[tuple[str, str]]:
    """Yield what the address has at its end, and what is added to it."""
    dialect = DIALECTS[upstream.dialect]
    added = dialect.upstream_paths[dialect.answers]
    fixed, is_in_path, _ = added.partition("{model}")
    ending = next(
        (end for end in sorted(dialect.never_in_base, key=len, reverse=True) if path.endswith(end)),
        "",
    )
    if is_in_path and fixed in path:
        ending = path[path.index(fixed) :]
    if ending:
        yield (
            "base_url",
            f"ends in {ending}, and {added} is added to it for each request: take {ending} away",
        )


def _plain(upstream: Upstream, path: str) -> Iterator[tuple[str, str]]:
    host, dialect = urlsplit(upstream.base_url).hostname or "", DIALECTS[upstream.dialect]
    door = (
        "azure"
        if host.endswith(_AZURE) and not path
        else "vertex"
        if host.endswith(_VERTEX)
        else ""
    )
    if door:
        yield (
            "base_url",
            (
                f"is an address that wants `door: {door}`, for the path and what lets requests in:"
                " add that (docs/run/providers.md)"
            ),
        )
    elif (
        not path
        and (ends := dialect.client_base or dialect.base_ends)
        and host not in (*_NEEDS, *_AT_ROOT)
    ):
        yield (
            "base_url",
            (
                f"has no path: the address of most providers of this dialect ends in {ends}: add"
                " it, unless the API is at the root"
            ),
        )
    if not _REPEATED.search(_requested(upstream)):
        yield from _twice(upstream, path)


def _azure(upstream: Upstream, path: str) -> Iterator[tuple[str, str]]:
    versions = [
        value
        for name, value in parse_qsl(urlsplit(upstream.base_url).query)
        if name == "api-version"
    ]
    is_model_inference = path.endswith("/models") and bool(upstream.api_version or versions)
    if not is_model_inference:
        yield from _twice(upstream, path)
    if path.endswith("/openai") and not upstream.deployment:
        yield (
            "base_url",
            "ends in /openai, which is no place of an API: take it away, or write /openai/v1",
        )
    if "/deployments/" in path and upstream.deployment:
        yield "base_url", "names a deployment, and `deployment` adds one more: take the path away"
    elif "/deployments/" in path and not (upstream.api_version or versions):
        yield (
            "base_url",
            (
                "names a deployment, and such addresses need a version: add `api_version`, or take"
                " the path away for the v1 API"
            ),
        )
    if not path and not upstream.deployment and _DATED.match(upstream.api_version or ""):
        yield (
            "api_version",
            (
                "is for addresses with a deployment, which is missing: add `deployment`, or take"
                " this out for the v1 API"
            ),
        )
    if not (upstream.key_place or upstream.headers):
        message = (
            "nothing lets requests in: name the key with `api_key_env`, or `tenant`, `client_id`"
            " and `client_secret_env`"
        )
        yield "door", message


def _vertex(_upstream: Upstream, path: str) -> Iterator[tuple[str, str]]:
    if "/projects/" in path:
        yield (
            "base_url",
            (
                "holds /projects/..., which is added to it for each request: it ends before"
                " /v1/projects, or take it out"
            ),
        )


def _bedrock(upstream: Upstream, path: str) -> Iterator[tuple[str, str]]:
    place = upstream.way.place
    if place and path.endswith(place):
        yield (
            "base_url",
            f"ends in {place}, which is added to it for each request: take {place} away",
        )
    elif not place and "/model/" in path + "/":
        yield (
            "base_url",
            (
                "holds /model, which is added to it for each request with the model's name: take it"
                " away"
            ),
        )
