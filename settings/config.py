"""The configuration file as values (docs/run/configuration.md): what `sluice.settings` reads and
passes down.

Pure: reading files and the environment is `sluice.settings`' work. Secrets are named by environment
variable here, never held.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from protocol.bounds import (
    MAX_ACCEPTED_SETS,
    MAX_KEY_CALLS,
    MAX_MODEL_CHARS,
    MAX_SERIES,
    MIN_KEEPALIVE_S,
)
from protocol.debug import Debug
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from protocol.server_tools.added import check_servers, check_tools
from protocol.usage.prices import PriceTable, TokenPrices
from settings import defaults
from settings.approvals import Approvals
from settings.budgets import (
    RIGHT_TOKENS,
    RIGHT_USD,
    Budget,
    ModelPrice,
    Requests,
    Tokens,
    Usd,
    limits_of,
)
from settings.config_faults import Faults, Place, faults_between
from settings.limits import Limits
from settings.login import LoginSettings
from settings.pages import Pages
from settings.retention import Retention
from settings.routes import Routed
from settings.upstreams import Upstream as Upstream

Role = Literal["client", "auditor", "admin", "monitor", "approver"]
"""client: makes calls. auditor: reads the record. admin: reads its pages too, switches debug logs
and sees who read what. monitor: reads figures (/metrics) and no content of calls; auditors may
too. approver: decides about tool calls that wait for people, and reads those."""
Durability = Literal["default", "relaxed", "strict"]
NoticeForm = Literal["full", "plain", "silent"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
PolicySet = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Beta = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


def _check_unknown(what: str) -> str:
    if what != what.strip() or not what or len(what) > 160 or not what.isprintable():
        raise ValueError("name what was withheld as the record does, for example `block foo`")
    return what


def _check_model_name(name: str) -> str:
    if not 0 < len(name) <= MAX_MODEL_CHARS or not name.isprintable() or name != name.strip():
        raise ValueError(f"a model's name has 1 to {MAX_MODEL_CHARS} visible characters")
    if set(name) & {"*", "?"}:
        raise ValueError(f"{name!r} is a pattern, not a name: write it under `match`")
    return name


Unmodelled = Annotated[str, AfterValidator(_check_unknown)]
ModelName = Annotated[str, AfterValidator(_check_model_name)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Price(_Strict):
    """A provider's price for a million tokens, in any currency. Only measurements read it
    (docs/run/eval.md)."""

    input: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """For a million input tokens."""
    output: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """For a million output tokens."""


class ModelRoute(Routed):
    """Models whose name matches `match` or is among `names` go to `upstream` or `targets`; the
    first route that takes a model wins."""

    match: str = ""
    """Shell pattern (`*`, `?`, `[...]`) that the whole name must match. GET /v1/models lists no
    patterns."""
    names: tuple[ModelName, ...] = ()
    """Whole names, which GET /v1/models lists. A route needs `match`, `names` or both."""
    server_tools: tuple[dict[str, Any], ...] = ()
    """Server tools to add to each request of keys that may use their family, as the provider's own
    objects. Only for upstreams of the dialect `anthropic` (docs/use/tools.md)."""
    mcp_servers: tuple[dict[str, Any], ...] = ()
    """MCP servers to add likewise, for keys with the family `mcp`."""
    price: Price | None = None
    """What its models cost. `sluice eval` uses it to report the cost of judges."""

    @model_validator(mode="after")
    def _adds_what_is_known(self) -> "ModelRoute":
        check_servers(self.mcp_servers)
        check_tools(self.server_tools, self.mcp_servers)
        if not self.match and not self.names:
            raise ValueError(
                "a route needs `match` (a pattern), `names` (a list of model names), or both"
            )
        return self

    def takes(self, model: str) -> bool:
        """Does a request for `model` go to this route, if to no earlier one?"""
        return fnmatchcase(model, self.match) or model in self.names

    @property
    def listed(self) -> tuple[str, ...]:
        """The models that it names: `names`, and a `match` without a wildcard."""
        return (
            *(() if not self.match or set(self.match) & set("*?[") else (self.match,)),
            *self.names,
        )


OnBlock = Literal["stop", "continue", "window", "block", "turn"]


class PolicyStep(BaseModel):
    """One policy of a series: `use` is a built-in's name or a dotted path `module:Class`; the other
    keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    use: str
    """A built-in's name, or `module:Class` of your own (docs/run/policies.md)."""
    on_block: OnBlock | None = None
    """What follows a blocked tool call: `stop` ends the turn, `continue` gives the model the reason
    and asks it again. `stop` in one policy decides for its series. The others are of `text_judge`
    (docs/run/policies.md#text_judge)."""

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments for the policy class."""
        return dict(self.model_extra or {})


_SHIPPED = {
    name: tuple(map(PolicyStep.model_validate, steps)) for name, steps in defaults.POLICIES.items()
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a key, as `Annotated` says it: its option of `sluice keys create`, the help of
    that, and what is right of its values. A number that workers read goes to them with each call
    (`Key.for_workers`)."""

    option: str
    help: str
    right: str
    is_for_workers: bool = False
    is_number: bool = False

    @property
    def param(self) -> str:
        """What an error calls it."""
        return self.option.replace("-", "_")


