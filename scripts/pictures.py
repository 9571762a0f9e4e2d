"""Pictures of the pages for README.md and docs/run/pages.md: `python -m scripts.pictures --url
http://127.0.0.1:8080 --key KEY`.

With `--prometheus http://127.0.0.1:9090`, one that has the figures of some minutes, it takes the
picture of docs/run/metrics.md there, and no other.

It sends the demo model a few calls through that gateway, and takes pictures of what the pages show
of them. Needs Playwright and Debian's Chromium (`make browser-test` installs both). Start the
product on an empty data directory, so that the pictures show these calls alone.
"""

import argparse
import json
import shutil
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import httpx2 as httpx
from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "sluice.json"
MAX_BYTES = 200_000
SIZE = {"width": 1280, "height": 800}
_COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}}
_TOOL = {
    "type": "function",
    "function": {"name": "bash", "description": "Runs a command.", "parameters": _COMMAND},
}
_WORDS = ("hello", "list the files", "think about it", "delete everything with rm -rf")
_PAGES = {
    "call": "/debug/calls/{blocked}",
    "overview": "/debug",
    "tool-calls": "/debug/tool-calls",
    "wire": "/debug/calls/{blocked}/wire",
    "session": "/debug/sessions/{key}/first",
    "policy": "/debug/policies/default",
    "evidence": "/debug/calls/{blocked}/blocks/1/evidence",
}
"""The first is README's."""
_PANELS = ("Calls a second", "Verdicts a second")
"""Panels of the dashboard whose queries Prometheus draws."""


def main(given: list[str] | None = None) -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--prometheus", help="its URL; takes the picture of the metrics alone")
    parser.add_argument("--key", help="an API key with the roles client and auditor")
    parser.add_argument("--name", default="dev", help="the name of that key")
    asked = parser.parse_args(given)
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium on the PATH")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
        if asked.prometheus:
            _take_graphs(page, asked.prometheus)
        elif asked.key:
            _take_pages(page, asked)
        else:
            sys.exit("give --key, or --prometheus")
        browser.close()
    large = [file.name for file in FOLDER.glob("*.png") if file.stat().st_size > MAX_BYTES]
    if large:
        sys.exit(f"over {MAX_BYTES:,} bytes: {', '.join(large)}")


def _take_pages(page: Page, asked: argparse.Namespace) -> None:
    said: list[dict[str, Any]] = []
    ids = [_send(asked.url, asked.key, said, words) for words in _WORDS]
    page.goto(f"{asked.url}/debug/login")
    page.fill("#key", asked.key)
    page.click("main button")
    # until it is proven: a seal comes two seconds after the end of a call, a checkpoint over it
    # within a minute
    page.goto(asked.url + _PAGES["evidence"].format(blocked=ids[-1]))
    while "no checkpoint yet" in page.inner_text("main") or "not sealed" in page.inner_text("main"):
        page.wait_for_timeout(2000)
        page.reload()
    for name, path in _PAGES.items():
        _take(
            page,
            asked.url + path.format(blocked=ids[-1], key=asked.name),
            FOLDER / f"{name}.png",
        )


def _take_graphs(page: Page, url: str) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = {panel["title"]: [t["expr"] for t in panel.get("targets", [])] for panel in panels}
    shown = [queries[title][0] for title in _PANELS]
    fields = {
        f"g{n}.{name}": value
        for n, query in enumerate(shown)
        for name, value in (("expr", query), ("tab", "0"), ("range_input", "5m"))
    }
    page.goto(f"{url}/classic/graph?{urllib.parse.urlencode(fields)}")
    page.wait_for_function(
        f"document.querySelectorAll('.rickshaw_graph svg').length >= {len(shown)}"
    )
    page.add_style_tag(content="nav { display: none !important }")
    page.screenshot(path=FOLDER / "metrics.png", full_page=True)


def _send(url: str, key: str, said: list[dict[str, Any]], words: str) -> str:
    """Say something in the conversation, as an agent does; `said` is what was said so far. Returns
    the call's id."""
    said.append({"role": "user", "content": words})
    headers = {"authorization": f"Bearer {key}", "x-sluice-session": "first"}
    body = {"model": "demo", "tools": [_TOOL], "messages": said, "stream": words is _WORDS[-1]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    if not body["stream"]:
        message = answer.json()["choices"][0]["message"]
        said.append(message)
        said += [
            {"role": "tool", "tool_call_id": call["id"], "content": "README.md  notes.txt"}
            for call in message.get("tool_calls") or ()
        ]
    return str(answer.headers["x-sluice-call-id"])


def _take(page: Page, url: str, file: Path) -> None:
    answer = page.goto(url)
    if answer is None or answer.status != 200:
        raise SystemExit(f"{url} answers {answer and answer.status}")
    page.screenshot(path=file)


if __name__ == "__main__":
    main()
