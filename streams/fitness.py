"""Is a Redis fit to hold calls and records? Read from its INFO; asked before a start, by `sluice
doctor` and by /ready. Pure."""

from collections.abc import Mapping

MIN_VERSION = (7, 0)
LOADS_FREELY = (9, 1, 2)
"""From this Valkey on the append-only file is loaded whatever the user `default` may do. Others
load it with the rights of that user, and drop each transaction in it, and so each script, with a
command that `default` may not run."""


def faults_of(info: Mapping[str, object]) -> list[str]:
    """Return what is wrong for good, each as what follows "Redis": what it does, what may come of
    it, what to do."""
    faults = []
    version = str(info.get("redis_version", "0"))
    if _numbers(version) < MIN_VERSION:
        faults.append(f"is version {version}: Sluice needs Redis 7.0 or Valkey 8 or later")
    if not int(str(info.get("aof_enabled", 0))):
        faults.append(
            "keeps no append-only file, so a restart would lose calls: set `appendonly yes`"
        )
    elif str(info.get("aof_last_write_status", "ok")) != "ok":
        faults.append(
            "cannot write its append-only file and refuses writes: make room on its disk, then see"
            " its log"
        )
    if str(info.get("role", "master")) != "master":
        faults.append("is a replica, which refuses writes: let SLUICE_REDIS_URL name its primary")
    # reported only where `min-replicas-to-write` asks for some
    if str(info.get("min_slaves_good_slaves", "")) == "0":
        faults.append(
            "has no replica that keeps up and refuses writes: bring one back, or set"
            " `min-replicas-to-write 0`"
        )
    policy = str(info.get("maxmemory_policy", ""))
    if policy != "noeviction":
        faults.append(
            f"evicts keys ({policy}), so calls and records could vanish: set `maxmemory-policy"
            " noeviction`"
        )
    return faults


def loads_freely(info: Mapping[str, object]) -> bool:
    """Does it load its append-only file without asking what `default` may do?"""
    return _numbers(str(info.get("valkey_version", "0"))) >= LOADS_FREELY


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def warnings_of(info: Mapping[str, object]) -> list[str]:
    """Return what will be wrong if nobody looks, each as what follows "Redis"."""
    warnings = []
    if str(info.get("aof_last_bgrewrite_status", "ok")) != "ok":
        warnings.append(
            "could not rewrite its append-only file, which grows until its disk is full: make room"
            " there, then `BGREWRITEAOF`"
        )
    if str(info.get("rdb_last_bgsave_status", "ok")) != "ok":
        warnings.append(
            "could not write its last snapshot: make room on its disk, then see its log"
        )
    return warnings


def key_bytes(info: Mapping[str, object], share: float, *, without_bound: int) -> int:
    """Return how many bytes one API key may have in a Redis that takes new calls up to a `share` of
    its memory: as many as it leaves to others, so that a key alone has half. `without_bound`: where
    Redis has none."""
    most = int(int(str(info.get("maxmemory", 0))) * share)
    return (
        max(0, min(most // 2, most - int(str(info.get("used_memory", 0)))))
        if most
        else without_bound
    )


def memory_share(info: Mapping[str, object]) -> float:
    """Return the share of its memory bound that a Redis uses, 0 where it has none."""
    most = int(str(info.get("maxmemory", 0)))
    return int(str(info.get("used_memory", 0))) / most if most else 0.0
