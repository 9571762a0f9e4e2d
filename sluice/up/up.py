"""`sluice up`: everything on one machine. Servers of our own where none are named, migrations,
gateway, workers; one key.

Everything lies under the data directory: `valkey/`, `postgres/`, `logs/`, `run/` (pids, the
configuration handed to the processes), `key`. A lock there keeps a second launcher out; what a
killed launcher left is swept before anything starts.
"""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from db.migrations.place import digest
from protocol.requests.addresses import bracketed
from settings.config import Config
from sluice.check import check, doctor
from sluice.config_file import Document, read
from sluice.config_mistakes import Finding
from sluice.errors import Busy, SettingsError
from sluice.private_files import write_private
from sluice.processes import Spec, die_with_parent, sweep
from sluice.sentences import wrapped
from sluice.settings import (
    ADDRESS_FILE,
    HANDED_FILE,
    TARGETS,
    URLS_FILE,
    Settings,
    check_urls,
    gateway_url,
)
from sluice.up import embedded
from sluice.up.data_dir import locked, make_data_dir, writable
from sluice.up.forks import ForkServer
from sluice.up.greeting import Shows, greeting
from sluice.up.own_key import APPROVER_FILE, own_key, own_policies, with_debug_logs, with_keys
from sluice.up.rehearsal import Rehearsal
from sluice.up.supervisor import Supervisor
from streams import lifecycle

START_S = 60.0
WORKERS_STOP_S = 8.0
SERVERS_STOP_S = 20.0
SWEEP_S = 5.0
AGAIN_S = 1.0
"""A second Ctrl-C after this time means: at once."""
RECORD_NICE = 5
"""Niceness of audit writers, which gives way to the serving processes on few cores. At 10 audit
writers are three times as late when all cores are busy, at 0 the others are a few percent slower
(docs/change/decisions.md). Strict calls wait for it."""
PAGES_NICE = 10
"""Niceness of the pages: who reads may wait, a stream may not."""
LARGEST_LOG_BYTES = 10 * 2**20


@dataclass(frozen=True, slots=True)
class Workers:
    """How many workers one `sluice up` starts, and how many judgements a judge worker works on at
    once."""

    policy: int = 1
    judge: int = 1
    judge_concurrency: int = 8


@dataclass(frozen=True)
class UpPlan:
    """What a `sluice up` runs."""

    settings: Settings
    config: Config
    data_dir: Path
    key: str
    approver_key: str
    workers: Workers
    as_json: bool
    rehearsal: Rehearsal | None = None
    """Knows what the policies do; None: that is not shown."""
    command: tuple[str, ...] = (sys.executable, "-m", "sluice.cli")
    """What starts a process of ours; the role follows."""

    @property
    def run_dir(self) -> Path:
        """Where the pid files lie."""
        return self.data_dir / "run"

    @property
    def handed(self) -> Path:
        """The configuration that the processes read."""
        return self.data_dir / HANDED_FILE

    @property
    def policy_path(self) -> str:
        """The folder of the user's own policies; empty where there is none."""
        return "".join(self.settings.search_path)

    @property
    def url(self) -> str:
        """The gateway's address as a client on this machine sees it."""
        return gateway_url(self.settings.host, self.settings.port)

    @cached_property
    def pages_url(self) -> str:
        """Where the process of the pages listens."""
        path = self.run_dir / "pages.sock"
        return (
            f"unix:{path}"
            if embedded.is_socket_path(path)
            else f"http://127.0.0.1:{embedded.free_port()}"
        )

    def log(self, name: str) -> Path:
        """The log of the process `name`."""
        return self.data_dir / "logs" / f"{name}.log"


def run(
    settings: Settings,
    workers: Workers,
    *,
    as_json: bool,
    main: Callable[[], None],
    **overrides: Any,
) -> None:
    """Run until SIGINT or SIGTERM; `main` is the command line, which a role runs. Raises
    StartError."""
    if "MAKELEVEL" in os.environ:
        die_with_parent(signal.SIGTERM)
    check_urls(settings.redis_url, settings.database_url)
    document = Document("", config=Config()) if settings.config is None else read(settings.config)
    # also what is wrong with the policies, so that all of it can be put right at once
    config = document.config or check.refused(document, settings.search_path)
    with contextlib.closing(
        Rehearsal.start(document, settings.search_path, own_policies(config)[0])
    ) as rehearsal:
        data_dir = make_data_dir(settings.data_dir)
        # whatever is written from now on is closed to other users
        os.umask(0o077)
        with writable(settings.data_dir), locked(data_dir):
            for name in sweep(data_dir / "run", grace_s=SWEEP_S):
                say(f"{name} was left behind by an earlier run and is ended")
            if settings.port == 0:
                settings = settings.model_copy(update={"port": embedded.free_port()})
            check_port(settings.host, settings.port)
            key, approver = own_key(data_dir), own_key(data_dir, APPROVER_FILE)
            if settings.config is None:
                config = with_debug_logs(config)
            plan = UpPlan(
                settings,
                with_keys(config, key, approver),
                data_dir,
                key,
                approver,
                workers,
                as_json,
                rehearsal,
                **overrides,
            )
            forks = ForkServer.start(main)  # before there is a loop
            try:
                rehearsal.refuse()
                _warn(document, rehearsal.warnings())
                asyncio.run(_Launcher(plan, forks).run())
            finally:
                forks.close()