NEAR_END_DAYS = 7
"""How long before a key expires `sluice doctor` warns of it."""
RIGHT_NAME = "is 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or a digit"


class Key(_Strict):
    """An API key. `sluice keys create` makes keys in the database instead."""

    name: Name
    """Its name in the record. It takes precedence over a key of that name in the database."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the key, in hexadecimal. The key itself is never in the file."""
    roles: Annotated[
        tuple[Role, ...],
        Setting(
            "role",
            "client, auditor, admin, monitor or approver; may be repeated.",
            f"a role is one of {', '.join(get_args(Role))}",
        ),
    ] = ("client",)
    """`client` makes calls. `auditor` reads the record and `/metrics`. `admin` logs in to the pages
    like an auditor, switches debug logs, and sees who read what (docs/run/pages.md). `monitor`
    reads `/metrics`."""
    policies: Annotated[
        tuple[Name, ...],
        Setting("policy", "Policy it may use; first is default.", f"a policy's name {RIGHT_NAME}"),
    ] = ("default",)
    """Policies that it may use. The first is its default."""
    server_tools: Annotated[
        tuple[Name, ...],
        Setting(
            "server-tool",
            "Family of tools run by the provider that it may use.",
            f"the name of a family of tools {RIGHT_NAME}",
        ),
    ] = ()
    """Families of provider-run tools that its requests may use: `web_search`, `code_execution`,
    `mcp` and others (docs/use/tools.md)."""
    calls: Annotated[
        Annotated[int, Field(ge=1, le=MAX_KEY_CALLS)] | None,
        Setting(
            "calls",
            "Open calls on one gateway, instead of limits.key_calls.",
            f"a number of open calls is 1 to {MAX_KEY_CALLS}",
            is_number=True,
        ),
    ] = None
    """The most open calls it may have on one gateway, instead of `limits.key_calls`."""
    requests_minute: Annotated[
        Requests | None,
        Setting(
            "requests-minute",
            "Requests that may begin within any minute, over all gateways.",
            "requests_minute is 1 to 10000 whole requests",
            is_number=True,
        ),
    ] = None
    """The most of its requests that may begin within any 60 seconds, over all gateways
    (docs/run/budgets.md)."""
    tokens_minute: Annotated[
        Tokens | None,
        Setting(
            "tokens-minute",
            "Tokens in each minute.",
            f"tokens_minute {RIGHT_TOKENS}",
            is_number=True,
        ),
    ] = None
    """The most tokens in each minute of the clock, as every limit below over all gateways."""
    tokens_day: Annotated[
        Tokens | None,
        Setting("tokens-day", "Tokens in a day.", f"tokens_day {RIGHT_TOKENS}", is_number=True),
    ] = None
    """The most tokens in a day (UTC)."""
    tokens_month: Annotated[
        Tokens | None,
        Setting(
            "tokens-month", "Tokens in a month.", f"tokens_month {RIGHT_TOKENS}", is_number=True
        ),
    ] = None
    """The most tokens in a month (UTC)."""
    usd_day: Annotated[
        Usd | None, Setting("usd-day", "US dollars in a day.", f"usd_day {RIGHT_USD}")
    ] = None
    """The most US dollars in a day, as in `2.50`."""
    usd_month: Annotated[
        Usd | None, Setting("usd-month", "US dollars in a month.", f"usd_month {RIGHT_USD}")
    ] = None
    """The most US dollars in a month."""
    session_tokens: Annotated[
        Tokens | None,
        Setting(
            "session-tokens",
            "Tokens in a session.",
            f"session_tokens {RIGHT_TOKENS}",
            is_number=True,
        ),
    ] = None
    """The most tokens in each session that a header names (docs/use/sessions.md)."""
    session_usd: Annotated[
        Usd | None, Setting("session-usd", "US dollars in a session.", f"session_usd {RIGHT_USD}")
    ] = None
    """The most US dollars in such a session."""
    team: Annotated[
        Name | None, Setting("team", "Whose budget it shares.", f"a team's name {RIGHT_NAME}")
    ] = None
    """Who uses it together with other keys: `budgets` has what they may use."""
    keepalive_s: Annotated[
        Annotated[int, Field(ge=MIN_KEEPALIVE_S, le=60)] | None,
        Setting(
            "keepalive-s",
            "Seconds between keepalives, where fewer than limits.keepalive_s.",
            f"keepalive_s is {MIN_KEEPALIVE_S} to 60 whole seconds",
            is_for_workers=True,
            is_number=True,
        ),
    ] = None
    """Seconds between keepalives for its calls, if fewer than `limits.keepalive_s`. As there, a
    client sees the first after 8 to 10 s."""
    hold_s: Annotated[
        Annotated[int, Field(ge=0, le=600)] | None,
        Setting(
            "hold-s",
            "Seconds that its calls wait for people; 0 where nobody is there to decide.",
            "hold_s is 0 to 600 whole seconds",
            is_for_workers=True,
            is_number=True,
        ),
    ] = None
    """Seconds that its calls wait for people, in place of the policy's (docs/run/approvals.md). 0,
    for an unattended agent: the turn ends at once, and an identical call later takes the
    decision."""
    project: Annotated[
        Annotated[str, Field(pattern=r"^(/|[A-Za-z]:[\\/])", max_length=1024)] | None,
        Setting(
            "project",
            "Folder that its agents work in, or several with commas between.",
            "a project is an absolute path, or several with commas between, up to 1,024 characters",
        ),
    ] = None
    """The folder that its agents work in, or several with commas between, for policies with
    `project: auto`. Unset: what its requests name (docs/run/policies.md#the-project)."""
    compress: Annotated[
        Literal["gzip"] | None,
        Setting("compress", "gzip: compress answers to clients that ask.", "compress is gzip"),
    ] = None
    """`gzip`: answers go compressed to clients whose `accept-encoding` has it. Unset: never."""
    expires_at: AwareDatetime | None = None
    """From when on it is refused, by the clock of the gateway: a time with its zone, as in
    2027-01-31T00:00:00Z."""

    def has_expired(self, now_s: float) -> bool:
        """Is it refused at this time, in seconds since 1970?"""
        return self.expires_at is not None and self.expires_at.timestamp() <= now_s

    @cached_property
    def limits(self) -> dict[str, int]:
        """What it may use, where that is limited (`settings.budgets.LIMITS`)."""
        return limits_of(self)

    @cached_property
    def is_limited(self) -> bool:
        """May a budget limit it, its own or its team's?"""
        return bool(self.limits) or self.requests_minute is not None or self.team is not None

    @cached_property
    def for_workers(self) -> dict[str, int]:
        """Those of its numbers that workers read, where it has them (`Start.numbers`)."""
        numbers = {
            name: getattr(self, name)
            for name, setting in SETTINGS.items()
            if setting.is_for_workers
        }
        return {name: number for name, number in numbers.items() if number is not None}

    @cached_property
    def id(self) -> str:
        """The key's id in the audit log, 16 hex digits: a name may get another holder. It is a
        digest of the digest, so a reader of the audit log does not hold the value that gateways
        compare. It shows only whether two keys are the same.
        """
        return hashlib.sha256(bytes.fromhex(self.sha256)).hexdigest()[:16]


