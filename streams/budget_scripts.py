"""The scripts of budgets: what calls reserve, what they took, and what the record says of it.

An *account* is what a key, a team or a session used; all lie in shard 00. `streams/lua/budget_take`
says what is in one. An account that is not there is made of the record, by an audit writer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from protocol.records import EndRecord
from streams import layout
from streams.connection import Argument, Connection

ACCOUNT_TTL_MS = 3 * 86_400_000
"""How long after its last call an account is kept. After that it is made of the record again."""


SESSION_TTL_MS = 2 * 3_600_000
"""The same of a session's: a client can name as many as it likes."""


def ttl_ms(subject: str) -> int:
    """Return how long an account is kept after its last call."""
    return SESSION_TTL_MS if subject[0] == "s" else ACCOUNT_TTL_MS


class BudgetAccount(NamedTuple):
    """Of one subject: what limits it, each a field of its account and the most that may be in
    it."""

    subject: str
    """`k` and a key's id, `t` and a team, or `s`, a key's id and a session."""
    windows: tuple[str, ...]
    """Letter and beginning (Unix ms) of the minute, day and month; of a session `s0`."""
    limits: tuple[tuple[str, int], ...]

    @property
    def is_counted(self) -> bool:
        """Must the record be asked what was used before? Minutes begin with nothing."""
        return any(field[0] != "m" for field, _ in self.limits)


class Held(NamedTuple):
    """An account as it was at one moment."""

    gen: str
    used: dict[str, int]
    """By field."""
    leases: dict[str, tuple[int, int, tuple[str, ...]]]
    """By call: tokens, nano-dollars, windows."""


def take(
    redis: Connection,
    call_id: str,
    accounts: Sequence[BudgetAccount],
    *,
    tokens: int,
    nano: int,
    expires_ms: int,
) -> asyncio.Future[list[bytes]]:
    """Reserve for a call, of all accounts or of none. Gives OK and what is left of each limit;
    FULL, of which account, which limit, and what that has left; COLD: an account is being made."""
    keys = [
        layout.budget_lease_key(call_id),
        layout.budgets_cold_key(),
        layout.budget_accounts_key(),
    ]
    windows = sorted({window for account in accounts for window in account.windows})
    args: list[Argument] = [call_id, tokens, nano, expires_ms, ACCOUNT_TTL_MS]
    args += [layout.budget_channel(), len(windows), *windows]
    for account in accounts:
        keys.append(layout.account_key(account.subject))
        args += [int(account.is_counted), ttl_ms(account.subject), len(account.limits)]
        for limit in account.limits:
            args += limit
    return redis.script("budget_take", keys, args)


def settle(redis: Connection, end: EndRecord, *, is_stored: bool) -> asyncio.Future[int]:
    """Put what a call took in place of what it reserved. `is_stored`: the record has it."""
    nano = (end.cost_nanousd or 0) + (end.judge_nanousd or 0)
    return redis.script(
        "budget_settle",
        [layout.budget_lease_key(end.call_id)],
        [end.call_id, end.charged_tokens or 0, nano, int(is_stored)],
    )


async def look(redis: Connection, account: str, *, past_ms: int) -> Held:
    """Return what is in the account of this key, without windows that began before `past_ms`."""
    answer = await redis.script("budget_look", [account], [past_ms])
    values = dict(zip(map(bytes.decode, answer[::2]), map(bytes.decode, answer[1::2]), strict=True))
    gen = values.pop("gen", "")
    leases = {}
    for field in [field for field in values if field[0] == "l"]:
        tokens, nano, _, *windows = values.pop(field).split(" ")
        leases[field[1:]] = int(tokens), int(nano), tuple(windows)
    return Held(gen, {field: int(value) for field, value in values.items()}, leases)


def correct(
    redis: Connection, account: str, held: Held, gen: str, by: Mapping[str, int]
) -> asyncio.Future[int]:
    """Add to the fields of an account, unless another writer did since it was looked at."""
    subject = account.removeprefix(layout.account_key(""))
    args: list[Argument] = [held.gen, gen, ttl_ms(subject)]
    for field, more in by.items():
        args += [field, more]
    return redis.script("budget_correct", [account, layout.budget_accounts_key()], args)
