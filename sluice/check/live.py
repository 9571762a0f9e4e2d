"""Checks of `sluice doctor` on a running product: those of `streams.health`, leaked keys and
rights. Read-only; the Redis user `sluice_ops` has the rights for all of it.

Each check returns (state, sentence) pairs, none if all is well; a new check is a method of `Live`
and a line in `Live._every`. Checks of the database are in `sluice.check.live_database`.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import redis

from settings.config import Config
from sluice.check.policy_check import expanded
from sluice.check.rights import FORBIDDEN, OPS, USERS
from streams import layout
from streams.health import NAMED, Found, Health

MOST_KEYS, SCAN_S = 500_000, 10.0


class LiveHealth(Health):
    """One check of a running product, including what only an operator may read. Raises
    redis.RedisError when Redis goes away meanwhile.

    `database_url` is for checks that compare Redis with the database; empty: there is none to
    compare with.
    """

    def __init__(self, config: Config, client: redis.Redis, database_url: str = "") -> None:
        judged = any(
            step.use in ("tool_judge", "text_judge")
            for steps in config.policies.values()
            for step in expanded(steps)
        )
        super().__init__(config, client, judged=judged, ops=OPS)
        self.database_url = database_url

    def _every(self) -> dict[str, Callable[[], Found]]:
        *first, last = super()._every().items()
        return dict([*first, ("keys with a TTL", self.keys), last, ("redis rights", self.rights)])

    # --- keys ---

    def keys(self) -> Found:
        """Keys that would stay for ever. Looked at twice: some get their TTL with the next
        command."""
        until, seen, cursor = time.monotonic() + SCAN_S, 0, 0
        suspects: list[bytes] = []
        lasting = {key.encode() for key in layout.lasting_keys(self.config.shards)}
        while True:
            cursor, batch = cast(tuple[int, list[bytes]], self._redis.scan(cursor, count=1000))
            ours = [
                key for key in batch if key.startswith((b"sluice:", b"arq:")) and key not in lasting
            ]
            suspects += self._without_ttl(ours)
            seen += len(batch)
            if not cursor or seen >= MOST_KEYS or time.monotonic() > until:
                break
        checks: Found = []
        if left := self._without_ttl(suspects):
            named = ", ".join(key.decode(errors="replace") for key in left[:NAMED])
            sentence = f"keys without a TTL would stay for ever ({len(left):,}: {named})"
            checks.append(("failed", f"{sentence}: see who wrote them, then delete them"))
        if cursor:
            checks.append(("warning", f"only the first {seen:,} keys were checked"))
        return checks

    def _without_ttl(self, keys: list[bytes]) -> list[bytes]:
        if not keys:
            return []
        with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.pttl(key)
            return [key for key, ttl in zip(keys, pipe.execute(), strict=True) if ttl == -1]

    # --- rights ---

    def rights(self) -> Found:
        """May the Redis user of a role do what would break a guarantee?"""
        checks: Found = []
        missing = []
        for role, user in (*USERS.items(), ("ops", OPS)):
            wide = self._may(user, role)
            if wide is None:
                missing.append(user)
            elif wide:
                sentence = (
                    f"the Redis user {user} may"
                    f" {', '.join(wide[:NAMED])}{' and more' if len(wide) > NAMED else ''}"
                )
                checks.append(
                    (
                        "failed",
                        f"{sentence}: give it the rights in deploy/redis/users.acl.in and no others",
                    )
                )
        if missing:
            sentence = (
                f"there is no Redis user {', '.join(missing)}: processes that share another"
                f" ({self._whoami()})"
            )
            checks.append(
                (
                    "warning",
                    f"{sentence} may do more than they need: make them with deploy/redis/redis-users",
                )
            )
        return checks

    def _whoami(self) -> str:
        name: Any = self._redis.acl_whoami()
        return name.decode() if isinstance(name, bytes) else str(name)

    def _may(self, user: str, role: str) -> list[str] | None:
        """What the user of a role may do and should not; None when there is no such user."""
        with self._redis.pipeline(transaction=False) as pipe:
            for command in FORBIDDEN[role]:
                pipe.execute_command("ACL", "DRYRUN", user, *command)  # type: ignore[no-untyped-call]
            answers = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, redis.exceptions.NoPermissionError):
                raise answer
            if isinstance(answer, Exception) and "not found" in str(answer):
                return None
        return [
            " ".join(c[:2])
            for c, reply in zip(FORBIDDEN[role], answers, strict=True)
            if reply in (b"OK", "OK", True)
        ]


def check_live(
    config: Config, client: redis.Redis, database_url: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Make every check; yields (what, `ok` or `warning` or `failed`, sentence)."""
    for name, check in LiveHealth(config, client, database_url).checks():
        for state, sentence in check() or [("ok", "")]:
            yield name, state, sentence
