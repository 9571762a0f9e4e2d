"""Where requests for a model go: one upstream, or several that are tried in an order.

Pure. The order of a call's targets is drawn from the call's id: whoever takes the call over draws
the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.bounds import MAX_ATTEMPTS, MAX_MODEL_CHARS, MAX_TARGETS

Trust = Literal["trusted", "untrusted"]
TargetModel = Annotated[str, Field(min_length=1, max_length=MAX_MODEL_CHARS)]
UpstreamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class RouteTarget(BaseModel):
    """An upstream that may answer, and how it calls the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    upstream: UpstreamName
    """The key of the upstream under `upstreams`."""
    model: TargetModel | None = None
    """The model to ask it for. Unset: the one that the client names."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Its share of first requests among `targets`. Under `then` it means nothing."""


class Retry(BaseModel):
    """Which failed requests are tried again ([routes](routes.md))."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = 3
    """Requests for one answer, the first included."""
    max_wait_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 5.0
    """The longest wait before the same upstream is asked again. One that asks for more is not."""
    uncertain: bool = False
    """Whether another target is asked after silence for `limits.first_byte_s`. The silent one may
    have done the work, and may charge for it."""
    failover_auth: bool = False
    """Whether another target is asked where one refuses the key."""


class Routed(BaseModel):
    """Where a route leads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    upstream: UpstreamName = ""
    """The key of the upstream under `upstreams`; or `script`, which plays files
    (docs/use/scripts.md), in the client's dialect; `script-openai` and `script-anthropic` always in
    theirs. Short for `targets` with one item. A route needs one of the two."""
    model: TargetModel | None = None
    """The model to ask `upstream` for. Unset: the one that the client names."""
    targets: Annotated[tuple[RouteTarget, ...], Field(max_length=MAX_TARGETS)] = ()
    """Upstreams that share the requests. What one fails to answer goes to another
    ([routes](routes.md))."""
    then: Annotated[tuple[RouteTarget, ...], Field(max_length=MAX_TARGETS)] = ()
    """Further targets, in this order, for what those before failed to answer. They may be of other
    dialects."""
    retry: Retry | None = None
    """Which failures are tried again. Unset: its defaults where there are several targets, else
    none."""
    allow_less_trust: bool = False
    """Whether a request for a trusted upstream may go on to an untrusted one."""

    @model_validator(mode="before")
    @classmethod
    def _is_one_form(cls, raw: Any) -> Any:
        first = next(iter(_items(raw, "targets")), None)
        if first is None:
            if isinstance(raw, Mapping) and "upstream" not in raw:
                raise ValueError("a route needs `upstream` or `targets`")
            return raw
        name = first.get("upstream")
        if raw.get("upstream", name) != name or raw.get("model") is not None:
            raise ValueError("`targets` has upstreams and models: take `upstream` and `model` out")
        return {**raw, "upstream": name} if name is not None else raw

    @property
    def group(self) -> tuple[RouteTarget, ...]:
        """The targets that share first requests."""
        return self.targets or (RouteTarget(upstream=self.upstream, model=self.model),)

    @property
    def attempts(self) -> int:
        """Requests for one answer."""
        if self.retry is not None:
            return self.retry.attempts
        return Retry().attempts if len(self.targets) > 1 or self.then else 1

    def order(self, call_id: str) -> tuple[RouteTarget, ...]:
        """Return the targets of a call: those that share, drawn by weight, then the others."""
        group = self.group
        if len(group) > 1:
            drawn = [(draw(call_id, n) ** (1 / t.weight), n) for n, t in enumerate(group)]
            group = tuple(group[n] for _, n in sorted(drawn, reverse=True))
        return (*group, *self.then)


def draw(call_id: str, what: object) -> float:
    """Return a number from 0 up to 1, which this call always gets."""
    digest = hashlib.blake2b(f"{call_id} {what}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


def named(route: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the upstreams that a route of a file names, with their places in it."""
    if not route.get("targets"):
        yield ("upstream",), route.get("upstream")
    for what in ("targets", "then"):
        for number, target in enumerate(_items(route, what)):
            yield (what, number, "upstream"), target.get("upstream")


def loses_trust(route: Mapping[str, Any], trust: Mapping[str, object]) -> str:
    """Return the untrusted upstream that a request for a trusted one may go on to, "" for none.
    `trust` is what upstreams are said to be."""
    shared = {name for (what, *_), name in named(route) if what == "targets"}
    had = any(trust.get(name) != "untrusted" for name in shared)
    for _, name in named(route):
        if had and trust.get(name) == "untrusted":
            return str(name)
        had = had or trust.get(name) != "untrusted"
    return ""


def _items(raw: object, what: str) -> list[Mapping[str, Any]]:
    items = raw.get(what) if isinstance(raw, Mapping) else None
    if not isinstance(items, list | tuple):
        return []
    return [item for item in items if isinstance(item, Mapping)]
