"""Settings: the environment and the configuration file, read once by the command line and passed down as values.

Every mistake is one sentence that names its place. Secrets stay out of the messages.
"""

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from protocol.config import Config, Runtime
from sluice.errors import SettingsError

PREFIX = "SLUICE_"
SECRETS = ("redis_url", "database_url")
"""Settings that may stand in a file named by the same variable with `_FILE` behind it."""
RUN = "run"
"""Folder in the data directory that holds what a running `sluice up` says about itself."""
DATABASE_URL = "database_url"
"""File in it (mode 0600) with the address of the embedded database, for commands beside a running `sluice up`."""

LogLevel = Literal["debug", "info", "warning", "error"]


class Environment(BaseSettings):
    """The variables `SLUICE_...`, each with its default and its line in `.env.example`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True)

    config: Path | None = Field(None, description="The configuration file (YAML): upstreams, models, policies, limits, keys.")
    redis_url: str | None = Field(None, description="Redis 7 or Valkey 8 with AOF and noeviction. Also SLUICE_REDIS_URL_FILE.")
    database_url: str | None = Field(None, description="PostgreSQL 15 or later. Also SLUICE_DATABASE_URL_FILE.")
    data_dir: Path = Field(Path(".sluice"), description="Where `sluice up` keeps the embedded servers' data, its key and its logs.")
    host: str = Field("127.0.0.1", description="Address the gateway listens on.")
    port: int = Field(8080, ge=0, le=65535, description="Port the gateway listens on.")
    log: LogLevel = Field("info", description="What is logged: debug, info, warning or error.")


def read_environment() -> Environment:
    """Read the variables, secrets from their files included. Raises SettingsError."""
    secrets: dict[str, Any] = {}
    for name in SECRETS:
        variable = f"{PREFIX}{name.upper()}"
        path = os.environ.get(f"{variable}_FILE")
        if path and os.environ.get(variable):
            raise SettingsError(f"{variable} and {variable}_FILE are both set: keep one of them")
        if path:
            secrets[name] = _read(Path(path), f"{variable}_FILE").strip()
    try:
        environment = Environment(**secrets)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise SettingsError(f"{PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg']}") from None
    _check_url(environment.redis_url, "SLUICE_REDIS_URL", ("redis", "rediss", "unix"))
    _check_url(environment.database_url, "SLUICE_DATABASE_URL", ("postgresql", "postgres"))
    return environment


def read_config(path: Path | None) -> Config:
    """Read the configuration file; without one, the defaults. Raises SettingsError that names file and place."""
    if path is None:
        return Config()
    text = _read(path, "the configuration")
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}{place}: {error.problem or 'not YAML'}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: not YAML ({type(error).__name__})") from None
    if value is None:
        return Config()
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: the file must be a mapping with upstreams, models, policies, limits, keys")
    return parse_config(value, str(path))


def parse_config(value: dict[Any, Any], where: str) -> Config:
    """Turn a decoded file into a Config. Raises SettingsError."""
    try:
        return Config.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        said = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{where}: {place}: {said}" if place else f"{where}: {said}") from None


def make_runtime(environment: Environment, config: Config, **changes: Any) -> Runtime:
    """Put a process's settings together. Raises SettingsError when an address is missing."""
    if environment.redis_url is None:
        raise SettingsError("SLUICE_REDIS_URL is not set: set it, or use `sluice up`, which brings its own servers")
    if environment.database_url is None:
        raise SettingsError("SLUICE_DATABASE_URL is not set: set it, or use `sluice up`, which brings its own servers")
    folder = (str(environment.config.resolve().parent),) if environment.config else ()
    values = {
        "config": config, "redis_url": environment.redis_url, "database_url": environment.database_url, "host": environment.host,
        "port": environment.port, "search_path": folder,
    }  # fmt: skip
    return Runtime(**{**values, **{name: value for name, value in changes.items() if value is not None}})


def database_url() -> str:
    """Return the database's address for commands: the setting, else that of the `sluice up` running on the data directory.

    Raises SettingsError when there is neither.
    """
    environment = read_environment()
    if environment.database_url is not None:
        return environment.database_url
    try:
        return (environment.data_dir / RUN / DATABASE_URL).read_text().strip()
    except OSError:
        raise SettingsError(
            f"no database: set SLUICE_DATABASE_URL, or start `sluice up` with the data directory {environment.data_dir}"
        ) from None


def example() -> str:
    """Return the text of `.env.example`: every setting, commented, with its default."""
    lines = ["# Settings of Sluice. Copy to .env and change what you need; made by `sluice settings --example`."]
    for name, field in Environment.model_fields.items():
        default = "" if field.default is None else str(field.default)
        lines += ["", f"# {field.description}", f"#{PREFIX}{name.upper()}={default}"]
    return "\n".join(lines) + "\n"


class _StrictLoader(yaml.SafeLoader):
    """YAML's plain values only, and no key twice: of two, the second would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands here twice", key_node.start_mark)
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{what} {path} is not UTF-8 text") from None
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror}") from None


def _check_url(url: str | None, variable: str, schemes: tuple[str, ...]) -> None:
    try:
        found = None if url is None else urlsplit(url).scheme
    except ValueError:
        found = ""
    if url is not None and found not in schemes:
        raise SettingsError(f"{variable} must start with {schemes[0]}://")
