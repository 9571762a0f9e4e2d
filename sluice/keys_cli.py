"""`sluice keys`: API keys in the database, listed with those of the configuration, which are
changed only there.

Exit codes: 0 done, 1 no such key, 2 wrong use, 3 the database is away.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from db.read.json_rows import time
from protocol.errors import InvalidRequest, NotFound, PipelineError
from settings.config import LISTS, SETTINGS, Key, Setting
from settings.config_faults import did_you_mean
from sluice.audit.audit_run import fail
from sluice.errors import StartError
from sluice.key_config import KeyConfig, key_config
from sluice.key_usage import base_urls, usage
from sluice.settings import database_url
from sluice.tables import TableColumn, minute, note, show
from sluice.times import read_expiry

if TYPE_CHECKING:
    from db.keys import KeyStore, StoredKey

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help=(
            "The gateways' configuration file. (default: that of the running `sluice up`, else"
            " SLUICE_CONFIG)"
        ),
    ),
]

_SINCE = {"in use": "expires_at", "expired": "expires_at", "revoked": "revoked_at"}
"""The time that says most of a key in this state."""
_COLUMNS = (
    TableColumn(heading="name", value="name", least=8),
    TableColumn(heading="id", value="id"),
    TableColumn(heading="source", value="source"),
    *(
        TableColumn(
            heading=name.replace("_", " "),
            value=name,
            least=8 if name in ("roles", "policies") else 0,
            is_extra=name not in ("roles", "policies"),
        )
        for name in SETTINGS
    ),
    TableColumn(heading="created", value=lambda item: minute(item["created_at"]), is_extra=True),
    TableColumn(
        heading="state",
        value=lambda item: _shown_state(item["state"], minute(item[_SINCE[item["state"]]])),
    ),
)
_VALUES = (
    "name",
    "id",
    "source",
    *LISTS,
    "created_at",
    "revoked_at",
    *(name for name in SETTINGS if name not in LISTS),
    "expires_at",
    "state",
)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `settings` an option for each setting of a key, behind its
    first."""
    first, *others = (
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    )
    options = [_option(name, setting) for name, setting in SETTINGS.items()]
    command.__signature__ = inspect.Signature([first, *options, *others])  # type: ignore[attr-defined]
    return command


def _option(name: str, setting: Setting) -> inspect.Parameter:
    kind: Any = list[str] if name in LISTS else int if setting.is_number else str
    default = Key.model_fields[name].default
    default = ", ".join(default or ["none"]) if name in LISTS else default or "not set"
    typer_option = typer.Option(f"--{setting.option}", help=f"{setting.help} (default: {default})")
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, typer_option],
    )


@app.command("create")
@_with_settings
def create(
    name: Annotated[str, typer.Option("--name", help="Name of the key, as the record shows it.")],
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Also where a revoked key had this name; the record tells them apart by id.",
        ),
    ] = False,
    expires: Annotated[
        str,
        typer.Option(
            "--expires",
            help="When gateways begin to refuse it: 30d, 12h, 2027-01-31. (default: never)",
        ),
    ] = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Make a key. Its text is shown once and kept nowhere; it works at once."""
    key_settings = {
        name: Key.model_fields[name].default if settings[name] in (None, []) else settings[name]
        for name in SETTINGS
    }

    async def make(store: "KeyStore", known: KeyConfig) -> tuple[str, datetime | None]:
        known.check_name(name)
        known.check_policies(key_settings["policies"])
        text = await store.create(
            name,
            reuse=reuse,
            expires=read_expiry(expires, "expires") if expires else None,
            **key_settings,
        )
        return text, (
            next((row.expires_at for row in await store.load() if row.name == name), None)
            if expires
            else None
        )

    (text, expires_at), known = _run(make, config, as_json)
    if as_json:
        made = {"name": name, "key": text, **key_settings, "expires_at": time(expires_at)}
        typer.echo(json.dumps(made | {"base_urls": base_urls(known.url)}))
        return
    typer.echo("The key, shown this once:", err=True)
    typer.echo(text)
    # who keeps standard output in a file or a variable must not find the key in a log as well
    shown = text if sys.stdout.isatty() else "$SLUICE_KEY"
    typer.echo(usage(known.url, shown, key_settings["roles"], known.config), err=True)
    if expires_at is not None:
        typer.echo(
            f"Expires:   {expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}; calls that began before"
            " end as they would",
            err=True,
        )
    if known.config is None:
        note(f"Not checked: {known.place}")


@app.command("set")
@_with_settings
def change(
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", help="A setting that gets its default back, as in tokens-day."),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Change settings of a key in the table; gateways take notice within 5 seconds."""
    changed = {name: value for name, value in settings.items() if value not in (None, [])}
    options = {setting.option: name for name, setting in SETTINGS.items()}

    async def store(store: "KeyStore", known: KeyConfig) -> Key:
        if unknown := [option for option in unset or () if option not in options]:
            raise InvalidRequest(
                f"a key has no setting {unknown[0]!r}{did_you_mean(unknown[0], list(options))}",
                param="unset",
            )
        gone = {
            options[option]: Key.model_fields[options[option]].default for option in unset or ()
        }
        if not (wanted := gone | changed):
            raise InvalidRequest("name a setting to change: `sluice keys set --help` lists them")
        known.check_policies(wanted.get("policies", ()))
        return await store.change(name, wanted)

    key, known = _run(store, config, as_json)
    if as_json:
        typer.echo(json.dumps(_item(key, "table", "in use")))
        return
    typer.echo(f"changed {name}")
    if known.named(name):
        note(f"The key of this name in {known.place} wins over it")


