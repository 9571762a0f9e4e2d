"""The style sheet and the script. Their names hold what is in them, so that browsers may keep them for ever."""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from pages.links import ROOT

_FILES = {"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file that pages use."""

    path: str
    media_type: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return all of them by the path under which they are served."""
    return {asset.path: asset for asset in map(_read, _FILES)}


def address(name: str) -> str:
    """Return where a file is served: the name of a file that is not there raises KeyError."""
    return _read(name).path


@cache
def _read(name: str) -> Asset:
    media_type = _FILES[name]
    body = resources.files("pages").joinpath("static", name).read_bytes()
    return Asset(f"{ROOT}/static/{hashlib.sha256(body).hexdigest()[:16]}/{name}", media_type, body)
