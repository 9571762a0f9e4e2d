"""Settings from the environment (`SLUICE_...`), checked, as values to pass down.
`sluice.config_file` reads the configuration file.

Every setting may also come from a file: `SLUICE_DATABASE_URL_FILE=/run/secrets/database_url`. The
variable itself wins.
"""

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from protocol.requests.addresses import bracketed
from settings.config import Config
from settings.runtime import Runtime
from sluice.config_file import load_config as load_config
from sluice.config_file import parse_config as parse_config
from sluice.errors import SettingsError
from sluice.logs import Level
from sluice.policy_set_name import policy_set

PREFIX = "SLUICE_"
URLS_FILE = "urls.json"
"""In the data directory: where the servers of a running `sluice up` listen."""
LOCK_FILE = "lock"
"""In the data directory: locked by the `sluice up` that runs."""
HANDED_FILE = "run/config.yaml"
"""In the data directory: the configuration that its processes read, what was given and the key of
its own."""
TARGETS = "targets"
"""Where each process of `sluice up` writes the address of its metrics, as NAME.json."""
ADDRESS_FILE = "run/address"
"""In the data directory: where its gateway is, as a client on this machine sees it."""
COMPOSE = {
    "REDIS_GATEWAY_PASSWORD": (
        (
            "Passwords of letters and digits only, because they become part of URLs. One for each"
            " Redis user,"
        ),
        "",
    ),
    "REDIS_POLICY_PASSWORD": ("", ""),
    "REDIS_JUDGE_PASSWORD": ("", ""),
    "REDIS_AUDIT_PASSWORD": ("", ""),
    "REDIS_PAGES_PASSWORD": ("", ""),
    "REDIS_OPS_PASSWORD": ("", ""),
    "POSTGRES_PASSWORD": (
        "for the owner of the tables (migrate, keys), and for each database login.",
        "",
    ),
    "POSTGRES_GATEWAY_PASSWORD": ("", ""),
    "POSTGRES_POLICY_PASSWORD": ("", ""),
    "POSTGRES_AUDIT_PASSWORD": ("", ""),
    "POSTGRES_PAGES_PASSWORD": ("", ""),
    "REDIS_MAXMEMORY": ("Redis' memory. New calls are refused before it is full.", "1gb"),
    "REDIS_APPENDFSYNC": (
        (
            "`always`: a host that fails loses nothing, but each chunk waits for the disk twice."
            " `everysec`: up to a second is lost."
        ),
        "everysec",
    ),
    "CONFIG_FILE": (
        "The configuration file on the host; begins with ./ or /.",
        "./deploy/sluice.yaml",
    ),
    "OPENAI_API_KEY": ("Provider keys, as `api_key_env` in the configuration file names them.", ""),
    "ANTHROPIC_API_KEY": ("", ""),
    "HTTPS_PROXY": (
        (
            "The HTTP proxy for requests to providers, and hosts that are reached without it"
            " (docs/run/providers.md)."
        ),
        "",
    ),
    "HTTP_PROXY": ("", ""),
    "NO_PROXY": ("", ""),
}
"""What only compose.yaml reads: name to explanation and default."""


