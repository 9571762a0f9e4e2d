"""A provider as the configuration names it: which API it speaks (its dialect), and by which door
requests reach it.

Pure, like the rest of the configuration: secrets are named by variable or file, never held. What a
door does is `providers.doors`' work.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from protocol.dialects.base import JudgeReply, Way
from protocol.dialects.table import DIALECTS
from protocol.request import DialectName
from protocol.requests.addresses import check_base_url
from protocol.target import Guided
from settings.config_faults import dialects_that
from settings.routes import Trust

DoorName = Literal["plain", "azure", "vertex", "bedrock"]
_SHOWN_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
"""Others may be a key that somebody put in the wrong place, and are not repeated."""
RUNTIME = "bedrock"
"""The service of Bedrock that speaks its own API, as signatures name it."""
_ENTRA = ("tenant", "client_id", "client_secret_env", "client_secret_file", "scope")
_STATIC = ("access_key_env", "secret_key_env", "session_token_env")
_SETTINGS: Mapping[DoorName, tuple[str, ...]] = {
    "plain": (),
    "azure": ("deployment", "api_version", *_ENTRA),
    "vertex": ("project", "location", "credentials_file"),
    "bedrock": ("region", "service", "credentials_file", *_STATIC),
}
"""The settings that only some doors have."""
_WRITE: Mapping[str, str] = {
    "project": "the id of the project that pays",
    "location": "where models run, as in europe-west1 or global",
    "credentials_file": "the file with the key of a service account",
    "region": "where models run, as in eu-central-1",
    "api_version": 'the version, as in "2024-10-21"',
    "tenant": "the id of the directory",
    "client_id": "the id of the application",
    "client_secret_env": "the variable with the application's secret",
    "access_key_env": "the variable with the key's id",
    "secret_key_env": "the variable with the key's secret",
}
"""What to put where a setting is missing."""
_KEYS_IN_QUERY = frozenset(
    (
        "key",
        "api_key",
        "api-key",
        "apikey",
        "access_token",
        "token",
        "code",
        "sig",
        "subscription-key",
    )
)


def _check_dialect(name: str) -> DialectName:
    if name not in DIALECTS:
        raise PydanticCustomError(
            "literal_error",
            "Input should be {expected}",
            {"expected": " or ".join(map(repr, DIALECTS))},
        )
    return name


def _check_base_url(url: str) -> str:
    check_base_url(url)
    if wrong := next(
        (
            name
            for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)
            if name.lower() in _KEYS_IN_QUERY
        ),
        "",
    ):
        raise ValueError(
            f"has a key in its query (`{wrong}`), which logs on the way show: take it out, and name"
            " it with api_key_env"
        )
    return url


KnownDialect = Annotated[DialectName, AfterValidator(_check_dialect)]
Part = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
"""One part of an address."""
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")]


class Upstream(BaseModel):
    """A provider. Only gateways and judge workers look where its key is.
    [providers.md](providers.md) says how to point at each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dialect: KnownDialect
    """Which API it speaks."""
    door: DoorName = "plain"
    """How requests reach it: with a key at its own address, or the way Azure, Google's Vertex AI or
    Amazon Bedrock require."""
    base_url: Annotated[str, AfterValidator(_check_base_url)] = ""
    """Its address: ending in `/v1` for `openai` and `responses`, without it for `anthropic`. A
    query in it is sent with each request. For `azure`, the address of the resource. `vertex` and
    `bedrock` know their address; set it only to use another host."""
    api_key_env: str | None = None
    """The environment variable with its key. Without it and without `api_key_file`, requests go
    without a key."""
    api_key_file: str | None = None
    """The file with its key. It takes precedence over `api_key_env`."""
    key_header: HeaderName | None = None
    """The header for its key, instead of the dialect's or door's own. `authorization` puts `Bearer`
    before the key."""
    deployment: Part | None = None
    """Azure: the deployment, for older addresses that contain it (`/openai/deployments/NAME`).
    Unset: the `v1` API, where the model that a client names is the deployment."""
    api_version: Part | None = None
    """Azure: the `api-version` of each request. `deployment` needs one."""
    tenant: Part | None = None
    """Azure: the directory that issues tokens to `client_id`, instead of a key."""
    client_id: Part | None = None
    """Azure: the application that requests tokens."""
    client_secret_env: str | None = None
    """The environment variable with its secret."""
    client_secret_file: str | None = None
    """The file with its secret. It takes precedence over `client_secret_env`."""
    scope: (
        Literal["https://ai.azure.com/.default", "https://cognitiveservices.azure.com/.default"]
        | None
    ) = None
    """Azure: the scope of the token. Unset: the first one, or the second with `deployment`."""
    project: Part | None = None
    """Vertex: the project to bill."""
    location: Part | None = None
    """Vertex: where models run, such as `europe-west1` or `global`."""
    credentials_file: str | None = None
    """Vertex: the key of a service account, as JSON. Bedrock: a file like `~/.aws/credentials`,
    whose section `default` holds the keys."""
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]{1,20}){1,3}-[0-9]{1,2}$")] | None = None
    """Bedrock: where models run, such as `eu-central-1`."""
    service: Literal["bedrock", "bedrock-mantle"] | None = None
    """Bedrock: `bedrock` is its own API (dialect `converse`, or `anthropic` for Claude);
    `bedrock-mantle` speaks the dialects of other providers. Unset: `bedrock`."""
    access_key_env: str | None = None
    """Bedrock: the environment variable with the id of the access key that signs requests, instead
    of an API key."""
    secret_key_env: str | None = None
    """Bedrock: the environment variable with its secret."""
    session_token_env: str | None = None
    """Bedrock: the environment variable with the session token of a temporary key."""
    proxy: str | None = None
    """The HTTP proxy that its requests go through, `http://HOST:PORT`. Unset: that of the
    environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, with `NO_PROXY`), which is not used for
    this machine's own addresses. Empty: none."""
    proxy_env: str | None = None
    """The environment variable with the proxy, if it has a login: `http://USER:WORD@HOST:PORT`."""
    proxy_file: str | None = None
    """The file with the proxy. It takes precedence over `proxy_env`."""
    ca_file: str | None = None
    """The file with the certificates of the authorities to trust, instead of the machine's. It is
    read again when it changes."""
    client_cert_file: str | None = None
    """The file with the certificate that Sluice shows to this upstream, and those in between."""
    client_key_file: str | None = None
    """The file with its key. Unset: the key is in `client_cert_file`."""
    headers: dict[str, str] = {}
    """Headers to send with each request. An `anthropic-beta` is joined with the request's own
    names. Values of 8 characters or more are masked in error answers, like the key."""
    native_tools: bool = True
    """False: its models have no native tool calls. Sluice puts tools into the prompt and reads
    calls from the text (docs/use/tools.md)."""
    calls: Annotated[int, Field(ge=1)] | None = None
    """Requests that one gateway sends it at once. A key may have as many as are still free; past
    that 429. Set it to what the provider accepts, so that one key does not use it all. Unset: no
    bound."""
    breaker: bool = True
    """Whether it is left alone for 5 to 60 s when half of its requests fail, or five in a row do
    not reach it ([operations](operations.md#an-upstream-that-fails)). Clients get 503 meanwhile."""
    limit_headers: bool = False
    """Whether clients get the headers that say how much of its rate limits is left
    (`anthropic-ratelimit-*`, `x-ratelimit-*`). These limits are the operator's, for all keys
    together. Clients always get `retry-after`, `retry-after-ms` and `x-should-retry` of its
    errors."""
    trust: Trust = "trusted"
    """Whether its answers are as trustworthy as others'. A route that may go on from a `trusted`
    upstream to an `untrusted` one is refused, unless it says `allow_less_trust`."""
    compress: bool = False
    """Whether gateways ask it for compressed answers (gzip): fewer bytes on a line that is metered
    or slow, for more CPU. An answer that comes compressed unasked is opened all the same."""
    sealed: Literal["allow", "withhold"] = "allow"
    """What to do with signatures, encrypted reasoning and other content that only the provider can
    read, so that no policy can. `allow`: clients that ask for it get it (Responses with `include:
    ["reasoning.encrypted_content"]`, Messages with `thinking`), and the call's record counts it in
    an event `sealed`. `withhold`: no client gets it, and the rest of a block goes out without it.
    An agent then cannot send reasoning back to this provider."""
    guided: Guided = ""
    """How this backend takes a JSON Schema for its answer, for forced calls with `native_tools:
    false`. Empty: it takes none."""
    judge_reply: JudgeReply | None = None
    """The form in which its models are asked for a judgement. `json_object` is for `openai` only.
    Unset: judge workers find out which form the upstream accepts
    (docs/run/policies.md#tool_judge)."""

    @model_validator(mode="after")
    def _guides_what_it_can(self) -> "Upstream":
        dialect = DIALECTS[self.dialect]
        if self.judge_reply is not None and self.judge_reply not in dialect.judge_replies:
            *some, last = dialect.judge_replies
            others = dialects_that(lambda d: self.judge_reply in d.judge_replies)
            raise ValueError(
                f"`judge_reply: {self.judge_reply}` is for {others}; {dialect.name} has"
                f" {', '.join(some)} and {last}"
            )
        if self.guided and (self.native_tools or not dialect.takes_guided):
            raise ValueError(
                f"`guided` is for upstreams of {dialects_that(lambda d: d.takes_guided)} with"
                " `native_tools: false`"
            )
        return self

    @model_validator(mode="after")
    def _leaves_one_way(self) -> "Upstream":
        if "@" in (self.proxy or ""):
            raise ValueError(
                "`proxy` has a login: put the whole address where `proxy_env` or `proxy_file` names"
            )
        if self.client_key_file and not self.client_cert_file:
            raise ValueError("`client_key_file` is the key of `client_cert_file`: name that too")
        if self._has("proxy") and self._has("proxy_env", "proxy_file"):
            raise ValueError("`proxy` and a secret one are two proxies: keep one")
        return self

    @model_validator(mode="after")
    def _has_what_its_door_needs(self) -> "Upstream":
        if faults := [*self._foreign(), *self._missing()]:
            raise ValueError("; ".join(faults))
        return self

    def _has(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def _foreign(self) -> Iterator[str]:
        """Yield what is set and belongs to another door, or contradicts what else is set."""
        known = _SETTINGS[self.door]
        for name in self._has(
            *dict.fromkeys(name for names in _SETTINGS.values() for name in names)
        ):
            if name not in known:
                doors = " or ".join(
                    f"`door: {door}`" for door, names in _SETTINGS.items() if name in names
                )
                yield f"`{name}` is for {doors}: take it out, or name that door"
        if self.door != "plain" and self.at not in DIALECTS[self.dialect].doors:
            where = f"`door: {self.door}`" + (
                f" with `service: {self.at}`" if self.door == "bedrock" else ""
            )
            others = dialects_that(lambda d: self.at in d.doors)
            yield (
                f"the dialect {self.dialect} is not spoken behind {where}: that is for {others}"
                " (docs/run/providers.md)"
            )
        if self.door == "vertex" and self._has("api_key_env", "api_key_file", "key_header"):
            yield (
                "`door: vertex` takes a service account in `credentials_file`: take api_key_env,"
                " api_key_file and key_header out"
            )
        ways = [*self._has("api_key_file", "api_key_env")[:1], *self._has(*_ENTRA, *_STATIC)[:1]]
        if self.door == "bedrock":
            ways += self._has("credentials_file")
        if len(ways) > 1:
            yield f"`{ways[0]}` and `{ways[1]}` are two ways to pay: keep one"
        if self.deployment is not None and self.door == "azure" and not self.way.deploys:
            others = dialects_that(lambda d: d.doors.get("azure", Way()).deploys)
            yield (
                f"`deployment` is for {others}: take it out, the model that a client names is the"
                " deployment"
            )

    def _missing(self) -> Iterator[str]:
        """Yield what this door cannot do without."""
        if self.door in ("plain", "azure") and not self.base_url:
            as_in = (
                "https://NAME.openai.azure.com"
                if self.door == "azure"
                else "https://HOST/v1, or name the door that knows it"
            )
            yield f"`base_url` is missing: write where it is, as in {as_in}"
        needed: list[str] = {
            "vertex": ["project", "location", "credentials_file"],
            "bedrock": ["region"],
        }.get(self.door, [])
        if self._has(*_ENTRA):
            needed += [
                "tenant",
                "client_id",
                *([] if self.client_secret_file else ["client_secret_env"]),
            ]
        if self._has(*_STATIC):
            needed += ["access_key_env", "secret_key_env"]
        if self.deployment is not None:
            needed.append("api_version")
        for name in needed:
            if getattr(self, name) is None:
                yield f"`{name}` is missing: write {_WRITE[name]}"
        if self.door == "bedrock" and not self._has(
            "api_key_env", "api_key_file", "credentials_file", *_STATIC
        ):
            yield (
                "nothing says how to pay: name an API key with `api_key_env`, or a signing key with"
                " `access_key_env` and `secret_key_env`"
            )

    @property
    def at(self) -> str:
        """What is behind its door, as `Dialect.doors` names it: the door, or the service of
        Bedrock."""
        return (self.service or RUNTIME) if self.door == "bedrock" else self.door

    @property
    def way(self) -> Way:
        """How the cloud behind its door has its dialect."""
        return DIALECTS[self.dialect].doors.get(self.at, Way())

    @property
    def counts(self) -> bool:
        """Can it be asked to count a request's tokens? Bedrock's own API cannot, whatever its
        dialect has."""
        return self.at != RUNTIME and DIALECTS[self.dialect].token_counts is not None

    @property
    def variables(self) -> dict[str, str]:
        """The settings that name environment variables, with the names, where a file does not go
        before."""
        names = ["access_key_env", "secret_key_env", "session_token_env", "proxy_env"]
        names += [] if self.api_key_file else ["api_key_env"]
        names += [] if self.client_secret_file else ["client_secret_env"]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def files(self) -> dict[str, str]:
        """The settings that name files with secrets, with the names."""
        return {
            name: value
            for name in ("api_key_file", "client_secret_file", "credentials_file")
            if (value := getattr(self, name))
        }

    @property
    def key_variable(self) -> str:
        """How to speak of the variable with its key, without repeating what may be a key."""
        return named_variable("api_key_env", self.api_key_env or "")

    @property
    def key_place(self) -> str:
        """Where its key, or what gets it a token, is configured; empty where nothing is."""
        places = [f"the file {name}" for name in self.files.values()]
        setting = next(
            (
                name
                for name in ("api_key_env", "client_secret_env", "secret_key_env")
                if name in self.variables
            ),
            "",
        )
        return (
            places[0]
            if places
            else named_variable(setting, self.variables[setting])
            if setting
            else ""
        )


def named_variable(setting: str, name: str) -> str:
    """How to speak of a variable that a setting names, without repeating what may be a key."""
    return (
        f"the variable {name}"
        if _SHOWN_VARIABLE.fullmatch(name)
        else f"the variable that {setting} names"
    )
