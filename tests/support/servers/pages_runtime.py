"""What the process of the pages starts with, without servers behind it."""

from typing import Any

from settings.config import Config, Key
from settings.pages import Pages
from settings.runtime import Runtime

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


def runtime(url: str = "unix:/nowhere", keys: tuple[Key, ...] = (), **pages: Any) -> Runtime:
    return Runtime(
        config=Config(pages=Pages(**pages), keys=keys),
        redis_url="",
        database_url=NOWHERE,
        pages_url=url,
    )