SETTINGS = {
    name: setting
    for name, field in Key.model_fields.items()
    for setting in field.metadata
    if isinstance(setting, Setting)
}
"""What a key has beside its name and its digest: the table of keys, the command line and who
watches the table read the same."""
LISTS = [name for name in SETTINGS if get_origin(Key.model_fields[name].annotation) is tuple]
"""Lists of names, each with a column in the table of keys. The others are a number, a text or None,
and lie in its column `settings`."""


class Config(_Strict):
    """The whole file. Unknown keys are refused with their place."""

    upstreams: dict[Name, Upstream] = {}
    """Providers, by names that you choose. `demo` and `script` are built in."""
    models: tuple[ModelRoute, ...] = ()
    """Which model goes to which upstream. The first route that matches wins."""
    policies: Annotated[
        dict[Name, Annotated[tuple[PolicyStep, ...], Field(max_length=MAX_SERIES)]],
        Field(min_length=1),
    ] = Field(default_factory=lambda: dict(_SHIPPED))
    """Policies by name, each a series. Requests and keys that name none use `default`. A file
    without `policies` gets the ones that ship with Sluice, so that a gateway always controls
    something."""
    limits: Limits = Limits()
    """Bounds and timers."""
    durability: Durability = "default"
    """What must be stored before the client gets it (docs/run/operations.md#durability). All
    processes must have the same value."""
    keys: tuple[Key, ...] = ()
    """API keys, besides those in the database."""
    debug: Debug = Debug()
    """Which calls have debug logs (docs/run/debug-logs.md)."""
    unknown: tuple[Unmodelled, ...] = ()
    """Content that Sluice does not know and that may pass all the same, by the name under which the
    record lists it as withheld: `block foo`, `event bar`
    (docs/use/tools.md#what-is-not-modelled)."""
    betas: tuple[Beta, ...] = ()
    """Names that clients may send in `anthropic-beta`, besides those that Sluice knows
    (docs/use/tools.md#beta-headers)."""
    text_calls: Literal["decide", "pass"] = "decide"
    """What to do with text that a client may read as a tool call, if a policy decides about calls.
    `decide`: decide it like a call; `pass`: let it pass
    (docs/use/tools.md#calls-written-as-text)."""
    notices: NoticeForm = "full"
    """What a client reads in place of blocked content. `full`: the rule, the policy and the judge's
    figures; `plain`: none of these; `silent`: `[not executed]` or `[withheld]`
    (docs/run/policies.md#notices)."""
    private_urls: Literal["refuse", "pass"] = "refuse"
    """What to do with requests that hold the URL of an image or file in the operator's own network,
    which a server might fetch."""
    demo: bool | None = None
    """Whether the built-in models `demo`, `demo-openai` and `demo-anthropic` answer
    (docs/use/demo.md). Unset: only if `models` names no others."""
    exact_keys: tuple[str, ...] = ()
    """Tools that distinguish keys that differ only in case or Unicode form, as a free map of
    environment variables does. For other tools such arguments are blocked
    (docs/run/policies.md#blocks-and-tool-calls)."""
    exact_integers: tuple[str, ...] = ()
    """Tools that read integers beyond 2^53 - 1 exactly. For other tools such arguments are
    blocked."""
    shards: Annotated[int, Field(ge=1, le=64)] = 1
    """Into how many parts the streams in Redis are split. All processes must read the same."""
    pages: Pages = Pages()
    """The pages under `/debug`."""
    approvals: Approvals = Approvals()
    """Notices of tool calls that wait for people."""
    login: LoginSettings = LoginSettings()
    """How people log in to the pages, besides with keys."""
    retention: Retention = Retention()
    """How long rows of the record are kept."""
    budgets: dict[Name, Budget] = {}
    """What the keys of a team may use together, by the team's name. What a key alone may use is
    among its own settings (docs/run/budgets.md)."""
    prices: dict[ModelName, ModelPrice] = {}
    """What models cost, by their whole names, in place of what Sluice knows."""
    accept_policy_sets: Annotated[tuple[PolicySet, ...], Field(max_length=MAX_ACCEPTED_SETS)] = ()
    """Policy sets under which calls of this gateway may begin besides its own: for the time of a
    rolling change (docs/run/operations.md#policy-sets)."""

    @model_validator(mode="after")
    def _names_exist(self) -> "Config":
        parts = self.model_fields_set & {"upstreams", "models", "policies", "keys"}
        faults = (
            list(faults_between(self.model_dump(mode="json", include=parts, exclude_unset=True)))
            if parts
            else []
        )
        if faults := [*faults, *self._misled()]:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _can_return(self) -> "Config":
        if self.login.oidc is not None and not self.pages.url:
            raise ValueError("login.oidc needs pages.url: where the provider sends people back to")
        return self

    @cached_property
    def _prices(self) -> PriceTable:
        return PriceTable({name: own.price for name, own in self.prices.items()})

    def cost_of(self, model: str) -> TokenPrices | None:
        """Return what a model costs, None if nobody knows."""
        return self._prices.of(model)

    def _misled(self) -> Iterator[tuple[Place, str]]:
        """Yield the names of routes for which a request would go elsewhere."""
        for number, route in enumerate(self.models):
            for position, name in enumerate(route.names):
                place, taken = ("models", number, "names", position), self.route_of(name)
                if taken is None:
                    yield (
                        place,
                        (
                            f"{name!r} is a built-in model here: give yours another name, or set"
                            " `demo: false`"
                        ),
                    )
                elif taken is not route:
                    first = taken.match or taken.names[0]
                    yield (
                        place,
                        (
                            f"{name!r} would go to {taken.upstream!r}, as the route {first!r}"
                            " stands first: move it below"
                        ),
                    )

    @property
    def tries_again(self) -> bool:
        """May a request be sent again, by any route?"""
        return any(route.attempts > 1 for route in self.models)

    @property
    def listed_models(self) -> tuple[str, ...]:
        """The models that can be named in a list, each once: the built-in ones, then those of the
        routes in their order."""
        return tuple(
            dict.fromkeys(
                [*self.demo_models, *(name for route in self.models for name in route.listed)]
            )
        )

    @property
    def demo_models(self) -> tuple[str, ...]:
        """The names of the built-in models, none where they are switched off."""
        is_on = not self.models if self.demo is None else self.demo
        return tuple(DEMO_MODELS) if is_on else ()

    def route_of(self, model: str) -> ModelRoute | None:
        """Return the first route that matches `model`; the built-in models have none."""
        return (
            None
            if model in self.demo_models
            else next((r for r in self.models if r.takes(model)), None)
        )

    def judge_model(self, model: str) -> str:
        """Return what the upstream of a judge's model calls it: judges ask the first target."""
        route = self.route_of(model)
        return (route and route.group[0].model) or model

    def unknown_model(self, model: str) -> str:
        """Return the sentence for a client that asked for a model that is not here: what is listed,
        and which patterns there are."""
        patterns = list(
            dict.fromkeys(repr(r.match) for r in self.models if r.match and r.match not in r.listed)
        )
        cut = [
            f"{p[:_SAID_CHARS]}..." if len(p) > _SAID_CHARS else p
            for p in patterns[:_SAID_PATTERNS]
        ]
        more = (
            f" and {len(patterns) - _SAID_PATTERNS} more patterns"
            if len(patterns) > _SAID_PATTERNS
            else ""
        )
        also = f"; names that match {', '.join(cut)}{more} work too" if cut else ""
        return f"there is no model {model[:100]!r} here; GET /v1/models lists them{also}"

    def route(self, model: str) -> str | None:
        """Return the name of the upstream for `model`: the first match, `demo` for the built-in
        models, None for unknown."""
        if model in self.demo_models:
            return DEMO
        route = self.route_of(model)
        return None if route is None else route.upstream


_SAID_PATTERNS, _SAID_CHARS = 10, 60
"""How patterns are described in an error that a client reads."""
DEMO = defaults.DEMO
"""The built-in scripted upstream; it speaks the dialect of the model asked for."""
DEMO_MODELS: dict[str, DialectName | None] = {"demo": None} | {
    f"demo-{name}": name for name in CLIENTS
}
"""`demo` answers in the client's own dialect; the others always in theirs, so that crossing can be
tried with no provider key."""
SCRIPTS: dict[str, DialectName | None] = {defaults.SCRIPT: None} | {
    f"{defaults.SCRIPT}-{name}": name for name in CLIENTS
}
"""Upstreams of the scripted model: `script` answers in the client's own dialect, the others always
in theirs."""
BUILT_IN = frozenset((DEMO, *SCRIPTS))
"""Names of upstreams that no configuration may give."""
DEMO_JUDGE = defaults.DEMO_JUDGE
