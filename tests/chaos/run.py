"""The chaos run: many calls at once while everything breaks at random, then every byte checked
against the record.

    python -m tests.chaos.run --seconds 180 --calls 100000 --at-once 24 --seed 1 --json report.json

Four policy workers, two gateways, two judges and two audit writers as real processes, each role on
a proxy of its own to a Valkey (which syncs its append-only file at every command: what it
acknowledged must survive) and a PostgreSQL of the run's own. Ends with 1 where anything is wrong;
the seed repeats the choice of calls and faults, not their timing.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from settings.limits import Limits
from tests.chaos import check
from tests.chaos.breaking import Breaker
from tests.chaos.hostile import ATTACKS, POLICIES
from tests.chaos.load import HOSTILE_KEY, HOSTILE_SHARE, Load
from tests.chaos.upstream import Upstream, upstream
from tests.support.checks.invariants import settle
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, Role, base_config, digest
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client, database, own_postgres, own_valkey
from tests.support.servers.wrong_clock import WrongClock, wrong_clocks

ROLES: tuple[Role, ...] = ("gateway", "policy", "judge", "audit")
OF_CLOCKS: tuple[Role, ...] = ("gateway", "judge", "audit")
"""Whose clocks jump. The check reads by a policy worker's clock when it took a call over
(tests/chaos/test_clocks.py has wrong ones)."""
SETTLE_S = 90.0
# shorter than what is shipped, so that takeovers come often; while processes start, a slow machine
# keeps a living worker waiting for over a second
LEASE_S = 2.0
SDK_EVERY = 10
SIGNS = (
    "audit conflict",
    "a replay gave other outputs",
    "call broken",
    "Exception in callback",
    "task failed",
    "set aside",
)
"""What no log may say, whatever breaks."""


def config(server: Upstream, lease_s: float) -> Json:
    """Short clocks, two upstreams, and policies for rules, judges and neither."""
    made = base_config()
    made["upstreams"] = {
        "up-openai": {"dialect": "openai", "base_url": server.url + "/v1"},
        "up-anthropic": {"dialect": "anthropic", "base_url": server.url},
    }
    made["models"] = [{"match": name, "upstream": name} for name in made["upstreams"]]
    made["policies"]["judged"] = [{"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}]
    made["keys"][0]["policies"].append("judged")
    made["demo"] = True
    made["policies"] |= POLICIES
    made["keys"].append(
        {
            "name": "hostile",
            "sha256": digest(HOSTILE_KEY),
            "roles": ["client"],
            "policies": ["default", *POLICIES],
        }
    )
    made["limits"] |= {
        "lease_s": lease_s,
        "redis_silent_s": 2.0,
        "keepalive_s": 1.0,
        "activity_s": 20.0,
        "drain_s": 7.0,
    }
    return made


Stage = tuple[
    Product, Server, Server, dict[str, Proxy], list[int], Upstream, dict[Role, WrongClock]
]


@contextlib.contextmanager
def stage(
    folder: Path, *, lease_s: float = LEASE_S
) -> Iterator[
    tuple[Product, Server, Server, dict[str, Proxy], list[int], Upstream, dict[Role, WrongClock]]
]:
    """Everything that the run needs, up and ready."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(upstream())
        # with `everysec` a kill may lose what it had acknowledged; here nothing may be lost that is
        # not named
        valkey = stack.enter_context(own_valkey(folder, fsync="always"))
        postgres = stack.enter_context(own_postgres(folder))
        product = Product(folder, valkey.url, postgres.url, config(server, lease_s))
        proxies: dict[str, Proxy] = {}
        for role in ROLES:
            proxies[f"{role}-redis"] = stack.enter_context(proxied(valkey.url))
            product.redis_urls[role] = proxies[f"{role}-redis"].url(valkey.url)
        proxies["audit-postgres"] = stack.enter_context(proxied(postgres.url))
        product.database_urls["audit"] = proxies["audit-postgres"].url(postgres.url)
        clocks = dict(
            zip(OF_CLOCKS, stack.enter_context(wrong_clocks(len(OF_CLOCKS))), strict=True)
        )
        product.environments = {role: clock.env for role, clock in clocks.items()}
        stack.enter_context(product)
        ports = [product.port, free_port()]
        product.start("audit", "audit", "judge", "judge", "policy", "policy", "policy", "policy")
        for port in ports:
            product.start("gateway", port=port)
        yield product, valkey, postgres, proxies, ports, server, clocks


def run(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    calls: int,
    at_once: int,
    attacks: Sequence[str] = tuple(ATTACKS),
    hostile: float = HOSTILE_SHARE,
    breaks: bool = True,
) -> tuple[Json, list[str]]:
    """Run until `seconds` are over or `calls` were made; returns the report and what is wrong.

    Without `attacks` nobody is hostile; where nothing `breaks`, every innocent call must be served
    as it should, whatever the hostile do.
    """
    # where nothing breaks, the lease is the one that is shipped: a short one passes while attacker
    # and innocents share the cores with Redis
    with stage(folder, lease_s=LEASE_S if breaks else Limits().lease_s) as (
        product,
        valkey,
        postgres,
        proxies,
        ports,
        server,
        clocks,
    ):
        load = Load(
            [f"http://127.0.0.1:{port}" for port in ports],
            seed=seed,
            at_once=at_once,
            calls=calls,
            hostile=hostile,
            attacks=attacks,
        )
        breaker = Breaker(product, valkey, postgres, proxies, ports, seed, clocks)
        began = time.monotonic()
        load.start()
        if breaks:
            breaker.run(lambda: time.monotonic() - began > seconds or load.is_over)
        else:
            load.wait(seconds)
        load.stop(timeout_s=120)
        breaker.replace_ended()
        lasted = time.monotonic() - began
        with client(valkey) as store, database(postgres) as connection:
            found = settle(connection, store, timeout_s=SETTLE_S)
            every = 1 if len(load.done) < 2000 else SDK_EVERY
            found += check.faults(load.done, server, breaker, connection, postgres.url, every=every)
            said = check.report(
                load.done, breaker, connection, seed=seed, seconds=lasted, refused=load.refused
            )
        found += load.failures + breaker.ended
        found += [
            f"{child.log.name}: {line[:2000]}"
            for child in product.children
            for line in child.log.read_text(errors="replace").splitlines()
            if any(sign in line for sign in SIGNS)
        ]
        said["wrong"] = len(found)
        return said, found


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument(
        "--attacks",
        nargs="*",
        choices=list(ATTACKS),
        default=list(ATTACKS),
        help="what the hostile client knows",
    )
    parser.add_argument(
        "--hostile", type=float, default=HOSTILE_SHARE, help="their share of all calls"
    )
    parser.add_argument(
        "--no-faults",
        action="store_true",
        help="break nothing: whatever an innocent call suffers is the hostile client's",
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--keep", type=Path, help="keep logs and data in this folder")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=given.keep is None)
        folder.chmod(0o711)
        said, found = run(
            folder,
            seed=given.seed,
            seconds=given.seconds,
            calls=given.calls,
            at_once=given.at_once,
            attacks=given.attacks,
            hostile=given.hostile,
            breaks=not given.no_faults,
        )
    print(json.dumps(said, indent=1))
    for sentence in found[:200]:
        print(sentence)
    if given.json:
        given.json.write_text(json.dumps(said, indent=1) + "\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