def _warn(document: Document, of_policies: Sequence[Finding]) -> None:
    """Say what a configuration without mistakes will not do. Without a file there is nothing that
    somebody could have meant."""
    if document.config is not None and document.file:
        findings = [
            replace(finding, line=document.line(finding.place))
            for finding in check.warnings(document.config)
        ]
        for finding in dict.fromkeys((*findings, *of_policies)):
            say(f"{finding.level}: {finding.within(document.file)}")


def say(text: str) -> None:
    """Tell the person who started us; standard output is for the result alone."""
    with contextlib.suppress(OSError):  # a closed terminal must not end us
        print(wrapped(f"sluice: {text}", sys.stderr), file=sys.stderr, flush=True)  # noqa: T201


class _Launcher:
    def __init__(self, plan: UpPlan, forks: ForkServer) -> None:
        self._plan, self._forks = plan, forks
        self._stopping = asyncio.Event()
        self._stopped_at = 0.0
        self._redis_url, self._database_url = plan.settings.redis_url, plan.settings.database_url

    async def run(self) -> None:
        """Start, print where it runs, wait, stop."""
        loop = asyncio.get_running_loop()
        with Supervisor(self._plan.run_dir, say, self._forks) as supervisor:

            def stop(number: signal.Signals) -> None:
                # Make, timeout and terminals signal whole groups, so that one wish can arrive
                # twice: only a later Ctrl-C is impatience.
                if (
                    number == signal.SIGINT
                    and self._stopping.is_set()
                    and loop.time() - self._stopped_at > AGAIN_S
                ):
                    supervisor.kill_now()
                if not self._stopping.is_set():
                    self._stopped_at = loop.time()
                self._stopping.set()

            for number in lifecycle.stop_signals():
                loop.add_signal_handler(number, stop, number)
            work = asyncio.create_task(self._work(supervisor), name="launcher")
            stopped = asyncio.create_task(self._stopping.wait(), name="stop signal")
            try:
                await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                work.cancel()
                stopped.cancel()
                await asyncio.gather(work, stopped, return_exceptions=True)
                await self._stop(supervisor)

    async def _work(self, supervisor: Supervisor) -> None:
        await self._start(supervisor)
        shows = await asyncio.to_thread(self._rehearsed)
        if self._plan.as_json:
            pids = {"launcher": [os.getpid()], **_by_role(supervisor.pids)}
            text = json.dumps(
                {
                    "url": self._plan.url,
                    "key": self._plan.key,
                    "approver_key": self._plan.approver_key,
                    "data_dir": str(self._plan.data_dir),
                    "pids": pids,
                }
            )
        else:
            plan = self._plan
            text = greeting(
                plan.url,
                plan.key,
                plan.data_dir,
                approver=plan.approver_key,
                shows=shows,
                has_demo=bool(plan.config.demo_models),
                has_pages=plan.config.pages.enabled,
            )
        with contextlib.suppress(OSError):
            print(text, flush=True)  # noqa: T201
        await supervisor.watch()

    def _rehearsed(self) -> Shows | None:
        """What the policies make of the calls of the start-up text; says what keys name that is not
        there."""
        rehearsal = self._plan.rehearsal
        if rehearsal is None:
            return None
        shows = rehearsal.shows()
        for sentence in rehearsal.key_warnings(self._database_url):
            say(f"warning: {sentence}")
        rehearsal.close()
        return shows

    async def _start(self, supervisor: Supervisor) -> None:
        plan = self._plan
        say(f"data in {plan.data_dir}")
        for path in (plan.data_dir / "logs").glob("*.log"):
            if path.stat().st_size > LARGEST_LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        await self._start_servers(supervisor)
        await self._migrate()
        (plan.data_dir / TARGETS).mkdir(exist_ok=True)
        for path in (plan.data_dir / TARGETS).iterdir():
            # of processes that this run may not have
            path.unlink()
        write_private(plan.handed, json.dumps(plan.config.model_dump(mode="json")))
        write_private(plan.data_dir / ADDRESS_FILE, plan.url)
        workers = (
            *_numbered("policy-worker", plan.workers.policy),
            *_numbered("judge-worker", plan.workers.judge),
        )
        names = ["gateway", *workers, "audit-writer"]
        say(f"starting {', '.join(names)}")
        await self._forks.ready()
        await supervisor.start([self._spec(name) for name in names], timeout_s=START_S)
        supervisor.start_beside(self._spec("pages"))

    async def _start_servers(self, supervisor: Supervisor) -> None:
        plan, specs = self._plan, []
        if not self._redis_url:
            spec, self._redis_url = embedded.valkey(
                plan.data_dir / "valkey", log=plan.log("valkey")
            )
            specs.append(spec)
        else:
            for sentence in doctor.check_redis(self._redis_url):
                say(f"warning: {sentence}")
        if not self._database_url:
            first = not (plan.data_dir / "postgres" / "PG_VERSION").exists()
            say(
                "making a PostgreSQL database and starting the servers (once, a few seconds)"
                if first
                else "starting Valkey and PostgreSQL"
            )
            spec, self._database_url = embedded.postgres(
                plan.data_dir / "postgres", log=plan.log("postgres"), say=say
            )
            specs.append(replace(spec, nice=self._record_nice))
        if specs:
            await supervisor.start(specs, timeout_s=START_S)
        urls = {
            "redis_url": self._redis_url,
            "database_url": self._database_url,
            "policy_path": plan.policy_path,
        }
        write_private(plan.data_dir / URLS_FILE, json.dumps(urls))

    async def _migrate(self) -> None:
        """Bring the tables to the newest migration. Where that is known without asking, save the
        half second of finding out."""
        stamp, now = self._plan.data_dir / "postgres.migrated", digest()
        is_ours = not self._plan.settings.database_url
        if is_ours and now and stamp.exists() and stamp.read_text() == now:
            return
        say("bringing the database's tables up to date")
        if not (is_ours and await asyncio.to_thread(_lay_tables, self._database_url)):
            await asyncio.to_thread(doctor.migrate_database, self._database_url)
        if is_ours:
            write_private(stamp, now)

    @property
    def _record_nice(self) -> int:
        return 0 if self._plan.config.durability == "strict" else RECORD_NICE

    def _spec(self, name: str) -> Spec:
        plan = self._plan
        known = {"gateway": ("gateway",), "pages": ("pages",), "audit-writer": ("worker", "audit")}
        role = known.get(name) or ("worker", name.partition("-")[0])
        flags = (
            ("--concurrency", str(plan.workers.judge_concurrency)) if role[-1] == "judge" else ()
        )
        settings = plan.settings
        env = {
            "SLUICE_CONFIG": str(plan.handed),
            "SLUICE_REDIS_URL": self._redis_url,
            "SLUICE_DATABASE_URL": self._database_url,
            "SLUICE_HOST": settings.host,
            "SLUICE_PORT": str(settings.port),
            "SLUICE_LOG": settings.log,
            "SLUICE_PAGES_URL": plan.pages_url,
            "SLUICE_POLICY_PATH": plan.policy_path,
            "SLUICE_DATA_DIR": str(plan.data_dir),
            "SLUICE_METRICS_PORT": "0",
            "SLUICE_METRICS_TARGET": str(plan.data_dir / TARGETS / f"{name}.json"),
            "PYTHONPATH": os.pathsep.join(
                filter(
                    None,
                    [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")],
                )
            ),
        }
        nice = {"audit": self._record_nice, "pages": PAGES_NICE}.get(role[-1], 0)
        role = (*role, *flags)
        return Spec(name, [*plan.command, *role], plan.log(name), env=env, nice=nice, role=role)

    async def _stop(self, supervisor: Supervisor) -> None:
        """End what feeds before what is fed: gateway, workers, audit writer, servers."""
        names = supervisor.names
        if names:
            say("stopping")
        await supervisor.stop(["gateway"], grace_s=self._plan.config.limits.drain_s)
        await supervisor.stop(
            [name for name in names if name.startswith(("policy-", "judge-", "pages"))],
            grace_s=WORKERS_STOP_S,
        )
        await supervisor.stop(["audit-writer"], grace_s=WORKERS_STOP_S)
        await supervisor.stop(["valkey", "postgres"], grace_s=SERVERS_STOP_S)
        await supervisor.stop(list(supervisor.names), grace_s=WORKERS_STOP_S)
        with contextlib.suppress(
            OSError
        ):  # a disk that takes nothing more; who reads it looks first whether somebody runs
            (self._plan.data_dir / URLS_FILE).unlink(missing_ok=True)


def check_port(host: str, port: int) -> None:
    """Raise Busy when something listens there, SettingsError when this user or machine cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            match error.errno:
                case errno.EADDRINUSE:
                    raise Busy(
                        f"port {port} is in use: choose another with --port, or end what listens on"
                        f" {bracketed(host)}:{port}"
                    ) from None
                case errno.EACCES:
                    raise SettingsError(
                        f"this user may not listen on port {port}: choose one above 1023 with"
                        " --port"
                    ) from None
                case _:
                    raise SettingsError(
                        f"{host} is not an address of this machine: correct SLUICE_HOST"
                    ) from None


def _lay_tables(database_url: str) -> bool:
    from db.migrations import schema  # and the driver: only a new database needs it here

    return schema.lay(database_url)


def _by_role(pids: dict[str, int]) -> dict[str, list[int]]:
    """Return the pids of each role: gateway, policy, judge, audit, pages, redis, postgres (empty
    where the server is not ours)."""
    pids_by_role: dict[str, list[int]] = {
        role: [] for role in ("gateway", "policy", "judge", "audit", "pages", "redis", "postgres")
    }
    for name, pid in pids.items():
        role = name.partition("-")[0]
        pids_by_role["redis" if role == "valkey" else role].append(pid)
    return pids_by_role


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(1, count + 1)]
