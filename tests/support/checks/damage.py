"""Damage to the stores of a running product that no ordinary failure does: data taken back to what
it was, entries taken away by hand.

Each function leaves the servers up and says what went with the damage, as far as that can be known
from outside.
"""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from protocol.records import Record, decode_records
from streams import layout
from tests.support.servers.stores import Server, client


def copied(postgres: Server, to: Path) -> Path:
    """Copy a PostgreSQL's data as it lies there at one moment: what the disk of a machine holds
    that loses its power then."""
    postgres.freeze()
    try:
        # owners too: it may run as another user than we do
        subprocess.run(["cp", "-a", str(postgres.data), str(to)], check=True)
    finally:
        postgres.thaw()
    return to


def set_back(postgres: Server, copy: Path) -> None:
    """Crash a PostgreSQL and start it on a copy, as after a failover to a replica that lagged, or
    from a snapshot. The copy is used up."""
    postgres.kill(signal.SIGQUIT)
    shutil.rmtree(postgres.data)
    copy.rename(postgres.data)
    (postgres.data / "postmaster.pid").unlink(missing_ok=True)
    postgres.start()


class Written(NamedTuple):
    """How much of its append-only file a Valkey had written at some moment. It writes whole
    transactions."""

    file: Path
    size: int


def written(valkey: Server) -> Written:
    """What a Valkey has written now."""
    [file] = (valkey.data / "appendonlydir").glob("*.incr.aof")
    return Written(file, file.stat().st_size)


def forget_since(valkey: Server, then: Written) -> int:
    """Kill a Valkey and start it without what it wrote since `then`; returns how many bytes that
    was."""
    valkey.kill(signal.SIGKILL)
    lost = then.file.stat().st_size - then.size
    with then.file.open("r+b") as file:
        file.truncate(then.size)
    valkey.start()
    return lost


CUTS = {
    "XTRIM to nothing": "redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)",
    "XTRIM to ten": "redis.call('XTRIM', KEYS[1], 'MAXLEN', 10)",
    "XDEL of every second": (
        "for i = 1, #before, 2 do redis.call('XDEL', KEYS[1], before[i][1]) end"
    ),
    "DEL": "redis.call('DEL', KEYS[1])",
}
"""What somebody may do to the audit stream by hand."""
_CUT = """
local before = redis.call('XRANGE', KEYS[1], '-', '+')
{how}
return {{before, redis.call('XRANGE', KEYS[1], '-', '+')}}
"""


def cut(valkey: Server, how: str) -> list[Record]:
    """Take entries off the audit stream; returns the records that were in them."""
    with client(valkey) as admin:
        # one step, or what comes meanwhile goes too and nobody knows
        said: Any = admin.eval(_CUT.format(how=CUTS[how]), 1, layout.audit_key(0))
    before, left = said
    kept = {entry for entry, _ in left}
    return [
        record
        for entry, fields in before
        if entry not in kept
        for blob in layout.blobs(fields)
        for record in decode_records(blob)
    ]
