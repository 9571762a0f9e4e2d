"""The command `sluice`. Parses arguments, reads the settings, and hands over; imports what a
command needs only when it runs.

Exit codes: 0 done; 1 cannot start; 2 wrong use, settings or configuration; 3 Redis or Postgres is
away; 4 they are there but not fit (no AOF, eviction, not migrated); 5 the port or the data
directory is taken.
"""

import contextlib
import errno
import gc
import json
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from protocol.errors import OldPrimary, OtherDatabase, PipelineError, PolicyFailed
from settings.defaults import VERSION
from sluice.check.explain_command import explain
from sluice.errors import Busy, StartError, Unavailable
from sluice.processes import heed_signals
from sluice.sentences import wrapped

if TYPE_CHECKING:
    from settings.config import Config
    from settings.runtime import Runtime

DATABASE_VARIABLES = ("PGOPTIONS", "PGTZ", "PGDATESTYLE", "PGGEQO")
"""Of somebody's shell, they would set on each of our connections what Sluice does not expect there;
addresses say what is meant for it."""
Run = Callable[["Runtime"], Coroutine[object, object, None]]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Configuration file. (default: built-in rules; variable SLUICE_CONFIG)"
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model", help="The model to use. (default: the first that GET /v1/models names)"
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings, too.")]
ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]


class _Group(TyperGroup):
    """Says in plain words what is wrong with an option's value, not in those of the library that
    reads it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            if isinstance(error.__cause__, ValidationError):
                from sluice.config_mistakes import plain

                error.message = plain(error.__cause__)
            raise


app = typer.Typer(
    cls=_Group,
    help="Sluice: a gateway for AI control.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
worker_app = typer.Typer(help="Run one worker process.", no_args_is_help=True)
app.add_typer(worker_app, name="worker")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sluice {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Sluice: a gateway for AI control."""


@app.command("version", hidden=True)
def show_version() -> None:
    """Show the version, as --version does."""
    _show_version(True)


@app.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port of the gateway. (default: 8080; variable SLUICE_PORT)",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Where everything is kept. (default: .sluice; variable SLUICE_DATA_DIR)",
        ),
    ] = None,
    config: ConfigFile = None,
    policy_workers: Annotated[
        int, typer.Option("--policy-workers", min=1, max=64, help="Policy workers to start.")
    ] = 1,
    judge_workers: Annotated[
        int, typer.Option("--judge-workers", min=1, max=64, help="Judge workers to start.")
    ] = 1,
    judge_concurrency: Annotated[
        int,
        typer.Option(
            "--judge-concurrency", min=1, max=1000, help="Judgements each of them works on at once."
        ),
    ] = 8,
    as_json: AsJson = False,
) -> None:
    """Start everything: gateway, workers, and servers of its own where SLUICE_REDIS_URL or
    SLUICE_DATABASE_URL is not set."""
    gc.disable()  # importing makes no garbage
    from gateway import descriptors
    from sluice.settings import load_settings
    from sluice.up import up as launcher

    gc.enable()
    # the servers that it starts have what it has
    descriptors.raise_limit()
    settings = load_settings(port=port, data_dir=data_dir, config=config)
    workers = launcher.Workers(policy_workers, judge_workers, judge_concurrency)
    launcher.run(settings, workers, as_json=as_json, main=main)


@app.command()
def gateway(
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to listen on. (default: 127.0.0.1; variable SLUICE_HOST)"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port to listen on. (default: 8080; variable SLUICE_PORT)",
        ),
    ] = None,
    config: ConfigFile = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run one gateway: client and upstream sockets."""
    _serve("gateway", "gateway.main", config=config, ready_fd=ready_fd, host=host, port=port)


@worker_app.command("policy")
def worker_policy(config: ConfigFile = None, ready_fd: ReadyFd = None) -> None:
    """Run one policy worker: claims calls, decides, releases."""
    _serve("policy", "workers.policy.worker", config=config, ready_fd=ready_fd)


@worker_app.command("judge")
def worker_judge(
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1000, help="Judgements at once.")
    ] = 8,
    config: ConfigFile = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run one judge worker: asks judge models."""
    _serve(
        "judge", "workers.judge.worker", config=config, ready_fd=ready_fd, concurrency=concurrency
    )


