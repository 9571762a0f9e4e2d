"""Calls whose record lacks something, and whether the record says so: by a call's events, `sluice
audit verify`, and `sluice doctor`."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.request import DialectName
from sluice.check import doctor
from sluice.settings import load_config
from tests.support.checks.damage import copied, set_back
from tests.support.checks.invariants import call_faults, read_call
from tests.support.checks.sealed import run, verified
from tests.support.clients.readers import Reader, joined, request, under_way, words
from tests.support.servers.product import Product, Role, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client, database, own_postgres, own_valkey
from tests.support.waiting import wait_for

NAMED_S = 80.0
"""A call whose end an audit writer had to write itself is sealed, and so judged, by its next sweep:
within a minute."""


@dataclass
class Place:
    """A product on stores of its own, which a test may damage."""

    product: Product
    valkey: Server
    postgres: Server
    proxies: dict[str, Proxy] = field(default_factory=dict)
    """Between a role and Redis, where there is one."""

    def ask(self, count: int, length: int, *, gap_ms: int = 10) -> list[Reader]:
        """Calls in both dialects, of so many words each."""
        dialects: tuple[DialectName, ...] = ("openai", "anthropic")
        return [
            Reader(self.product.url, request(words(length, gap_ms), dialect), dialect=dialect)
            for n in range(count)
            for dialect in (dialects[n % 2],)
        ]

    def whole(self, count: int, length: int = 10) -> list[Reader]:
        """Calls that are over and sealed."""
        readers = self.ask(count, length)
        joined(readers)
        assert all(r.has_all(length) for r in readers), self.product.logs()
        self.sealed(readers)
        return readers

    def sealed(self, readers: Sequence[Reader]) -> None:
        """Wait until calls are sealed."""
        ids = [r.call_id for r in readers]
        query = "SELECT count(DISTINCT call_id) FROM seals WHERE call_id = ANY(%s::uuid[])"
        wait_for(lambda: self.count(query, ids) == len(ids), what="seals")

    def checkpoint(self, file: Path) -> Path:
        """Keep the newest checkpoint over all that is sealed."""
        query = "SELECT coalesce(max(size), 0) - (SELECT count(*) FROM seals) FROM checkpoints"
        wait_for(lambda: self.count(query) == 0, what="a checkpoint")
        file.write_text(run(self.postgres.url, "checkpoint").stdout)
        return file

    def open(self, count: int, length: int, *, gap_ms: int = 10) -> list[Reader]:
        """Calls that are under way."""
        readers = self.ask(count, length, gap_ms=gap_ms)
        under_way(readers, 10)
        return readers

    def count(self, query: str, *values: Any) -> int:
        """Ask PostgreSQL for a number."""
        with database(self.postgres) as connection:
            row = connection.execute(query.encode(), values).fetchone()
            return int(row[0]) if row else 0

    def at_rest(self) -> None:
        """Wait until nothing is on the streams any more and what is on record stays as it is."""
        with client(self.valkey) as store:
            raw: Any = store
            wait_for(
                lambda: raw.xlen("sluice:{00}:dispatch") == raw.xlen("sluice:{00}:audit") == 0,
                timeout_s=30,
                what="empty streams",
            )

    def lacking(self, readers: Sequence[Reader]) -> dict[str, list[str]]:
        """The calls whose clients got something else than the record says, or whose chunks or end
        are not there; and what it is."""
        found = {}
        with database(self.postgres) as connection:
            for reader in readers:
                recorded = read_call(connection, reader.call_id)
                faults = call_faults(reader.seen, recorded)
                if recorded.end is not None and recorded.end[1] == "stream_lost":
                    faults.append("nobody knows what Redis lost of it")
                # what the record says of itself is to be held against this
                if theirs := [fault for fault in faults if not fault.startswith("I8")]:
                    found[reader.call_id] = theirs
        return found

    def named(self) -> dict[str, list[str]]:
        """The calls that are marked as incomplete, and what is said of each."""
        found: dict[str, list[str]] = {}
        with database(self.postgres) as connection:
            for call, detail in connection.execute(
                b"SELECT call_id, detail FROM events WHERE kind = 'incomplete' ORDER BY number"
            ):
                found.setdefault(str(call), []).append(detail)
        return found


def assert_holes_are_named(
    place: Place, readers: Sequence[Reader], *, also: Collection[str] = ()
) -> set[str]:
    """Each call that lacks something is named, in its record, by `verify` and by the doctor, and no
    other is; returns their ids.

    `also`: calls that the test knows to lack something, though their clients could not tell.
    """
    place.at_rest()
    lacking = place.lacking(readers)
    wanted = {*lacking, *also}
    others = {r.call_id for r in readers} - wanted
    until = time.monotonic() + NAMED_S
    while unnamed := wanted - place.named().keys():
        assert time.monotonic() < until, {call: lacking.get(call) for call in unnamed}
        time.sleep(0.1)
    whole = [said for said in place.named().items() if said[0] in others]
    assert not whole, whole
    # a call that lacks something may get a late row, which the next seal of it covers
    wait_for(
        lambda: verified(place.postgres.url)[0] in (0, 4),
        timeout_s=NAMED_S,
        what="seals over all rows",
    )
    code, told = verified(place.postgres.url)
    assert code == 4 or not wanted, told
    assert wanted <= set(told["incomplete_calls"]) and not others & set(told["incomplete_calls"]), (
        told
    )
    config = load_config(place.product.config_file)
    said = [
        (state, sentence)
        for _, state, sentence in doctor.check_all(config, place.valkey.url, place.postgres.url)
    ]
    assert not wanted or any(
        state != "ok" and call in sentence for state, sentence in said for call in wanted
    ), said
    assert not any(call in sentence for _, sentence in said for call in others)
    return wanted


def set_back_under_load(place: Place, *, seconds: float) -> int:
    """Set PostgreSQL back by so long while calls begin, go on and end; checkpoints kept elsewhere
    from before and from between.

    A call is named if a part of it came onto record in that time, all of it, or its end. Returns
    how many were.
    """
    folder, gap_ms = place.product.folder, 20
    before = place.whole(3)
    kept = place.checkpoint(folder / "before.txt")
    across = place.open(3, int((seconds + 5) * 1000 / gap_ms), gap_ms=gap_ms)
    ending = place.open(2, max(40, int(seconds * 500 / gap_ms)), gap_ms=gap_ms)
    copy = copied(place.postgres, folder / "copy")
    until = time.monotonic() + seconds
    inside = place.whole(3)
    joined(ending)
    place.sealed(ending)
    between = place.checkpoint(folder / "between.txt")
    beginning = place.open(2, int((seconds + 3) * 1000 / gap_ms), gap_ms=gap_ms)
    wait_for(lambda: time.monotonic() > until, timeout_s=seconds + 1, what="the time to be lost")
    assert all(r.is_alive() for r in (*across, *beginning))
    set_back(place.postgres, copy)
    joined([*across, *beginning])
    damaged = [*across, *ending, *inside, *beginning]
    assert all(r.whole for r in damaged), "no client noticed"
    named = assert_holes_are_named(place, [*before, *damaged, *place.whole(3)])
    assert named == {r.call_id for r in damaged}
    assert (
        "checkpoint_mismatch"
        not in run(place.postgres.url, "verify", "--against", str(kept)).stdout
    )
    told = run(place.postgres.url, "verify", "--against", str(between)).stdout
    assert "checkpoint_mismatch" in told, told
    return len(named)


@contextmanager
def damageable(folder: Path, *, behind: Sequence[Role] = (), **limits: Any) -> Iterator[Place]:
    """Run a product with two policy workers on stores of its own; the roles `behind` proxies find
    Redis through them."""
    config = base_config()
    config["limits"] |= {
        "seal_s": 0.2,
        "checkpoint_s": 0.3,
        "ended_ttl_s": 6.0,
        "redis_silent_s": 2.0,
        **limits,
    }
    with ExitStack() as stack:
        valkey, postgres = (
            stack.enter_context(own_valkey(folder)),
            stack.enter_context(own_postgres(folder)),
        )
        place = Place(Product(folder, valkey.url, postgres.url, config), valkey, postgres)
        for role in behind:
            place.proxies[role] = stack.enter_context(proxied(valkey.url))
            place.product.redis_urls[role] = place.proxies[role].url(valkey.url)
        stack.enter_context(place.product)
        place.product.start("audit", "judge", "gateway", "policy", "policy")
        yield place
