"""Style sheets and the script. Their addresses hold what is in them, so that browsers may keep them
for ever."""

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from pages.links import ROOT

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file that pages use."""

    path: str
    media_type: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return all of them by the path under which they are served."""
    return {
        asset.path: asset for asset in map(_read, sorted(file.name for file in _folder().iterdir()))
    }


def address(name: str) -> str:
    """Return where a file is served: the name of a file that is not there raises
    FileNotFoundError."""
    return _read(name).path


@cache
def _read(name: str) -> Asset:
    body = _folder().joinpath(name).read_bytes()
    return Asset(
        f"{ROOT}/static/{hashlib.sha256(body).hexdigest()[:16]}/{name}",
        _MEDIA_TYPES[name.rpartition(".")[2]],
        body,
    )


def _folder() -> Traversable:
    return resources.files("pages").joinpath("static")
