"""Which gateway and which key an agent gets: from SLUICE_URL and SLUICE_KEY, else from the `sluice
up` that runs here.

An agent gets its own key with the role client, created on first use and stored in the data
directory: never a key that reads the record.
"""

import asyncio
import getpass
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from db.keys import KeyStore
from protocol.errors import InvalidRequest, PipelineError
from sluice.agents.agents import Agent, Pointed
from sluice.errors import SettingsError, StartError, Unavailable
from sluice.private_files import read_private, write_private
from sluice.sentences import wrapped
from sluice.settings import RunningUp, Settings, load_settings, running_up, with_embedded

FOLDER = "agents"
"""In the data directory: a file a key."""
WAIT_S, ASK_S = 5.0, 120.0
_NOBODY = "ffffffff-ffff-7fff-bfff-ffffffffffff"
"""The id of a call that never exists: it gets a not-found answer if the key may read the record."""
_MOST_NAMES = 20
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find(agent: Agent, *, model: str = "") -> Pointed:
    """Return what the agent is pointed at; its key is made where it has none. Raises StartError."""
    settings = load_settings()
    url, key = os.environ.get("SLUICE_URL", "").rstrip("/"), os.environ.get("SLUICE_KEY", "")
    up = None if url else running(settings)
    if not url and up is None:
        raise SettingsError(
            f"no `sluice up` runs on {settings.data_dir.resolve()}: start it, say where it keeps"
            " its data with SLUICE_DATA_DIR, or name a gateway with SLUICE_URL and a key with"
            " SLUICE_KEY"
        )
    if not url and up is not None:
        url = up[1].url
    if urlsplit(url).scheme not in ("http", "https"):
        raise SettingsError("SLUICE_URL must start with http:// or https://")
    _ready(url)
    name = f"{agent.name if agent.name != 'any' else 'agent'}-{_user()}"
    if not key:
        if up is None:
            raise SettingsError(
                f"SLUICE_KEY is not set: make a key with `sluice keys create --name {name} --role"
                " client`"
            )
        name, key = _kept(up[0], url, name)
    else:
        _check(url, key)
        name = ""
    model_name = model or _model(url, key, agent)
    return Pointed(url=url, key=key, model=model_name, key_name=name)


def ask(
    url: str,
    path: str,
    key: str = "",
    body: Mapping[str, Any] | None = None,
    *,
    is_patient: bool = False,
) -> tuple[int, Message, Any]:
    """Send one request; return the status, the headers and the decoded body, None where that is no
    JSON. `is_patient`: the answer may take its time, as of the record. Raises Unavailable."""
    headers = {
        "user-agent": "sluice-connect",
        **({"authorization": f"Bearer {key}"} if key else {}),
    }
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["content-type"] = "application/json"
    opener = (
        _NO_PROXY
        if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
        else urllib.request.build_opener()
    )
    try:
        with opener.open(
            urllib.request.Request(url + path, data, headers),
            timeout=ASK_S if is_patient or data is not None else WAIT_S,
        ) as answer:
            return answer.status, answer.headers, _decoded(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, _decoded(error.read())
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(
            f"no gateway answers at {url} ({reason}): start it, or correct SLUICE_URL"
        ) from None


def message(body: Any) -> str:
    """Return the sentence of an error's body, in whichever dialect."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def running(settings: Settings) -> tuple[Path, RunningUp] | None:
    """The `sluice up` of the data directory; where none is named, also that of the clone in which
    this command is installed."""
    folders = [settings.data_dir]
    if "SLUICE_DATA_DIR" not in os.environ:
        folders.append(Path(sys.prefix).parent / ".sluice")
    for folder in folders:
        up = running_up(settings.model_copy(update={"data_dir": folder, "database_url": ""}))
        if up is not None and up.url:
            return folder, up
    return None


def _ready(url: str) -> None:
    status, _, body = ask(url, "/ready")
    if status != 200:
        why = body.get("why") if isinstance(body, dict) else ""
        raise Unavailable(
            f"the gateway at {url} is not ready{f': {why}' if why else f' ({status})'}"
        )


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "user"
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:40] or "user"


def _kept(data_dir: Path, url: str, name: str) -> tuple[str, str]:
    """The name and text of the key that is kept for an agent, made where there is none that
    works."""
    folder = data_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(folder.glob("*.key")):
            is_ours = re.fullmatch(rf"{re.escape(name)}(-\d+)?", path.stem)
            if is_ours and (key := read_private(path)) and ask(url, "/v1/models", key)[0] == 200:
                _check(url, key)
                return path.stem, key
        name, key = asyncio.run(_create(data_dir, name))
        path = folder / f"{name}.key"
        write_private(path, key, lasting=True)
        made = (
            f"sluice: made the key {name} (role client) and put it into {path}; `sluice keys revoke"
            f" {name}` ends it"
        )
        print(wrapped(made, sys.stderr), file=sys.stderr)  # noqa: T201
    except OSError as error:
        raise StartError(f"{error.filename or folder}: {error.strerror}") from None
    return name, key


async def _create(data_dir: Path, name: str) -> tuple[str, str]:
    """Make a key; where the name is taken, with a number behind it."""
    settings = with_embedded(
        load_settings(data_dir=data_dir).model_copy(update={"database_url": ""})
    )
    store = KeyStore.open(settings.database_url)
    try:
        for number in range(1, _MOST_NAMES):
            tried = name if number == 1 else f"{name}-{number}"
            try:
                return tried, await store.create(tried, roles=("client",))
            except InvalidRequest:
                continue
    except PipelineError as error:
        raise Unavailable(error.message) from None
    finally:
        await store.close()
    raise SettingsError(
        f"{_MOST_NAMES} keys are named {name}: revoke some with `sluice keys revoke`, or set"
        " SLUICE_KEY"
    )


def _check(url: str, key: str) -> None:
    """Raises SettingsError for a key that an agent must not have, or that does not work."""
    status, _, body = ask(url, "/v1/models", key)
    if status != 200:
        raise SettingsError(
            f"the gateway at {url} does not take SLUICE_KEY: {message(body) or status}"
        )
    if ask(url, f"/audit/calls/{_NOBODY}", key)[0] not in (401, 403):
        raise SettingsError(
            "SLUICE_KEY may read the record, which an agent must not: make one with `sluice keys"
            " create --name NAME --role client`, or leave SLUICE_KEY unset"
        )


def _model(url: str, key: str, agent: Agent) -> str:
    """The model to configure in the agent; empty where the gateway has the model that it requests
    by default."""
    if agent.asks_for and ask(url, f"/v1/models/{quote(agent.asks_for, safe='')}", key)[0] == 200:
        return ""
    _, _, body = ask(url, "/v1/models", key)
    listed = (
        [str(entry.get("id", "")) for entry in body.get("data", [])]
        if isinstance(body, dict)
        else []
    )
    real = [name for name in listed if name and not name.startswith("demo")]
    return next(iter([*real, *listed]), "")
