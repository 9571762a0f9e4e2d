"""Reserves what a call may take of the budgets of its key, team and session, before its request
goes upstream. Redis decides, in one script: a call gets all it asks for, or nothing.

An account that is not in Redis is made of the record by an audit writer; the call waits for that.
Must not know: what calls took; workers and audit writers settle that.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from gateway.call.calls import OpenCall
from gateway.quotas.requests import RequestQuota, limit_headers
from protocol.errors import Forbidden, Overloaded, PipelineError, RateLimited, StreamConnectionLost
from protocol.usage.estimates import BYTES_PER_TOKEN
from protocol.usage.prices import UNBOUNDED_OUTPUT, dollars
from settings.budgets import LIMITS, Budget, limits_of
from settings.config import Key
from streams import budget_scripts, layout
from streams.budget_scripts import BudgetAccount
from streams.connection import Connection, RedisError
from streams.layout import Dispatch, Start

COLD_S, _LOOK_S = 3.0, 0.1
"""How long a call waits for an account, and how often it looks."""
LEASE_S = 3600
"""How long after the latest end of a call what it holds is kept, should its end never come."""
LONG_S = 60
"""Clients that wait by themselves do not wait longer."""


class _Limit(NamedTuple):
    name: str
    whose: str
    most: int
    until_ms: int
    """When its window ends; 0: never."""


class Quotas:
    """All that bounds the calls of one gateway."""

    def __init__(self, redis: Connection, teams: Mapping[str, Budget], call_s: float) -> None:
        self.requests = RequestQuota(redis, teams)
        self.budgets = Budgets(redis, teams, call_s)


class Budgets:
    """The budgets of one gateway. `teams`: those of teams, by name."""

    def __init__(self, redis: Connection, teams: Mapping[str, Budget], call_s: float) -> None:
        self._redis, self._lease_ms = redis, int((call_s + LEASE_S) * 1000)
        self._teams = {team: limits_of(budget) for team, budget in teams.items()}

    def of(self, key: Key, start: Start) -> "CallBudget | None":
        """Return what limits a call, None if nothing does."""
        if start.endpoint == "count_tokens":
            return None
        began = layout.began_ms(start.call_id)
        subjects = [(f"k{key.id}", "this key", key.limits, False)]
        if key.team is not None:
            team = self._teams.get(key.team, {})
            subjects.append((f"t{key.team}", f"the team {key.team!r}", team, False))
        if start.session:
            subject = f"s{key.id}{start.session}"
            subjects.append((subject, "this session", key.limits, True))
        accounts, limits = [], []
        windows = _windows(began)
        for subject, whose, its, is_session in subjects:
            mine = {n: m for n, m in its.items() if (LIMITS[n][0] == "session") is is_session}
            if not mine:
                continue
            fields = []
            for name, most in mine.items():
                window, is_money = LIMITS[name]
                start_ms, until_ms = windows[window]
                letter = _LETTERS[window]
                fields.append((f"{letter}{start_ms}{'u' if is_money else 't'}", most))
                limits.append(_Limit(name, whose, most, until_ms))
            of_kind = ("session",) if is_session else ("minute", "day", "month")
            names = tuple(f"{_LETTERS[each]}{windows[each][0]}" for each in of_kind)
            accounts.append(BudgetAccount(subject, names, tuple(fields)))
        if not accounts:
            return None
        return CallBudget(self._redis, accounts, limits, began + self._lease_ms)


class CallBudget:
    """What limits one call. `take` may be called again: where the answer of the request before
    began, it raises what the call holds."""

    def __init__(
        self,
        redis: Connection,
        accounts: list[BudgetAccount],
        limits: list[_Limit],
        expires_ms: int,
    ) -> None:
        self._redis, self._accounts, self._limits = redis, accounts, limits
        self._expires_ms = expires_ms
        self._before = self._latest = (0, 0)
        """Tokens and nano-dollars that it holds for requests whose answers began, and for the
        latest request besides."""
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        """Of its answer: what is left."""

    async def takes(self, call: OpenCall, dispatch: Dispatch) -> bool:
        """Reserve for a request that is about to go upstream; False: the call has failed, for its
        budget does not allow it."""
        try:
            await self.take(call, dispatch)
        except PipelineError as error:
            call.fail(error)
            return False
        return True

    def begins(self) -> None:
        """Take that the answer to the latest request begins: it will be charged."""
        tokens, nano = self._latest
        self._before, self._latest = (self._before[0] + tokens, self._before[1] + nano), (0, 0)

    async def take(self, call: OpenCall, dispatch: Dispatch) -> None:
        """Raises RateLimited where a limit has too little left, Forbidden where money is limited
        and nobody knows the price, Overloaded where nobody can say now."""
        output, *rates = dispatch.reserve or (UNBOUNDED_OUTPUT, -1, -1)
        asked = -int(-len(call.body) / BYTES_PER_TOKEN // 1)
        latest = asked + output, max(-(-(asked * rates[0] + output * rates[1]) // 1000), 0)
        tokens, nano = self._before[0] + latest[0], self._before[1] + latest[1]
        if rates[0] < 0 and any(LIMITS[limit.name][1] for limit in self._limits):
            if dispatch.reserve is None:
                # a worker of an older version: a newer one may have the next request
                raise _unknown()
            raise Forbidden(
                "the price of this model is not known, and what this key may spend is limited: name"
                " its price under `prices` in the gateway's configuration",
                code="unknown_price",
            )
        outcome, *rest = await self._ask(call.id, tokens, nano)
        if outcome == b"FULL":
            place = sum(len(each.limits) for each in self._accounts[: int(rest[0])]) + int(rest[1])
            raise self._refusal(call, self._limits[place], int(rest[2]), tokens, nano)
        self._latest = latest
        left = [*zip(self._limits, map(int, rest), strict=True)]
        self.headers = _packed(_headers(call, left))

    async def _ask(self, call_id: str, tokens: int, nano: int) -> list[bytes]:
        until = time.monotonic() + COLD_S
        try:
            while True:
                answer = await budget_scripts.take(
                    self._redis,
                    call_id,
                    self._accounts,
                    tokens=tokens,
                    nano=nano,
                    expires_ms=self._expires_ms,
                )
                if answer[0] != b"COLD":
                    return answer
                if time.monotonic() > until:
                    break
                await asyncio.sleep(_LOOK_S)
        except (StreamConnectionLost, RedisError):
            pass
        raise _unknown()

    def _refusal(
        self, call: OpenCall, limit: _Limit, left: int, tokens: int, nano: int
    ) -> RateLimited:
        is_money = LIMITS[limit.name][1]
        wants = _amount(nano if is_money else tokens, is_money=is_money)
        most, has = (_amount(each, is_money=is_money) for each in (limit.most, left))
        wait_s = max(-(-limit.until_ms // 1000) - int(time.time()), 1)
        is_hopeless = (nano if is_money else tokens) > limit.most
        if is_hopeless:
            then = "ask for less: it never has more"
        elif limit.until_ms:
            opens = datetime.fromtimestamp(limit.until_ms / 1000, UTC)
            then = f"it opens again at {opens:%Y-%m-%dT%H:%M:%SZ}"
        else:
            then = "begin another session"
        message = (
            f"{limit.name} of {limit.whose} is {most}, of which {has} is left, and this request may"
            f" take {wants}; {then}"
        )
        waits = limit.until_ms and not is_hopeless
        error = RateLimited(
            message, code="budget_exceeded", retry_after_s=wait_s if waits else None
        )
        headers = {"x-sluice-limit": limit.name, **_headers(call, [(limit, left)])}
        if not waits or wait_s > LONG_S:
            headers["x-should-retry"] = "false"
        error.headers = self.headers = _packed(headers)
        return error


def _unknown() -> Overloaded:
    return Overloaded(
        "Sluice cannot say what is left of this key's budget; try again in 5 seconds",
        code="budget_unavailable",
        retry_after_s=5,
    )


_LETTERS = {"minute": "m", "day": "d", "month": "M", "session": "s"}


def _windows(at_ms: int) -> dict[str, tuple[int, int]]:
    """Return when the windows of a moment begin and end, in ms."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = month.replace(year=at.year + at.month // 12, month=at.month % 12 + 1)
    minute, day = (at_ms - at_ms % length for length in (60_000, 86_400_000))
    return {
        "minute": (minute, minute + 60_000),
        "day": (day, day + 86_400_000),
        "month": (int(month.timestamp()) * 1000, int(following.timestamp()) * 1000),
        "session": (0, 0),
    }


def _amount(amount: int, *, is_money: bool) -> str:
    """Return tokens or nano-dollars for people."""
    return dollars(amount) if is_money else f"{amount} tokens"


def _packed(headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode(), value.encode()) for name, value in headers.items())


def _headers(call: OpenCall, left: list[tuple[_Limit, int]]) -> dict[str, str]:
    """Return the headers of the tightest limit of tokens, and of that of money."""
    headers = dict[str, str]()
    for kind, is_money in (("tokens", False), ("usd", True)):
        of_kind = [(rest, limit) for limit, rest in left if LIMITS[limit.name][1] is is_money]
        if of_kind:
            rest, limit = min(of_kind)
            most, has = (
                _amount(each, is_money=is_money).strip("$").removesuffix(" tokens")
                for each in (limit.most, rest)
            )
            wait_ms = limit.until_ms - int(time.time() * 1000) if limit.until_ms else None
            headers |= limit_headers(call.dialect, kind, most, has, wait_ms)
    return headers
