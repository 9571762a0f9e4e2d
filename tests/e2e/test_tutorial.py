"""README.md and docs/use/tutorial.md work as pasted: every command runs, and prints what the page
shows below it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.servers.ports import free_port
from tests.support.servers.up import ENVIRONMENT, ROOT, up

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = re.compile(r"make up(?: CONFIG=(\S+))?\n")
INSTALLS = re.compile(r"^(?:python3 -m venv|\S+/pip install) .*\n", re.MULTILINE)
"""The environment of the tests stands in for the one that the tutorial makes."""
NOTICE = (
    "[Sluice blocked the tool call 'bash': rule 'deletes' of the policy 'default' (destructive). It"
    " would delete the root folder. It was not executed."
)


class Reader:
    """Somebody who pastes the commands of a page in a clone."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.folder, self._running, self._port = folder, running, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        for name, target in (
            ("examples", ROOT / "examples"),
            (".venv", sys.prefix),
            (".cache/agent", sys.prefix),
        ):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(target)

    def start(self, config: str | None = None) -> None:
        """Stop what runs, and start it with a file or without."""
        self._running.close()
        options = [] if config is None else ["--config", str(self.folder / config)]
        started = self._running.enter_context(
            up(self.folder / ".sluice", self.folder, "--port", str(self._port), *options)
        )
        assert "Sluice is ready" in started.printed()

    def paste(self, commands: str) -> str:
        """Run commands in the shell, which keeps its variables, and return what they print."""
        text = INSTALLS.sub("", commands).replace("http://127.0.0.1:8080", self.url)
        script = f"[ ! -f shell ] || . ./shell\nset -e\n{text}\nexport -p > shell\n"
        environment = ENVIRONMENT | {
            "HOME": str(self.folder),
            "COLUMNS": "300",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def follow(self, page: Path) -> str:
        """Do what a page says, and hold what it shows against what is printed; return all that
        is."""
        printed: str | None = None
        everything = ""
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if started := START.fullmatch(text):
                self.start(started[1])
            elif language == "sh":
                printed = self.paste(text)
                everything += printed
            elif not language and printed is not None:
                missing = [
                    part
                    for line in text.splitlines()
                    for part in line.split("...")
                    if part not in printed
                ]
                assert not missing, (missing, printed)
                printed = None
        return everything

    def mark_wrong(self) -> str:
        """Press the button in the row of the newest block by a judge, and return what the list of
        wrong ones exports."""
        key = (self.folder / ".sluice" / "key").read_text().strip()
        with httpx.Client(
            base_url=self.url, headers={"origin": self.url, "accept": "text/html"}, timeout=20
        ) as browser:
            assert browser.post("/debug/login", data={"key": key, "next": ""}).status_code == 303
            found = browser.get("/debug/judge-blocks").text
            fields = {
                name: value
                for name in ("token", "wrong")
                for value in re.findall(rf'name="{name}" value="([^"]+)"', found)[-1:]
            }
            assert browser.post("/debug/labels", data=fields).status_code == 303
            return browser.get("/debug/judge-blocks?label=wrong&format=jsonl").text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with ExitStack() as running:
        yield Reader(tmp_path, running)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_tutorial_works_as_pasted(reader: Reader) -> None:
    printed = reader.follow(ROOT / "docs" / "use" / "tutorial.md")
    assert (
        printed.count(NOTICE) == 2
        and "a judge would be asked: demo-judge" in printed
        and printed.rstrip().endswith("done")
    )
    assert '"label":"wrong"' in reader.mark_wrong().replace(": ", ":")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_what_the_readme_says_works_as_pasted(reader: Reader) -> None:
    page = ROOT / "README.md"
    reader.start()
    assert NOTICE in reader.paste(
        "".join(text for language, text in BLOCK.findall(page.read_text()) if language == "sh")
    )
    blocks = {
        language: text
        for language, text in BLOCK.findall(page.read_text())
        if language in ("python", "yaml")
    }
    reader.paste(f"{sys.executable} -c '{blocks['python']}'")
    (reader.folder / "sluice.yaml").write_text(blocks["yaml"])
    assert "1 upstream, 1 route" in reader.paste(".venv/bin/sluice check sluice.yaml")