@worker_app.command("audit")
def worker_audit(config: ConfigFile = None, ready_fd: ReadyFd = None) -> None:
    """Run one audit writer: brings the record from Redis to Postgres."""
    _serve("audit", "workers.audit.writer", config=config, ready_fd=ready_fd)


@app.command()
def pages(config: ConfigFile = None, ready_fd: ReadyFd = None) -> None:
    """Run the record's readers: pages for people under /debug of each gateway, the audit API under
    /audit."""
    _serve("pages", "pages.main", config=config, ready_fd=ready_fd)


@app.command()
def migrate() -> None:
    """Bring the database to the newest migration. Two at once are safe."""
    from sluice import settings
    from sluice.check import doctor

    url, loaded = settings.database_url(), settings.load_settings()
    passwords, retains = loaded.database_passwords, None
    # a configuration that another process would refuse is no reason not to migrate
    with contextlib.suppress(StartError):
        retains = bool(settings.load_config(loaded.config).retention.days)
    doctor.migrate_database(url, passwords, retains=retains)
    logins = (
        f", with the logins {', '.join(f'sluice_{name}' for name in passwords)}"
        if passwords
        else ""
    )
    typer.echo(f"the database at {settings.place(url)} is up to date{logins}", err=True)


@app.command("doctor")
def examine(
    config: ConfigFile = None,
    before_start: Annotated[
        bool, typer.Option("--before-start", help="Leave out what only a running product has.")
    ] = False,
    upstreams: Annotated[
        bool,
        typer.Option(
            "--upstreams", help="Also ask each upstream for its models: name, connection, key."
        ),
    ] = False,
    is_strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Check Redis, Postgres, keys, workers, backlogs, leaks and rights; exit 1 when something is
    not fit."""
    from sluice.check import doctor
    from sluice.settings import load_config, load_settings, with_embedded

    loaded = load_settings(config=config)
    settings = with_embedded(loaded)
    runtime = settings.runtime(load_config(settings.config))
    checks = doctor.check_all(
        runtime.config,
        runtime.redis_url,
        runtime.database_url,
        live=not before_start,
        search_path=settings.search_path,
        progress=(lambda line: None) if as_json else partial(typer.echo, err=True),
    )
    if not (loaded.redis_url or loaded.database_url):
        checks = doctor.without_shared_rights(checks)
    if upstreams:
        from sluice.check.upstreams import check_upstreams

        checks += check_upstreams(runtime.config)
    counts = {
        name: sum(state == name for _, state, _ in checks) for name in ("failed", "warning", "ok")
    }
    failed = counts["failed"] or (is_strict and counts["warning"])
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "ok": not failed,
                    "counts": counts,
                    "checks": [{"name": n, "state": s, "message": m} for n, s, m in checks],
                }
            )
        )
    else:
        from sluice.tables import TableColumn, show

        columns = (
            TableColumn(heading="state", value="state"),
            TableColumn(heading="check", value="check"),
            TableColumn(heading="message", value="message", least=20, stretches=True, wraps=True),
        )
        show(
            [{"state": s, "check": n, "message": m} for n, s, m in checks],
            columns,
            ("state", "check", "message"),
        )
        typer.echo(doctor.summary(counts), err=True)
    raise typer.Exit(1 if failed else 0)


@app.command("check")
def check_configuration(
    file: Annotated[
        Path | None,
        typer.Argument(help="Configuration file. (variable SLUICE_CONFIG)", metavar="FILE"),
    ] = None,
    try_call: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--try-call",
            metavar="TOOL JSON",
            help="Say what the policies would make of this tool call.",
        ),
    ] = None,
    try_text: Annotated[
        str | None,
        typer.Option("--try-text", help="Say what the policies would make of this answer."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Name of the policies to try. (default: default)")
    ] = None,
    is_strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Check a configuration file whole, starting nothing; exit 1 when it has mistakes. Modules of
    policies of your own are run."""
    from sluice.check import check_cli

    raise typer.Exit(
        check_cli.run(
            file, call=try_call, text=try_text, policy=policy, is_strict=is_strict, as_json=as_json
        )
    )


@app.command()
def presets(
    name: Annotated[
        str | None, typer.Argument(help="Show what this one stands for.", metavar="NAME")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=VALUE", help="An option of the preset; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the series of policies that ship as presets; with NAME, print one as configuration that
    can be copied."""
    from sluice.check import presets_cli

    presets_cli.run(name, assignments or (), as_json=as_json)


app.command()(explain)


@app.command("run", context_settings={"ignore_unknown_options": True})
def run_agent(
    command: Annotated[
        list[str],
        typer.Argument(help="The agent and its arguments, after --.", metavar="-- COMMAND"),
    ],
    model: Model = "",
) -> None:
    """Run a coding agent through Sluice: `sluice run -- claude`. What is set is set for that
    process alone."""
    from sluice.agents import connect

    connect.run(command, model=model)


@app.command("connect")
def connect_agent(
    agent: Annotated[
        str,
        typer.Argument(
            help="claude, codex, aider, opencode, goose, cline, llm; without it they are listed."
        ),
    ] = "",
    show: Annotated[
        bool, typer.Option("--print", help="Print what to set, as lines for a shell. (default)")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Put it into the agent's own file, which is kept as it was."),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put that file back, byte for byte.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Send one request as the agent would, and say where its call is seen."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before writing.")] = False,
    model: Model = "",
) -> None:
    """Point a coding agent at Sluice for good, with a key of its own."""
    from sluice.agents import connect

    asked = [
        name
        for name, is_set in (("print", show), ("write", write), ("undo", undo), ("check", check))
        if is_set
    ]
    raise typer.Exit(connect.connect(agent, asked, model=model, yes=yes))


@app.command()
def bench(
    url: Annotated[
        str,
        typer.Option("--url", help="A running gateway on this machine, instead of one of its own."),
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            "--key", help="Its API key, with the roles client and auditor.", envvar="SLUICE_KEY"
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="One round of each workload.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what Sluice costs on this machine, against the built-in upstream; under a minute."""
    from sluice import bench as benchmark

    benchmark.run(url=url.rstrip("/"), key=key, as_json=as_json, quick=quick)


@app.command("settings", hidden=True)
def show_settings(
    env_example: Annotated[bool, typer.Option("--env-example", help="Print .env.example.")] = False,
) -> None:
    """Print every setting with its default, in the form of `.env.example`."""
    from sluice import settings

    typer.echo(settings.env_example(), nl=False)


def _serve(
    role: str, module: str, *, ready_fd: int | None, concurrency: int = 8, **overrides: object
) -> None:
    """Check, then run one process until a stop signal. What stops it is reported to the launcher
    too, if there is one."""
    gc.disable()  # importing makes no garbage, and looking for it cost a quarter of the start
    import uvloop

    from gateway import descriptors
    from sluice import logs
    from sluice.settings import load_config, load_settings
    from sluice.up import memory

    memory.keep()
    descriptors.raise_limit()
    try:
        settings = load_settings(**overrides)
        logs.set_up(role, settings.log)
        config = load_config(settings.config)
        if role == "pages":
            from sluice.check.policy_check import with_presets

            config = with_presets(config)
        runtime = settings.runtime(
            config,
            ready_fd=ready_fd,
            concurrency=concurrency,
            needs_database=role != "judge",
            names_set=role in ("gateway", "policy"),
        )
        if role in ("gateway", "judge"):
            _check_upstreams(settings.config, config)
        if ready_fd is None:
            _check(role, runtime)
        try:
            # not before: each loads what its role needs alone
            run: Run = import_module(module).run
            uvloop.run(run(runtime))
        except (OSError, PipelineError) as error:
            raise _start_error(error, runtime, settings.config) from error
    except Exception as error:
        if ready_fd is not None:
            _tell_launcher(ready_fd, error)
        raise


def _check_upstreams(file: Path | None, config: "Config") -> None:
    """Raise SettingsError where no request can reach an upstream: its address has nothing behind
    it, or its key cannot be read."""
    if config.upstreams:
        from sluice.check import check
        from sluice.config_mistakes import Mistakes

        if mistakes := list(check.upstream_mistakes(config)):
            raise Mistakes(str(file), mistakes)


def _check(role: str, runtime: "Runtime") -> None:
    from sluice.check import check, doctor

    for finding in check.start_warnings(runtime.config, role):
        typer.echo(f"{finding.level}: {finding.sentence}", err=True)
    warnings = doctor.check_redis(runtime.redis_url)
    if role in ("gateway", "audit", "pages"):
        warnings += doctor.check_database(runtime.database_url)
    if role == "gateway":
        warnings += doctor.check_keys(runtime.config, runtime.database_url)
    for sentence in warnings:
        typer.echo(f"warning: {sentence}", err=True)


def _start_error(
    error: OSError | PipelineError, runtime: "Runtime", file: Path | None
) -> Exception:
    """Return the sentence for what stopped a process; what is no matter of settings or surroundings
    stays as it is."""
    from protocol.requests.addresses import bracketed

    where = f"{bracketed(runtime.host)}:{runtime.port}"
    match error:
        case PolicyFailed():
            from sluice.check.check import start_error

            return start_error(error, file, runtime.search_path)
        case OtherDatabase() | OldPrimary():
            from sluice.check.doctor import not_ours

            return not_ours(runtime.redis_url, runtime.database_url) or Unavailable(error.message)
        case PipelineError():
            return Unavailable(error.message)
        case ConnectionError() | TimeoutError():
            return Unavailable(
                f"Redis or PostgreSQL does not answer ({type(error).__name__}): `sluice doctor`"
                " says which"
            )
        case OSError(errno=errno.EADDRINUSE):
            return Busy(
                f"port {runtime.port} is in use: choose another with --port or SLUICE_PORT, or end"
                f" what listens on {where}"
            )
        case OSError(errno=errno.EACCES):
            return StartError(
                f"this user may not listen on {where}: choose a port above 1023 with --port or"
                " SLUICE_PORT"
            )
        case OSError(errno=errno.EADDRNOTAVAIL):
            return StartError(
                f"{runtime.host} is not an address of this machine: correct SLUICE_HOST"
            )
        case _:
            return error


def _tell_launcher(ready_fd: int, error: Exception) -> None:
    code = error.exit_code if isinstance(error, StartError) else 1
    sentence = (
        " ".join(str(error).split()) if isinstance(error, StartError) else type(error).__name__
    )
    with contextlib.suppress(OSError):  # closed when it was ready already
        os.write(ready_fd, f"{code} {sentence[:1000]}\n".encode())


def _add_groups(arguments: list[str]) -> None:
    """Bring in the commands that need the database's libraries only when they are asked for, or
    help is."""
    if arguments[:1] in (["--version"], ["-V"]):
        return
    named = next((a for a in arguments if not a.startswith("-")), None)
    others = [
        *(c.name or c.callback.__name__ for c in app.registered_commands if c.callback),
        *(g.name for g in app.registered_groups),
    ]
    # for a word that is no command all are needed: one may be what was meant
    is_unknown = named not in others
    groups = ("eval", "tail", "keys", "audit", "approvals")
    wanted = {named} if named in groups else {*groups} if is_unknown else set[str]()
    if "eval" in wanted:
        from sluice.eval.cli import app as evaluation

        app.add_typer(evaluation, name="eval")
    if "tail" in wanted:
        from sluice.audit.debug_cli import tail

        app.command()(tail)
    if "keys" in wanted:
        from sluice.keys_cli import app as keys

        app.add_typer(keys, name="keys")
    if "audit" in wanted:
        from sluice.audit.audit_cli import app as audit
        from sluice.audit.seal_cli import app as seals

        audit.add_typer(seals)
        app.add_typer(audit, name="audit")
    if "approvals" in wanted:
        from sluice.approvals_cli import app as approvals

        app.add_typer(approvals, name="approvals")


def main() -> None:
    """Run the command line."""
    heed_signals()
    for name in DATABASE_VARIABLES:
        os.environ.pop(name, None)
    _add_groups(sys.argv[1:])
    try:
        app(prog_name="sluice")
    except StartError as error:
        print(wrapped(f"sluice: {error}", sys.stderr), file=sys.stderr)  # noqa: T201
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
