"""File descriptors: how many this process may open, and how many calls and connections they allow.

A call takes two descriptors: its client's connection and its upstream's. Without a free one the
kernel accepts a client's connection and closes it silently, and no upstream can be reached. So a
gateway refuses new calls while it can still answer.
"""

import resource

from settings.config import Config

OWN = 48
"""Descriptors that are neither clients nor upstreams: 18 to 32 and one for each shard, and some to
refuse clients past the limit."""
_UNLIMITED = 2**31


def raise_limit() -> None:
    """Raise the soft limit, 1,024 in most shells and services, to the hard one, which is what the
    operator allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # some systems say that there is no limit, and then take no such number
            return


def limit() -> int:
    """How many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def reserved(config: Config) -> int:
    """How many of them are for none of the clients."""
    return OWN + config.shards


def most_calls(config: Config) -> int:
    """How many calls there are descriptors for."""
    return max(1, (limit() - reserved(config)) // 2)


def shortage(config: Config) -> str:
    """Say what is wrong where there are fewer descriptors than calls could need, else nothing. Also
    of a process that is no gateway, if its limit was raised as a gateway's is."""
    needed, available = 2 * config.limits.open_calls + reserved(config), limit()
    if needed <= available:
        return ""
    most = most_calls(config)
    return (
        f"{available:,} file descriptors are enough for {most:,} open calls, and limits.open_calls is"
        f" {config.limits.open_calls:,}: raise the hard limit (ulimit -Hn, LimitNOFILE=) to"
        f" {needed:,} or more, or set open_calls to {most:,}"
    )
