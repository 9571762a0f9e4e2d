"""The keys that `sluice up` makes at its first start and stores in the data directory, so that
clients survive a restart: one for clients and readers, and one for a person who approves what the
first one's calls ask for; and what they may do."""

import hashlib
import secrets
from pathlib import Path
from typing import get_args

from protocol.debug import Debug, Logger
from settings.config import Config, Key
from sluice.errors import SettingsError
from sluice.private_files import write_private

KEY_NAME, APPROVER_NAME = "sluice-up", "sluice-up-approver"
KEY_FILE, APPROVER_FILE = "key", "approver-key"
"""In the data directory."""
PREFIX = "sk-sluice-"
_RANDOM_BYTES = 32
_CHARS = len(PREFIX) + 43
"""How long a key that was made here is: 32 bytes are 43 characters of base64."""
MIN_CHARS = 20
"""How short one may be that somebody put there: a shorter one can be guessed."""


def own_key(data_dir: Path, name: str = KEY_FILE) -> str:
    """Return the text of a key, made where there is none. Raises SettingsError for a file that
    holds none, or a part of one."""
    path = data_dir / name
    try:
        text = path.read_bytes().strip()
    except FileNotFoundError:
        key = f"{PREFIX}{secrets.token_urlsafe(_RANDOM_BYTES)}"
        write_private(path, key, lasting=True)
        return key
    except OSError as error:
        raise SettingsError(f"the key file {path} cannot be read: {error.strerror}") from None
    if damage := _damage(text):
        raise SettingsError(
            f"the key file {path} {damage}: put the key back that clients have, or delete the file;"
            " the next start then makes a new key, which clients need"
        )
    return text.decode("ascii")


def _damage(text: bytes) -> str:
    """What is wrong with what the file holds; the text itself is not repeated."""
    if not text.strip(b"\0"):
        return "is empty"
    if not text.isascii() or not text.decode("ascii").isprintable() or b" " in text:
        return "is damaged: it holds more than the letters, digits and signs of one key"
    if text.startswith(PREFIX.encode()) and len(text) < _CHARS:
        return (
            f"is cut off: a key that begins with {PREFIX} and was made here has {_CHARS}"
            f" characters, and this one {len(text)}"
        )
    if len(text) < MIN_CHARS:
        return (
            f"holds a key of {len(text)} character{'s' if len(text) != 1 else ''}, which can be"
            f" guessed: it needs at least {MIN_CHARS}"
        )
    return ""


def own_policies(config: Config) -> list[str]:
    """Return what the key of `sluice up` may use: every series, `default` first where there is
    one."""
    return sorted(config.policies, key=lambda name: name != "default")


def with_keys(config: Config, key: str, approver: str) -> Config:
    """Return a configuration that has the keys of `sluice up` too."""
    may = tuple(own_policies(config))
    others = [k for k in config.keys if k.name not in (KEY_NAME, APPROVER_NAME)]
    client = Key(
        name=KEY_NAME, sha256=_digest(key), roles=("client", "auditor", "admin"), policies=may
    )
    person = Key(name=APPROVER_NAME, sha256=_digest(approver), roles=("approver",), policies=may)
    return config.model_copy(update={"keys": (*others, client, person)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def with_debug_logs(config: Config) -> Config:
    """Who starts without a configuration looks around: each call of the key of `sluice up` has all
    debug logs."""
    return config.model_copy(update={"debug": Debug(loggers=get_args(Logger), keys=(KEY_NAME,))})
