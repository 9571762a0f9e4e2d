"""Pages as a browser gets them: a process of its own over HTTP, and somebody who is logged in."""

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from sluice.up.embedded import free_port

KEY = "sk-sluice-bench-pages"
START_S = 60.0


class Reader:
    """A login with `key` at `url`, over one connection. Not for two threads."""

    def __init__(self, url: str, key: str) -> None:
        self._place = urllib.parse.urlsplit(url)
        self._line = HTTPConnection(self._place.netloc, timeout=60)
        self._head = self._log_in(url, key)

    def _log_in(self, url: str, key: str) -> dict[str, str]:
        form = urllib.parse.urlencode({"key": key})
        head = {"content-type": "application/x-www-form-urlencoded", "origin": url}
        self._line.request("POST", "/debug/login", form, head)
        answer = self._line.getresponse()
        answer.read()
        cookie = answer.getheader("set-cookie", "")
        assert answer.status == 303 and cookie, f"no login: {answer.status}"
        return {"cookie": cookie.partition(";")[0], "accept": "text/html"}

    def get(self, path: str) -> tuple[float, bytes]:
        """Return how long the first byte took, in ms, and the page."""
        began = time.perf_counter()
        self._line.request("GET", path, headers=self._head)
        answer = self._line.getresponse()
        took = 1000 * (time.perf_counter() - began)
        body = answer.read()
        if answer.status in (302, 303):
            return self.get(answer.getheader("location", ""))
        assert answer.status in (200, 404), (path, answer.status, body[-300:])
        return took, body

    def close(self) -> None:
        """Hang up."""
        self._line.close()


@contextmanager
def served(folder: Path, database_url: str, redis_url: str, **config: Any) -> Iterator[str]:
    """Run `sluice pages` for browsers and lend its URL; `KEY` reads there."""
    port = free_port()
    file = folder / "pages.json"
    key = {"name": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "roles": ["admin"]}
    file.write_text(
        json.dumps({"keys": [key], "pages": {"on_gateway": False, "port": port}, **config})
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")
    }
    environment |= {"SLUICE_DATABASE_URL": database_url, "SLUICE_REDIS_URL": redis_url}
    command = [sys.executable, "-m", "sluice.cli", "pages", "--config", str(file)]
    url = f"http://127.0.0.1:{port}"
    with (
        (folder / "pages.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            until = time.monotonic() + START_S
            while not _answers(url):
                assert process.poll() is None and time.monotonic() < until, (
                    folder / "pages.log"
                ).read_text()[-2000:]
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"{url}/debug/login", timeout=60
        ):
            return True
    except (urllib.error.URLError, OSError):
        return False
