"""The pages are killed again and again under a launcher: they come back, no half of a page looks
whole, and no stream notices."""

import contextlib
import os
import signal
import socket
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from sluice.processes import recall
from tests.support.clients.readers import Reader, request, words
from tests.support.servers.up import up
from tests.support.waiting import wait_for

KILLS = max(20, round(100 * float(os.environ.get("SLUICE_TEST_SHARE") or 1)))
WORDS = 250
AT_ONCE = (
    "import runpy, sys; from sluice.up import supervisor; supervisor.FIRST_PAUSE_S ="
    " supervisor.LONGEST_PAUSE_S = 0.01; sys.argv = sys.argv[3:]; runpy.run_module('sluice.cli',"
    " run_name='__main__')"
)
"""The launcher with pauses of a hundredth of a second: with its own, a hundred crashes take eight
minutes."""


def is_listening(path: Path) -> bool:
    """Does somebody accept connections there?"""
    with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
        link.connect(str(path))
        return True
    return False


def page(browser: httpx.Client, path: str) -> str:
    """Load a page; return what became of it. Raises AssertionError where a part of one came as a
    whole."""
    try:
        answer = browser.get(path)
    except httpx.TransportError:
        return "cut"
    assert answer.text.rstrip().endswith("</html>"), answer.text[-200:]
    assert answer.status_code == 200 or "The pages are unavailable" in answer.text, answer.text
    return str(answer.status_code)


@pytest.mark.case("G4")
@pytest.mark.timeout(120)
@pytest.mark.slow
def test_pages_killed_a_hundred_times_come_back_and_streams_notice_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp(
        "kills"
    )  # short: past 107 bytes the pages would not listen at a path
    data, became = folder / "data", Counter[str]()
    with up(
        data, folder, "--json", "--port", "0", before=(sys.executable, "-c", AT_ONCE)
    ) as launcher:
        ready = launcher.ready()
        told = data / "run" / "pages.json"
        browser = httpx.Client(
            base_url=ready["url"],
            timeout=20,
            headers={"origin": ready["url"], "accept": "text/html"},
        )
        wait_for(lambda: is_listening(data / "run" / "pages.sock"), what="pages", timeout_s=30)
        assert browser.post("/debug/login", data={"key": ready["key"]}).status_code == 303
        assert page(browser, "/debug/calls") == "200"

        def kill() -> None:
            pid = wait_for(lambda: recall(told), what="the pages' process is back", timeout_s=30)
            wait_for(
                lambda: is_listening(data / "run" / "pages.sock") or recall(told) != pid,
                what="it listens",
                timeout_s=30,
            )
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: recall(told) != pid, what="it is gone")

        def stream() -> Reader:
            return Reader(ready["url"], request(words(WORDS)), policy="default", key=ready["key"])

        with ThreadPoolExecutor(1) as pool:
            beside, loading = stream(), pool.submit(page, browser, "/debug/calls")
            # one is killed within an answer of which a part was sent
            with browser.stream("GET", "/debug/events") as events:
                pieces = events.iter_raw()
                assert b"data: " in next(pieces)
                kill()
                with pytest.raises(httpx.RemoteProtocolError):
                    list(pieces)
            for _ in range(KILLS - 1):
                kill()
                if loading.done():
                    became[loading.result()] += 1
                    loading = pool.submit(page, browser, "/debug/calls")
                if beside.whole:
                    assert beside.has_all(WORDS)
                    beside = stream()
            became[loading.result()] += 1
        beside.join(30)
        assert beside.has_all(WORDS), beside.failure
        assert became["503"] or became["cut"], became
        wait_for(
            lambda: page(browser, "/debug/calls") == "200",
            what="a page after the last",
            timeout_s=30,
        )
        assert ready["pids"]["gateway"] == [recall(data / "run" / "gateway.json")]
        browser.close()
        assert launcher.stop() == 0
    assert "pages was killed by SIGKILL: it is started again in 0.01 s" in launcher.said()
