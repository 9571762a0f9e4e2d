"""The commands `sluice eval ...`. What a command needs is imported when it runs.

Exit codes: 0; 1 a bound or the baseline is not met; 2 the data, the configuration or an argument is
wrong; 3 a judge or Sluice did not answer, so that the result is incomplete.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help=(
        "Measure what policies block: on labelled tool calls, with intervals, for people and"
        " for CI."
    ),
    no_args_is_help=True,
)


@app.callback()
def evaluate() -> None:
    """Measure what policies block: on labelled tool calls, with intervals, for people and for
    CI."""


@app.command("run")
def run_cases(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Files of labelled calls: a JSON list, or an object a line.", metavar="DATA..."
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="A policy of the configuration; several side by side. (default: default)",
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", help="A preset that ships, or NAME:KEY=VALUE,..."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Configuration file. (default: built-in rules; variable SLUICE_CONFIG)"
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", help="In this process, or through a running Sluice.", metavar="pure|live"
        ),
    ] = "pure",
    url: Annotated[str, typer.Option("--url", help="live: the gateway's address.")] = "",
    key: Annotated[
        str,
        typer.Option(
            "--key", help="live: an API key with the roles client and auditor.", envvar="SLUICE_KEY"
        ),
    ] = "",
    scripts: Annotated[
        Path | None,
        typer.Option(
            "--scripts",
            help="live: the folder of the gateway's scripts.",
            envvar="SLUICE_SCRIPTS_DIR",
        ),
    ] = None,
    judge: Annotated[
        str,
        typer.Option(
            "--judge",
            help="Ask judges, take --judgements, or ask nobody.",
            metavar="live|recorded|off",
        ),
    ] = "live",
    judgements: Annotated[
        Path | None,
        typer.Option("--judgements", help="Recorded judgements, as --record writes them."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the judgements of this run to a file.")
    ] = None,
    disguise: Annotated[
        str,
        typer.Option(
            "--disguise", help="Also in other forms: all, or names with commas.", metavar="NAMES"
        ),
    ] = "",
    split: Annotated[
        str, typer.Option("--split", help="Only cases whose key `split` says so.")
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="So many cases, drawn by the seed. (default: all)"),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", min=1, max=100, help="Rounds, to see whether a judge says the same twice."
        ),
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn at random.")] = 0,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", min=0, max=64, help="Processes; 0: one a core where there are many cases."
        ),
    ] = 0,
    dialect: Annotated[
        str, typer.Option("--dialect", help="Of the client. (default: that of chat/completions)")
    ] = "",
    upstream: Annotated[
        str, typer.Option("--upstream", help="Dialect of the upstream. (default: the client's)")
    ] = "",
    wire: Annotated[
        str,
        typer.Option(
            "--wire", help="How the answer comes.", metavar="whole|stream|bytes|escapes|text"
        ),
    ] = "whole",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            help="Exit 1 where this holds, as 'false_block > 2%' or 'block[shell.*] < 0.95'.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="A result of before: exit 1 where it was better."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for result and report.")
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help="On standard output.", metavar="table|json|md|junit|inspect"),
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Play labelled calls through policies; print how many are blocked, rightly and falsely."""
    from sluice.eval import command

    asked = command.EvalArguments(
        data=tuple(data),
        policies=tuple(policy or ()),
        presets=tuple(preset or ()),
        config=config,
        judge=judge,
        judgements=judgements,
        record=record,
        disguise=disguise,
        split=split,
        limit=limit or 0,
        repeat=repeat,
        seed=seed,
        jobs=jobs,
        dialect=dialect,
        upstream=upstream,
        wire=wire,
        fail_on=tuple(fail_on or ()),
        baseline=baseline,
        out=out,
        form="json" if as_json else form,
        mode=mode,
        url=url,
        key=key,
        scripts=scripts,
    )
    raise typer.Exit(command.evaluate(asked))


@app.command("show")
def show_result(
    directory: Annotated[
        Path, typer.Argument(help="A folder of --out, or a result in JSON.", metavar="DIR")
    ],
    form: Annotated[
        str, typer.Option("--format", help="On standard output.", metavar="table|json|md|junit")
    ] = "table",
) -> None:
    """Show a result of before."""
    from sluice.eval import command

    command.show(directory, form)


@app.command("disguises")
def list_disguises() -> None:
    """List the forms in which --disguise puts calls."""
    from sluice.eval import disguises

    for disguise in disguises.table().values():
        typer.echo(
            f"{disguise.name:<20}"
            f" {disguise.about}{'' if disguise.both else ' (harmful calls only)'}"
        )
