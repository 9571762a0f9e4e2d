"""The policy set: a name for everything that decides about calls, under which a gateway lets them
begin.

Gateways do not run policy code, so the name is computed from the configuration and the bytes of the
sources. Policy workers compute theirs in the same way and take only calls whose START names it.
Pure: reading the files is the work of `sluice.policy_set_name`.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from settings.config import Config


def set_id(config: Config, sources: Iterable[bytes]) -> str:
    """Return the name of a policy set, 12 hex digits: its series with all options, what sessions
    read, and the source that decides."""
    series = {
        name: [[step.use, step.on_block, step.options] for step in steps]
        for name, steps in config.policies.items()
    }
    digest = hashlib.sha256(
        json.dumps([read_by_sessions(config), series], sort_keys=True, default=str).encode()
    )
    for source in sources:
        # each by its own hash: where one ends and the next begins counts too
        digest.update(hashlib.sha256(source).digest())
    return digest.hexdigest()[:12]


def read_by_sessions(config: Config) -> dict[str, Any]:
    """The settings by which sessions decide and write. Excluded are keys and their rights, which
    come with each call, and URLs, secrets, timers and capacities: they decide nothing about content
    and differ between hosts and over time.
    """
    return {
        "unknown": sorted(set(config.unknown)),
        "betas": sorted(set(config.betas)),
        "text_calls": config.text_calls,
        "notices": config.notices,
        "private_urls": config.private_urls,
        "durability": config.durability,
        "event_bytes": config.limits.event_bytes,
        "dispatches": config.limits.dispatches,
        "exact_keys": sorted(set(config.exact_keys)),
        "exact_integers": sorted(set(config.exact_integers)),
        # in their order: the first match counts
        "models": [
            *config.demo_models,
            *(route.model_dump(mode="json", exclude={"price"}) for route in config.models),
        ],
        "upstreams": {
            n: [u.dialect, u.native_tools, u.guided] for n, u in config.upstreams.items()
        },
    }


def module_of(use: str) -> str:
    """Return the module that a policy names, of the forms `module:Class` and `module.Class`; empty
    for the built-in ones."""
    return use.rpartition(":" if ":" in use else ".")[0]


def places_of(module: str, search_path: Sequence[str]) -> list[PurePath]:
    """Where the file of a user's own policy may be, the first that is there being it; failing all,
    it is an installed module."""
    return [PurePath(folder, *module.split(".")).with_suffix(".py") for folder in search_path]
