"""Checks of a running product by what Redis holds: clocks, memory, processes, policy sets,
backlogs, entries without an owner. Read-only.

`sluice doctor` makes them, and the pages, whose Redis user may ask for all of it. Each check
returns (state, sentence) pairs, none if all is well; a new check is a method of `Health` and a line
in `Health.checks`. Blocking; imports the Redis library, which no gateway loads.
"""

import time
from collections.abc import Callable
from typing import Any, cast

import redis

from settings.config import Config
from settings.retention import AGREE_S
from settings.time_spans import span
from streams import fitness, heartbeats, layout
from streams.clock import WARN_S
from streams.gateways import gateway_faults, live_gateways

BEHIND_S = 5.0
"""A record entry older than this is not on its way, it waits."""
WATCH_S = 1.5
NAMED = 3

Found = list[tuple[str, str]]


class Health:
    """One look at a running product. Raises redis.RedisError when Redis goes away meanwhile.

    `judged`: does a policy ask judges? `ops`: the user to whom everything is open, for who may not
    make a check; empty: then it is not mentioned. `watch_s`: how long a backlog is looked at; 0:
    once.
    """

    def __init__(
        self,
        config: Config,
        client: redis.Redis,
        *,
        judged: bool,
        ops: str,
        watch_s: float | None = None,
    ) -> None:
        self.config, self.limits = config, config.limits
        self._redis, self._judged, self._ops = client, judged, ops
        self._watch_s = WATCH_S if watch_s is None else watch_s
        self._shards = range(config.shards)

    def checks(self) -> list[tuple[str, Callable[[], Found]]]:
        """Every check by name; one that the user may not make says so."""
        return [(name, self._allowed(check)) for name, check in self._every().items()]

    def _every(self) -> dict[str, Callable[[], Found]]:
        return {
            "clock": self.clock,
            "memory": self.memory,
            "gateways": self.gateways,
            "workers": self.workers,
            "policy sets": self.sets,
            "backlog": self.backlog,
            "record": self.record,
            "pending entries": self.pending,
        }

    def _allowed(self, check: Callable[[], Found]) -> Callable[[], Found]:
        def guarded() -> Found:
            try:
                return check()
            except redis.exceptions.NoPermissionError:
                if not self._ops:
                    return []
                return [
                    (
                        "warning",
                        (
                            f"this Redis user may not check that: run the doctor as {self._ops}"
                            " (deploy/redis/users.acl.in)"
                        ),
                    )
                ]

        return guarded

    def _now_ms(self) -> int:
        return layout.time_ms(cast(tuple[int, int], self._redis.time()))

    # --- surroundings ---

    def clock(self) -> Found:
        """Redis' clock against ours."""
        before, began = time.time(), time.monotonic()
        theirs = self._now_ms() / 1000
        way_s = time.monotonic() - began
        return clock_faults("Redis", theirs - before - way_s / 2, way_s / 2)

    def memory(self) -> Found:
        """How full Redis is."""
        info = cast(dict[str, Any], self._redis.info())
        findings: Found = []
        if (share := fitness.memory_share(info)) > self.limits.memory_share:
            sentence = (
                f"Redis uses {share:.0%} of its memory, new calls are refused past"
                f" {self.limits.memory_share:.0%}"
            )
            findings.append(("failed", f"{sentence}: see backlog and keys, or give it more memory"))
        clients, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
        if most and clients > 0.8 * most:
            findings.append(
                (
                    "warning",
                    f"Redis has {clients} of at most {most} connections: raise `maxclients`",
                )
            )
        return findings

    # --- processes ---

    def _present(self) -> dict[str, set[str]]:
        """Names of the living processes by role."""
        return heartbeats.parse(
            self._now_ms(), cast(dict[bytes, bytes], self._redis.hgetall(layout.WORKERS_KEY))
        ).live

    def gateways(self) -> Found:
        """Which gateways live, and does each hear its calls' answers?"""
        return gateway_faults(
            cast(dict[bytes, bytes], self._redis.hgetall(layout.GATEWAYS_KEY)), self._now_ms()
        )

    def workers(self) -> Found:
        """Is somebody there for each role that the configuration needs?"""
        if any(
            "refuses writes" in fault
            for fault in fitness.faults_of(cast(dict[str, Any], self._redis.info()))
        ):
            return [
                (
                    "failed",
                    (
                        "no process can write heartbeats while Redis refuses writes: what to do"
                        " about that is said above"
                    ),
                )
            ]
        present = self._present()
        findings: Found = []
        for who, needed, what in (
            ("policy worker", True, "calls get 503"),
            ("audit writer", True, "the record stays in Redis and tool calls are blocked"),
            ("judge worker", self._judged, "judged tool calls are blocked at their deadline"),
        ):
            role = who.partition(" ")[0]
            if needed and not present.get(role):
                findings.append(
                    ("failed", f"no {who} is running, so {what}: start `sluice worker {role}`")
                )
        findings += [("warning", said) for said in heartbeats.resting_models(present)]
        return findings

    def sets(self) -> Found:
        """Do gateways and policy workers have one policy set? Calls begin under those that their
        gateway names alone."""
        gateways, present = self._named_sets(), self._present()
        workers = {
            name: policy_set
            for policy_set, _, name in (shown.partition(":") for shown in present.get("set", set()))
            if policy_set
        }
        findings: Found = []
        for name, (gateway_set, *accepted) in gateways.items():
            if workers and not {gateway_set, *accepted} & set(workers.values()):
                sentence = (
                    f"no policy worker has the policy set {gateway_set} of the gateway {name}, so its calls"
                    " get 503"
                )
                findings.append(
                    ("failed", f"{sentence}: start workers with its configuration and policies")
                )
            if accepted:
                sentence = (
                    f"calls of the gateway {name}, whose policy set is {gateway_set}, may begin under"
                    f" {', '.join(accepted)} too"
                )
                findings.append(
                    (
                        "warning",
                        f"{sentence}: take that out of accept_policy_sets when the change is over",
                    )
                )
        if len({gateway_set for gateway_set, *_ in gateways.values()}) > 1:
            listing = "; ".join(
                f"{name}: {gateway_set}"
                for name, (gateway_set, *_) in sorted(gateways.items())[:NAMED]
            )
            findings.append(
                (
                    "warning",
                    (
                        f"gateways have different policy sets ({listing}): give all the same"
                        " configuration and policies"
                    ),
                )
            )
        wanted = {policy_set for named in gateways.values() for policy_set in named}
        strays = [
            f"{name}: {policy_set}"
            for name, policy_set in sorted(workers.items())
            if gateways and policy_set not in wanted
        ]
        if strays:
            sentence = (
                "policy workers take no calls, as no gateway names their policy set"
                f" ({'; '.join(strays[:NAMED])})"
            )
            findings.append(
                (
                    "warning",
                    f"{sentence}: start them again with the gateways' configuration and policies",
                )
            )
        return findings or [("ok", ", ".join(sorted(wanted)))]

    def _named_sets(self) -> dict[str, list[str]]:
        """The policy sets that each living gateway names, its own first. What one that has stopped
        named stays in Redis for a while."""
        sets_by_gateway = {}
        for name in sorted(
            live_gateways(
                cast(dict[bytes, bytes], self._redis.hgetall(layout.GATEWAYS_KEY)), self._now_ms()
            )
        ):
            if value := cast(bytes | None, self._redis.get(layout.sets_key(name))):
                sets_by_gateway[name] = value.decode().split()
        return sets_by_gateway

    # --- streams ---

    def _audit_depths(self) -> list[tuple[int, float]]:
        """Entries on each audit stream, and the age of the oldest in seconds."""
        depths, now = [], self._now_ms()
        for shard in self._shards:
            key = layout.audit_key(shard)
            depth = cast(int, self._redis.xlen(key))
            oldest = (
                cast(dict[str, Any], self._redis.xinfo_stream(key))["first-entry"]
                if depth
                else None
            )
            depths.append((depth, (now - _ms(oldest[0])) / 1000 if oldest else 0.0))
        return depths

    def backlog(self) -> Found:
        """Do records, calls and questions wait? Looked at twice, as a backlog that shrinks is no
        fault."""
        before = self._audit_depths()
        time.sleep(self._watch_s)
        findings: Found = []
        for shard, ((was, _), (depth, age_s)) in enumerate(
            zip(before, self._audit_depths(), strict=True)
        ):
            sentence = (
                f"records of shard {shard} wait for Postgres ({depth:,}, the oldest for"
                f" {age_s:.0f} s)"
            )
            if depth >= self.limits.backlog:
                findings.append(
                    (
                        "failed",
                        (
                            f"{sentence}; new calls are refused: start more audit writers, or see why"
                            " Postgres is slow"
                        ),
                    )
                )
            elif age_s > BEHIND_S and not self._watch_s:
                findings.append(("warning", f"{sentence}: see the audit writers' log and Postgres"))
            elif age_s > BEHIND_S and depth >= was:
                findings.append(
                    (
                        "failed",
                        (
                            f"{sentence}, and they do not become fewer ({was:,} before): see the audit"
                            " writers' log and Postgres"
                        ),
                    )
                )
            elif age_s > BEHIND_S:
                findings.append(("warning", f"{sentence}; they become fewer ({was:,} before)"))
        return findings + self._waiting_calls() + self._waiting_questions()

    def _waiting_calls(self) -> Found:
        findings: Found = []
        for shard in self._shards:
            key, now = layout.dispatch_key(shard), self._now_ms()
            for group in self._groups(key):
                after = group["last-delivered-id"]
                first = cast(list[Any], self._redis.xrange(key, f"({after.decode()}", "+", count=1))
                if first and (age_s := (now - _ms(first[0][0])) / 1000) > self.limits.claim_s:
                    sentence = (
                        f"calls of shard {shard} wait for {age_s:.0f} s and no policy worker takes"
                        " them"
                    )
                    findings.append(("failed", f"{sentence}: start more policy workers"))
        return findings

    def _waiting_questions(self) -> Found:
        first = cast(list[Any], self._redis.zrange(layout.JUDGE_QUEUE, 0, 0, withscores=True))
        age_s = self._now_ms() / 1000 - first[0][1] / 1000 if first else 0.0
        if age_s > self.limits.judge_s:
            return [
                (
                    "failed",
                    (
                        f"the oldest question to a judge is {age_s:.0f} s old: start more judge"
                        " workers"
                    ),
                )
            ]
        return []

    def _groups(self, key: str) -> list[dict[str, Any]]:
        try:
            return cast(list[dict[str, Any]], self._redis.xinfo_groups(key))
        except redis.exceptions.NoPermissionError:
            raise
        except redis.ResponseError:
            return []  # no such stream yet

    def record(self) -> Found:
        """Have records gone away that nobody committed?"""
        findings: Found = []
        for shard in self._shards:
            key = layout.audit_key(shard)
            trimmed = cast(bytes | None, self._redis.get(layout.trimmed_key(shard)))
            if trimmed is None or not self._groups(key):
                continue
            stream = cast(dict[str, Any], self._redis.xinfo_stream(key))
            missing = stream["entries-added"] - stream["length"] - int(trimmed)
            if missing:
                cut = f"{missing:,} audit entries of shard {shard} were removed"
                sentence = (
                    cut if missing > 0 else f"the audit entries of shard {shard} were removed"
                )
                findings.append(
                    (
                        "failed",
                        (
                            f"{sentence} from Redis before they were in Postgres: see who else may"
                            " write there"
                        ),
                    )
                )
        return findings

    def pending(self) -> Found:
        """Do entries belong to processes that are gone, for longer than a takeover takes?"""
        present = self._present()
        streams = [
            (layout.dispatch_key(s), "policy", 3 * self.limits.lease_s) for s in self._shards
        ]
        streams += [(layout.audit_key(s), "audit", 20.0) for s in self._shards]
        findings: Found = []
        for key, role, patience_s in streams:
            for group in self._groups(key):
                for consumer in cast(
                    list[dict[str, Any]], self._redis.xinfo_consumers(key, group["name"])
                ):
                    name, pending, idle_s = (
                        consumer["name"].decode(),
                        consumer["pending"],
                        consumer["idle"] / 1000,
                    )
                    if pending and name not in present.get(role, set()) and idle_s > patience_s:
                        sentence = (
                            f"entries of {key} ({pending:,}) belong to the worker {name}, last"
                            f" active {idle_s:.0f} s ago"
                        )
                        findings.append(
                            ("failed", f"{sentence}: start a worker, which takes them over")
                        )
        return findings


def _ms(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])


def clock_faults(whose: str, offset_s: float, unsure_s: float) -> Found:
    """Report a clock that is `offset_s` ahead of ours. `unsure_s` is the part of it that the round
    trip may explain."""
    if abs(offset_s) - unsure_s <= WARN_S:
        return []
    how = "ahead of" if offset_s > 0 else "behind"
    what = f"the clock of {whose} is {span(abs(offset_s))} {how} this machine's"
    stays = ", and no old rows are deleted" if abs(offset_s) > AGREE_S else ""
    return [
        (
            "failed",
            f"{what}, so times and the order of calls on record are wrong{stays}: run NTP on both",
        )
    ]
