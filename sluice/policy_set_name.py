"""Names the policy set of a configuration: reads the files that decide, and runs none of them
(docs/run/policies.md).

The set covers the source of Sluice's own policies, sessions and codecs, and the named file of each
policy of the user.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from settings.config import Config
from settings.policy_set import module_of, places_of, set_id
from sluice.errors import SettingsError

PACKAGES = ("policy", "protocol")
"""What decides about calls, and reads and writes them."""


def policy_set(config: Config, search_path: Sequence[str]) -> str:
    """Return the name of the set. Raises SettingsError where a policy of the user's own cannot be
    read here."""
    return set_id(config, [*_shipped(), *_own(config, search_path)])


@cache
def _shipped() -> tuple[bytes, ...]:
    """The source and data of our own packages: those that this process came with."""
    root = Path(__file__).resolve().parent.parent
    paths = [
        path
        for name in PACKAGES
        for end in ("*.py", "*.json", "*.yaml")
        for path in sorted((root / name).rglob(end))
    ]
    return tuple(path.read_bytes() for path in paths)


def _own(config: Config, search_path: Sequence[str]) -> Iterator[bytes]:
    uses = {
        module: step.use
        for steps in config.policies.values()
        for step in steps
        if (module := module_of(step.use))
    }
    for module, use in sorted(uses.items()):
        file = next(
            (path for path in map(Path, places_of(module, search_path)) if path.is_file()), None
        ) or _installed(module)
        try:
            if file is None:
                raise FileNotFoundError(
                    f"{module} is in no folder of policies and is not installed"
                )
            yield file.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError(
                f"the policy {use!r} cannot be read ({reason}), so there is no name for the policies"
                " under which calls begin: gateways need its file as policy workers do; mount its"
                " folder here too and name it in SLUICE_POLICY_PATH, or install its package"
            ) from None


def _installed(module: str) -> Path | None:
    """The file of an installed module; it is looked for, and neither it nor a package above it is
    run."""
    first, *submodules = module.split(".")
    spec: ModuleSpec | None = None
    with contextlib.suppress(ImportError, ValueError):
        spec = find_spec(first)
    for number in range(len(submodules)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(
            ".".join([first, *submodules[: number + 1]]), spec.submodule_search_locations
        )
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None
