"""`sluice keys`: API keys kept in the database. Exit codes: 0 done, 1 no such key, 2 wrong use, 3 the database is away."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from db.items import time
from db.keys import KeyStore
from protocol.errors import PipelineError
from sluice.audit_run import fail
from sluice.errors import StartError
from sluice.settings import database_url
from sluice.tables import Column, minute, show

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]

_COLUMNS = (
    Column(heading="name", value="name", least=8), Column(heading="id", value="id"), Column(heading="roles", value="roles", least=8),
    Column(heading="policies", value="policies", least=8), Column(heading="server tools", value="server_tools", is_extra=True),
    Column(heading="created", value=lambda item: minute(item["created_at"]), is_extra=True),
    Column(heading="revoked", value=lambda item: minute(item["revoked_at"])),
)  # fmt: skip


@app.command("create")
def create(
    name: Annotated[str, typer.Option("--name", help="Name of the key, as the record shows it.")],
    role: Annotated[list[str] | None, typer.Option("--role", help="client, auditor or monitor; may be repeated. (default: client)")] = None,
    policy: Annotated[list[str] | None, typer.Option("--policy", help="Policy it may use; first is default. (default: default)")] = None,
    server_tool: Annotated[
        list[str] | None, typer.Option("--server-tool", help="Family of tools run by the provider that it may use. (default: none)")
    ] = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Also where a revoked key had this name; the record tells them apart by id.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a key. Its text is shown once and kept nowhere."""
    roles, policies, families = tuple(role or ["client"]), tuple(policy or ["default"]), tuple(server_tool or [])
    text = _run(lambda store: store.create(name, roles=roles, policies=policies, server_tools=families, reuse=reuse), as_json)
    if as_json:
        typer.echo(json.dumps({"name": name, "key": text, "roles": roles, "policies": policies, "server_tools": families}))
    else:
        typer.echo("The key, shown this once:", err=True)
        typer.echo(text)


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List keys, revoked ones too."""
    stored = _run(lambda store: store.list_keys(), as_json)
    items: list[dict[str, Any]] = [
        {
            "name": s.key.name, "id": s.key.id, "roles": list(s.key.roles), "policies": list(s.key.policies),
            "server_tools": list(s.key.server_tools), "sha256": s.key.sha256,
            "created_at": time(s.created_at), "revoked_at": time(s.revoked_at),
        }
        for s in stored
    ]  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"items": items, "next_cursor": None}))
        return
    names = ("name", "id", "roles", "policies", "server_tools", "created_at", "revoked_at")
    lists = ("roles", "policies", "server_tools")
    shown = [item | {name: ", ".join(item[name]) for name in lists} for item in items]
    show(shown, _COLUMNS, names, empty="there are no keys: make one with `sluice keys create --name NAME`")


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Name of the key.")], as_json: AsJson = False) -> None:
    """Revoke a key; gateways take notice within 5 seconds."""
    _run(lambda store: store.revoke(name), as_json)
    typer.echo(json.dumps({"revoked": name}) if as_json else f"revoked {name}")


def _run(use: Callable[[KeyStore], Awaitable[T]], as_json: bool) -> T:
    async def with_store() -> T:
        store = KeyStore.open(database_url())
        try:
            return await use(store)
        finally:
            await store.close()

    try:
        return asyncio.run(with_store())
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None
