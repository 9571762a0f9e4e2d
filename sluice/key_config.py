"""What `sluice keys` knows in addition to the table of keys: the gateways' configuration, and their
addresses.

A key of the configuration wins over a key of the same name in the table, so such names are refused
here. A policy that the configuration lacks is found when a key is created, not at its first call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import InvalidRequest
from settings.config import Config, Key
from settings.config_faults import did_you_mean
from sluice.errors import SettingsError
from sluice.settings import gateway_url, load_config, load_settings, running_up

NO_CONFIG = "name the configuration file with --config or SLUICE_CONFIG"


@dataclass(frozen=True, slots=True)
class KeyConfig:
    """The configuration, if known; otherwise its keys and policies are `None`, which refuses
    nothing."""

    config: Config | None
    place: str
    """How an error names it; where there is none, why not."""
    url: str
    """Where a gateway is, for a client on this machine."""
    is_up: bool = False
    """It is that of the `sluice up` that runs."""

    @property
    def keys(self) -> Sequence[Key]:
        """Its keys."""
        return self.config.keys if self.config is not None else ()

    def named(self, name: str) -> bool:
        """Has it a key of that name?"""
        return any(key.name == name for key in self.keys)

    def check_name(self, name: str) -> None:
        """Raise InvalidRequest for the name of a key that is in the configuration."""
        if self.named(name):
            message = (
                f"{name!r} is the name of a key in {self.place}, which wins over one in the table:"
                " take another name"
            )
            raise InvalidRequest(message, param="name")

    def check_revoked(self, name: str) -> None:
        """Raise InvalidRequest for a key of the configuration, which is no matter of the table."""
        if not self.named(name):
            return
        do = "take it out of that file and start the gateways again"
        if self.is_up and (file := _own_file(name)):
            do = (
                f"it is a key of `sluice up` itself: stop that, delete the file `{file}` in its data"
                " directory, and start it again"
            )
        raise InvalidRequest(
            f"{name!r} is a key in {self.place} and cannot be revoked in the table: {do}"
        )

    def check_policies(self, policies: Sequence[str]) -> None:
        """Raise InvalidRequest for a policy that the configuration has not."""
        known = list(self.config.policies) if self.config is not None else list(policies)
        for name in policies:
            if name not in known:
                there = (
                    f"there are {', '.join(map(repr, known))}"
                    if len(known) != 1
                    else f"there is {known[0]!r} alone"
                )
                raise InvalidRequest(
                    f"there is no policy {name!r} in {self.place}{did_you_mean(name, known)}"
                    f" ({there})",
                    param="policy",
                )


def key_config(config_path: Path | None) -> KeyConfig:
    """Return the configuration at `config_path`, else that of the running `sluice up`, else that of
    SLUICE_CONFIG.

    One that cannot be read is none: a key must be revoked also where somebody spoilt the file.
    Raises SettingsError for wrong settings.
    """
    settings = load_settings()
    up = running_up(settings)
    url = up.url if up is not None and up.url else gateway_url(settings.host, settings.port)
    is_up = up is not None and config_path is None
    path = up.config if up is not None and config_path is None else config_path or settings.config
    if path is None:
        return KeyConfig(
            None, f"keys and policies of a configuration file are not known here: {NO_CONFIG}", url
        )
    try:
        return KeyConfig(
            load_config(path),
            "the configuration of the running `sluice up`" if is_up else str(path),
            url,
            is_up,
        )
    except SettingsError as error:
        return KeyConfig(
            None, f"keys and policies of the configuration are not known here: {error}", url
        )


def _own_file(name: str) -> str:
    """The file of one of the keys that `sluice up` makes; empty for another name."""
    from sluice.up.own_key import APPROVER_FILE, APPROVER_NAME, KEY_FILE, KEY_NAME

    return {KEY_NAME: KEY_FILE, APPROVER_NAME: APPROVER_FILE}.get(name, "")