class _FileSource(PydanticBaseSettingsSource):
    """Reads SLUICE_X_FILE for each setting x."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        name = f"{PREFIX}{field_name.upper()}_FILE"
        path = os.environ.get(name)
        if not path:
            return None, field_name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{name} names {path}, which cannot be read") from None

    def __call__(self) -> dict[str, Any]:
        values = {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in values.items() if value is not None}


class Settings(BaseSettings):
    """The environment of a process. Each field `x` is the variable `SLUICE_X`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True
    )

    config: Path | None = Field(
        default=None,
        description="The configuration file (YAML): upstreams, models, policies, limits, keys.",
    )
    redis_url: str = Field(
        default="",
        description="Redis 7.0+ or Valkey 8+ with appendonly yes and maxmemory-policy noeviction.",
        examples=["redis://:password@redis:6379/0"],
    )
    database_url: str = Field(
        default="",
        description="PostgreSQL 15+.",
        examples=["postgresql://sluice:password@postgres:5432/sluice"],
    )
    gateway_database_password: str = Field(
        default="",
        description=(
            "`sluice migrate` creates the database login sluice_gateway with this password. It may"
            " read."
        ),
    )
    policy_database_password: str = Field(
        default="", description="Password of the login sluice_policy, for policy workers."
    )
    audit_database_password: str = Field(
        default="",
        description="Password of the login sluice_audit, for writers. It may read and insert.",
    )
    pages_database_password: str = Field(
        default="",
        description=(
            "Password of the login sluice_pages, for pages and the audit API. It may read, and"
            " write logins, reviews and reads."
        ),
    )
    data_dir: Path = Field(
        default=Path(".sluice"),
        description="Where `sluice up` keeps its embedded servers, logs and key.",
    )
    host: Annotated[str, AfterValidator(lambda host: host.strip("[]"))] = Field(
        default="127.0.0.1",
        description="Address the gateway listens on; an IPv6 address as in ::1 or [::1].",
    )
    port: int = Field(default=8080, ge=0, le=65535, description="Port the gateway listens on.")
    pages_url: str = Field(
        default="http://127.0.0.1:8081",
        pattern=r"^(unix:/.+|http://[^/?#@]+:[0-9]{1,5})$",
        description=(
            "Address where `sluice pages` listens and gateways reach it: http://HOST:PORT or"
            " unix:PATH."
        ),
    )
    log: Level = Field(default="info", description="Log level: debug, info, warning or error.")
    seal_key: str = Field(
        default="",
        repr=False,
        description=(
            "Ed25519 private key that audit writers sign checkpoints of the record with: PEM, or"
            " the text between its two lines."
        ),
    )
    redact_key: str = Field(
        default="",
        repr=False,
        description=(
            "Key of the placeholders that the policy `redact` makes with `mask_restore`: 32"
            " characters or more, the same for all policy workers."
        ),
    )
    alive_file: Path | None = Field(
        default=None,
        description=(
            "File that a worker writes each second while Redis takes its heartbeat, for"
            " `deploy/health`. compose.yaml sets it."
        ),
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description=(
            "Port on which this process serves its own /metrics and /health, without a key; 0: any"
            " free one. Not set: none (docs/run/metrics.md)."
        ),
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="Address that SLUICE_METRICS_PORT is opened on."
    )
    metrics_target: Path | None = Field(
        default=None,
        description=(
            "File that a process writes with the address of its metrics, as Prometheus' file_sd"
            " reads it. `sluice up` sets it."
        ),
    )
    scripts_dir: Path | None = Field(
        default=None,
        description=(
            "Folder of the scripted model's files: NAME.jsonl is the model script-NAME"
            " (docs/use/scripts.md). For gateways."
        ),
    )
    policy_path: Path | None = Field(
        default=None,
        description=(
            "Folder with the Python files of your own policies. Default: the folder of the"
            " configuration file."
        ),
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over variables, variables over SLUICE_X_FILE."""
        return init_settings, env_settings, _FileSource(settings_cls)

    @property
    def database_passwords(self) -> dict[str, str]:
        """The passwords of database logins that are to be made, by role."""
        passwords = {
            "gateway": self.gateway_database_password,
            "policy": self.policy_database_password,
            "audit": self.audit_database_password,
            "pages": self.pages_database_password,
        }
        return {role: password for role, password in passwords.items() if password}

    def runtime(
        self,
        config: Config,
        *,
        ready_fd: int | None = None,
        concurrency: int = 8,
        name: str = "",
        needs_database: bool = True,
        names_set: bool = False,
    ) -> Runtime:
        """Return what a process is started with. Raises SettingsError when a URL is missing or of
        the wrong kind.

        `names_set`: it must know the name of the policy set, and so read the files of the user's
        own policies.
        """
        redis_url, found_database_url = self.redis_url, self.database_url
        if not redis_url:
            raise SettingsError(
                "SLUICE_REDIS_URL is not set: say where Redis is, or use `sluice up`, which"
                " brings one"
            )
        if not found_database_url and needs_database:
            raise SettingsError(
                "SLUICE_DATABASE_URL is not set: say where PostgreSQL is, or use `sluice up`, which"
                " brings one"
            )
        check_urls(redis_url, found_database_url)
        if self.seal_key:
            from db.seals.checkpoints import load_private_key

            try:
                load_private_key(self.seal_key)
            except ValueError as error:
                raise SettingsError(f"SLUICE_SEAL_KEY: {error}") from None
        return Runtime(
            config=config,
            redis_url=redis_url,
            database_url=found_database_url,
            host=self.host,
            port=self.port,
            pages_url=self.pages_url,
            name=name,
            concurrency=concurrency,
            search_path=self.search_path,
            seal_key=self.seal_key,
            redact_key=self.redact_key,
            ready_fd=ready_fd,
            alive_file=str(self.alive_file or ""),
            metrics_port=self.metrics_port,
            metrics_host=self.metrics_host,
            metrics_target=str(self.metrics_target or ""),
            scripts_dir=str(self.scripts_dir.resolve()) if self.scripts_dir else "",
            policy_set=policy_set(config, self.search_path) if names_set else "",
        )

    @property
    def search_path(self) -> tuple[str, ...]:
        """Where the files of the user's own policies are."""
        folder = self.policy_path or (self.config.parent if self.config else None)
        return (str(folder.resolve()),) if folder else ()


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; arguments that are not None win. Raises SettingsError naming the
    variable at fault."""
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        from sluice.config_mistakes import plain

        name = str(error.errors(include_url=False, include_input=False)[0]["loc"][0])
        raise SettingsError(f"{PREFIX}{name.upper()}: {plain(error)}") from None


def check_urls(redis_url: str, found_database_url: str) -> None:
    """Raise SettingsError for an address of the wrong kind. The address itself, which may hold a
    password, is not repeated."""
    if redis_url and not redis_url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError("SLUICE_REDIS_URL must start with redis://, rediss:// or unix://")
    if found_database_url and not found_database_url.startswith(("postgresql://", "postgres://")):
        raise SettingsError("SLUICE_DATABASE_URL must start with postgresql://")


def place(url: str) -> str:
    """Return where `url` points, without user and password."""
    parts = urlsplit(url)
    # PostgreSQL's sockets have the folder that holds them in the question
    return parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", [parts.path])[0]


def gateway_url(host: str, port: int) -> str:
    """Return the address of a gateway that listens on `host`, for a client on this machine."""
    return f"http://{bracketed({'0.0.0.0': '127.0.0.1', '::': '::1'}.get(host, host))}:{port}"


def database_url() -> str:
    """Return where the record is: SLUICE_DATABASE_URL, else the embedded PostgreSQL of the `sluice
    up` that runs here."""
    settings = load_settings()
    check_urls("", settings.database_url)
    return settings.database_url or with_embedded(settings).database_url


def redis_time() -> float:
    """Return what the clock of this Sluice's Redis says, in seconds since 1970. Raises
    SettingsError, AuditUnavailable."""
    from streams.clock import read_time

    settings = load_settings()
    check_urls(settings.redis_url, "")
    return read_time(settings.redis_url or with_embedded(settings).redis_url)


def with_embedded(settings: Settings) -> Settings:
    """Fill missing addresses with those of the running `sluice up` of the data directory, and take
    its configuration, which has its own key, and its folder of policies, where none is given.
    Raises SettingsError when addresses are missing and there is none.
    """
    stored_urls = _running_settings(settings.data_dir)
    if not stored_urls:
        if settings.redis_url and settings.database_url:
            return settings
        raise SettingsError(
            "SLUICE_REDIS_URL and SLUICE_DATABASE_URL are not set, and no `sluice up` runs on"
            f" {settings.data_dir.resolve()}: set them, start `sluice up`, or say where it keeps"
            " its data with SLUICE_DATA_DIR"
        )
    urls = {
        "redis_url": settings.redis_url or stored_urls["redis_url"],
        "database_url": settings.database_url or stored_urls["database_url"],
    }
    taken: dict[str, Any] = dict(urls)
    if settings.config is None and urls.items() <= stored_urls.items():
        folder = stored_urls.get("policy_path")
        taken |= {
            "config": settings.data_dir / HANDED_FILE,
            "policy_path": settings.policy_path or (Path(folder) if folder else None),
        }
    return settings.model_copy(update=taken)


class RunningUp(NamedTuple):
    """A `sluice up` that runs: the configuration that its processes read, and its gateway's
    address, empty where it is not known."""

    config: Path
    url: str


def running_up(settings: Settings) -> RunningUp | None:
    """Return the `sluice up` that runs on the data directory, if it keeps its record in the
    database that is named, or none is."""
    stored_urls = _running_settings(settings.data_dir)
    if not stored_urls or settings.database_url not in ("", stored_urls["database_url"]):
        return None
    url = ""
    with contextlib.suppress(OSError):
        url = (settings.data_dir / ADDRESS_FILE).read_text(encoding="utf-8")
    return RunningUp(settings.data_dir / HANDED_FILE, url)


def _running_settings(data_dir: Path) -> dict[str, str]:
    """What the `sluice up` that runs on a data directory wrote down; nothing when it was killed, or
    there is none."""
    try:
        with open(data_dir / LOCK_FILE) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(OSError, ValueError):
            urls: dict[str, str] = json.loads((data_dir / URLS_FILE).read_text())
            return urls
    except OSError:
        pass
    return {}


def env_example() -> str:
    """Return the text of .env.example, made from the settings."""
    lines = [
        (
            "# Written by `sluice settings --env-example`. Each can come from a file:"
            " SLUICE_DATABASE_URL_FILE=/run/secrets/..."
        ),
        "",
    ]
    for name, field in Settings.model_fields.items():
        example = (
            field.examples[0]
            if field.examples
            else ("" if field.default is None else field.default)
        )
        lines += [f"# {field.description}", f"{PREFIX}{name.upper()}={example}", ""]
    lines += [
        (
            "# For compose.yaml, which reads only SLUICE_PORT, SLUICE_LOG and SLUICE_SEAL_KEY of"
            " the above. It needs all passwords below:"
        ),
        "# deploy/make-env generates them and the key.",
        "",
    ]
    for name, (comment, default) in COMPOSE.items():
        lines += [*([f"# {comment}"] if comment else []), f"{name}={default}", ""]
    return "\n".join(lines)
