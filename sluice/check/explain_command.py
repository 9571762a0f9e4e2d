"""The command `sluice explain`. What it needs is imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer


def explain(
    command: Annotated[
        str | None, typer.Argument(help="A command for the tool.", metavar="COMMAND")
    ] = None,
    tool: Annotated[str, typer.Option("--tool", help="The tool's name.")] = "Bash",
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Its arguments instead.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="The preset that decides.", metavar="NAME")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="OPTION=VALUE", help="An option of the preset; may be repeated."
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="The policies that decide. (default: default)")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Configuration file. (default: built-in rules; variable SLUICE_CONFIG)"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
) -> None:
    """Say how policies read a tool call, step by step, and what becomes of it. Nothing is started
    or asked."""
    from sluice.check import explain as explaining

    explaining.run(
        command,
        tool=tool,
        arguments=arguments,
        preset=preset,
        options=options or (),
        policy=policy,
        file=config,
        as_json=as_json,
    )