@app.command("list")
def list_keys(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List keys: those of the configuration (source: file) and those in the table, revoked ones
    too."""
    stored, known = _run(lambda store, _: store.list_keys(), config, as_json)
    now_s = datetime.now(UTC).timestamp()
    items = [
        _item(key, "file", "expired" if key.has_expired(now_s) else "in use") for key in known.keys
    ]
    items += [
        _item(row.key, "table", _state(row), row.created_at, row.revoked_at) for row in stored
    ]
    if as_json:
        typer.echo(json.dumps({"items": items, "next_cursor": None}))
        return
    shown = [item | {name: ", ".join(item[name]) for name in LISTS} for item in items]
    show(
        shown,
        _COLUMNS,
        _VALUES,
        empty="there are no keys: make one with `sluice keys create --name NAME`",
    )
    if known.config is None:
        note(f"Only the table: {known.place}")


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key; gateways take notice within 5 seconds."""

    async def end(store: "KeyStore", known: KeyConfig) -> bool:
        try:
            await store.revoke(name)
        except NotFound:
            known.check_revoked(name)
            raise
        return known.named(name)

    is_left, known = _run(end, config, as_json)
    typer.echo(json.dumps({"revoked": name}) if as_json else f"revoked {name}")
    if is_left:
        typer.echo(
            f"That was the key of this name in the table. The one in {known.place} goes on"
            " working.",
            err=True,
        )


def _shown_state(state: str, at: str) -> str:
    return f"until {at}" if state == "in use" and at else f"{state} {at}".strip()


def _state(stored: "StoredKey") -> str:
    return (
        "revoked" if stored.revoked_at is not None else "in use" if stored.is_in_use else "expired"
    )


def _item(
    key: Key,
    source: str,
    state: str,
    created_at: datetime | None = None,
    revoked_at: datetime | None = None,
) -> dict[str, Any]:
    settings = key.model_dump(mode="json", include=set(SETTINGS))
    times = {
        "created_at": time(created_at),
        "revoked_at": time(revoked_at),
        "expires_at": time(key.expires_at),
    }
    return {
        "name": key.name,
        "id": key.id,
        "source": source,
        **settings,
        "sha256": key.sha256,
        **times,
        "state": state,
    }


def _run(
    use: "Callable[[KeyStore, KeyConfig], Awaitable[T]]", config: Path | None, as_json: bool
) -> tuple[T, KeyConfig]:
    from db.keys import KeyStore

    async def with_store(known: KeyConfig) -> T:
        store = KeyStore.open(database_url())
        try:
            return await use(store, known)
        finally:
            await store.close()

    try:
        known = key_config(config)
        return asyncio.run(with_store(known)), known
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None
