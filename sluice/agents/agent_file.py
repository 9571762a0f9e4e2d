"""An agent's own settings file: our settings are put into it, and taken out so that every byte is
as before.

Next to the file are a copy of the original (`NAME.before-sluice`) and a note (`NAME.sluice`) with
the hash of what was written. Only a file with that hash is restored: what somebody else wrote since
is not lost. JSON has no comments, so the hash decides, in all files; in YAML two marker lines also
show a person what is ours.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sluice.agents.agents import merged
from sluice.errors import SettingsError
from sluice.private_files import write_private

BEGIN = "# sluice: begin (sluice connect {name} --undo takes this out)"
END = "# sluice: end"
_MOST_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The file of the agent `name`. A link to it is followed. Methods raise SettingsError with what
    to do."""

    name: str
    path: Path

    @property
    def _real(self) -> Path:
        return self.path.resolve()

    @property
    def backup(self) -> Path:
        """What it was."""
        return self._beside("before-sluice")

    @property
    def note(self) -> Path:
        """What was written."""
        return self._beside("sluice")

    def _beside(self, suffix: str) -> Path:
        return self._real.with_name(f"{self._real.name}.{suffix}")

    def text(self, setting: Any, *, drops: Sequence[str] = ()) -> bytes:
        """Return what the file would hold. `drops` are names in `env` of JSON that go."""
        old = self._old()
        try:
            text = old.decode("utf-8")
            new = (
                _in_json(text, setting, drops)
                if self.path.suffix == ".json"
                else _in_yaml(text, setting, self.name)
            )
        except (UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError, RecursionError):
            kind = "JSON without comments" if self.path.suffix == ".json" else "YAML"
            raise SettingsError(
                f"{self.path} is not {kind}, so nothing is written: put in by hand what --print"
                " shows"
            ) from None
        except _Taken as error:
            raise SettingsError(
                f"{self.path} {error}, so nothing is written: take that out, or put in by hand what"
                " --print shows"
            ) from None
        return new.encode()

    def write(self, content: bytes) -> None:
        """Put `content`, made by `text`, in its place."""
        self._refuse_changed()
        with self._named_error():
            is_again = self.note.exists()
            was = self._read(self._real)
            real = self._real
            real.parent.mkdir(parents=True, exist_ok=True)
            note = (
                self._note()
                if is_again
                else {
                    "existed": was is not None,
                    "mode": real.stat().st_mode & 0o777 if was is not None else 0,
                }
            )
            if not is_again and was is not None:
                _put(self.backup, was)
            write_private(self.note, json.dumps({**note, "sha256": _hash(content)}), lasting=True)
            # it holds a key now: nobody else may read it
            _put(real, content)

    def undo(self) -> bool:
        """Put back what was there. False: nothing of ours is there."""
        with self._named_error():
            if not self.note.exists():
                return False
            self._refuse_changed()
            note, real = self._note(), self._real
            if note["existed"]:
                if self._read(real) != (was := self.backup.read_bytes()):
                    _put(real, was)
                real.chmod(note["mode"])
            else:
                real.unlink(missing_ok=True)
            self.note.unlink()
            self.backup.unlink(missing_ok=True)
        return True

    def _old(self) -> bytes:
        """What it was before anything of ours."""
        self._refuse_changed()
        with self._named_error():
            if self.note.exists():
                return self.backup.read_bytes() if self._note()["existed"] else b""
            return self._read(self._real) or b""

    def _refuse_changed(self) -> None:
        with self._named_error():
            if not self.note.exists():
                return
            now, note = self._read(self._real), self._note()
            was = self.backup.read_bytes() if note["existed"] else None
            if now != was and (now is None or _hash(now) != note["sha256"]):
                backup_hint = f"; what it was before is {self.backup}" if note["existed"] else ""
                raise SettingsError(
                    f"{self.path} was changed since Sluice wrote it, so it is left as it is: take"
                    f" Sluice's settings out by hand, then delete {self.note}{backup_hint}"
                )

    def _note(self) -> dict[str, Any]:
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            return {
                "existed": bool(note["existed"]),
                "mode": int(note["mode"]),
                "sha256": str(note["sha256"]),
            }
        except (ValueError, KeyError, TypeError):
            raise SettingsError(
                f"{self.note} is damaged: put {self.path} right by hand, then delete it"
            ) from None

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(content) > _MOST_BYTES:
            raise SettingsError(
                f"{path} is larger than {_MOST_BYTES:,} bytes: is that the agent's settings?"
            )
        return content

    @contextlib.contextmanager
    def _named_error(self) -> Any:
        try:
            yield
        except OSError as error:
            raise SettingsError(f"{error.filename or self.path}: {error.strerror}") from None


class _Taken(Exception):
    """Ours does not go into it as it is."""


def _in_json(text: str, setting: Any, drops: Sequence[str]) -> str:
    old = json.loads(text) if text.strip() else {}
    if not isinstance(old, dict):
        raise _Taken("holds no object")
    if isinstance(env := old.get("env"), dict):
        old["env"] = {name: value for name, value in env.items() if name not in drops}
    return json.dumps(merged(old, setting), indent=2, ensure_ascii=False) + "\n"


def _in_yaml(text: str, setting: Any, name: str) -> str:
    old = yaml.safe_load(text)
    if (
        isinstance(old, dict)
        and isinstance(setting, dict)
        and (both := [setting_name for setting_name in setting if setting_name in old])
    ):
        raise _Taken(f"sets {', '.join(both)} already")
    block = yaml.safe_dump(setting, sort_keys=False, allow_unicode=True)
    new = f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{BEGIN.format(name=name)}\n{block}{END}\n"
    meant = (
        setting
        if old is None
        else (
            old + setting
            if isinstance(old, list) and isinstance(setting, list)
            else merged(old, setting)
        )
    )
    if (old is not None and type(old) is not type(setting)) or yaml.safe_load(new) != meant:
        raise _Taken("is written so that nothing can stand behind it")
    return new


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _put(path: Path, content: bytes) -> None:
    """Whole or not at all, for its owner alone."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
