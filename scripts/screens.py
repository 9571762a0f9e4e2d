"""Write docs/run/screens.md: what each audit command shows at 80 columns, of a
fixed set of calls to the demo model.

Starts a product of its own with servers of its own, in a folder that goes again. Run it when a
table changes: python -m scripts.screens Ids, times and the like are replaced by fixed ones, so that
a test can compare the page with what it would be now.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from sluice import cli

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "run" / "screens.md"
WIDTH = 80
WAIT_S = 60.0
KEYS = {"agent-ci": "sk-sluice-screens-ci", "kim": "sk-sluice-screens-kim"}
_RULES = {
    "use": "tool_rules",
    "deny": [{"name": "no-deletes", "tool": "*", "argument_matches": r"\brm\b.*\s-r"}],
}
_JUDGE = {"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}
_CONTROL = {
    "use": "control",
    "monitors": [{"use": "model", "model": "demo-judge"}],
    "threshold": 0.95,
    "audit": {"rate": 0.01, "at": 0.5, "budget": {"count": 50, "per": "day"}},
}
CONFIG: dict[str, Any] = {
    "policies": {"default": [_RULES, _JUDGE], "judged": [_JUDGE], "controlled": [_CONTROL]},
    "keys": [
        {
            "name": name,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "roles": ["client", "auditor"],
            "policies": ["default", "judged", "controlled"],
        }
        for name, text in KEYS.items()
    ],
    "demo": True,
    "limits": {"checkpoint_s": 1},
}
_BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
_WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_CALLS: tuple[tuple[str, str, str, dict[str, str], bool], ...] = (
    ("agent-ci", "chat", "list the files", {"x-sluice-session": "nightly-build-4711"}, False),
    (
        "agent-ci",
        "chat",
        "delete everything with rm -rf /var/lib",
        {"x-sluice-session": "nightly-build-4711"},
        False,
    ),
    ("kim", "messages", "what is the weather in Paris and Tokyo", {}, False),
    ("kim", "chat", "delete everything with rm -rf ~/old", {"x-sluice-policy": "judged"}, False),
    ("kim", "messages", "fail with 503", {}, False),
    (
        "kim",
        "chat",
        "delete everything with rm -rf ~/cache",
        {"x-sluice-policy": "controlled"},
        False,
    ),
    ("agent-ci", "chat", "hello", {"x-sluice-session": "nightly-build-4711"}, False),
)
"""Whose key, the dialect, what the user says, headers, and whether the answer is streamed: the
pieces of one that is are not always the same."""
_REVIEW = (
    "audit",
    "review",
    "QUEUED",
    "--label",
    "attack",
    "--note",
    "nobody asked for it",
    "--auditor",
    "kim",
)
_REDACT = ("audit", "redact", "BLOCKED", "--reason", "asked by the user")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("audit", "calls"),
    ("audit", "tool-calls"),
    ("audit", "judge-blocks"),
    ("audit", "counts"),
    ("audit", "show", "BLOCKED"),
    ("audit", "review"),
    ("audit", "review", "QUEUED"),
    _REVIEW,
    ("audit", "export", "--output", "record.jsonl"),
    ("audit", "verify"),
    ("audit", "checkpoint"),
    ("audit", "public-key"),
    _REDACT,
    (*_REDACT, "--yes"),
    ("audit", "drop", "--before", "90d", "--reason", "90 days are over"),
    ("keys", "list"),
)
_FIXED: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"(?<!\d)\d\d:\d\d:\d\d(?!\d)(\.\d{3}Z)?": (
        lambda found: "10:26:38" + (".000Z" if found[1] else "")
    ),
    r"(?<!\d)20\d\d-\d\d-\d\d(?!\d)": "2026-01-31",
    r"(?<![-0-9a-f])[0-9a-f]{12}(?![0-9a-f])": "0123456789ab",
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{43,}=*": "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=",
    r"\d+ checkpoints?(, \d+ signed)?": (
        lambda found: "1 checkpoint" + (", 1 signed" if found[1] else "")
    ),
    r'"created": ?\d+': '"created":1769855198',
    r"--cursor \S+": "--cursor lKVjYWxsc6RkZXNjxBABogVu20t5a5SwosfK4WoAAA",
    r"(sluice/|sluice-up\S* +)[0-9a-f]{16}": r"\g<1>0123456789abcdef",
    r"chatcmpl-[0-9a-f]{24}": "chatcmpl-0123456789abcdef01234567",
}
"""What is not the same each time, and what stands in its place."""
_HEAD = """# Screens

What each audit command shows in a terminal of 80 columns, for a few calls to the demo model. Made by
`python -m scripts.screens`, with fixed ids and times. Into a pipe, lists are a header line and tab-separated values.
"""


def main() -> int:
    """Write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    output = parser.parse_args().output
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="sluice-screens-") as made:
        output.write_text(make_page(Path(made)))
    return 0


def make_page(folder: Path) -> str:
    """Run a product in an empty folder, make the calls, and return the page. This process must be
    in UTC."""
    with _product(folder) as (url, data_dir), contextlib.chdir(folder):
        for call in _CALLS:
            _ask(url, *call)
        return _page(data_dir, _wait(data_dir))


@contextmanager
def _product(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run `sluice up`; gives its address and data directory."""
    config, data_dir = folder / "sluice.yaml", folder / "data"
    config.write_text(yaml.safe_dump(CONFIG))
    command = [
        sys.executable,
        "-m",
        "sluice.cli",
        "up",
        "--port",
        "0",
        "--config",
        str(config),
        "--data-dir",
        str(data_dir),
        "--json",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(data_dir),
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], data_dir
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)


def _environment(data_dir: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return (
        kept
        | {
            "SLUICE_DATA_DIR": str(data_dir),
            "SLUICE_SEAL_KEY": _seal_key(),
            "TZ": "UTC",
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT),
        }
        | more
    )


@cache
def _seal_key() -> str:
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        .decode()
    )


def _ask(
    url: str, key: str, endpoint: str, words: str, headers: dict[str, str], is_streamed: bool
) -> None:
    body: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": words}],
        "stream": is_streamed,
    }
    if endpoint == "chat":
        path, body["tools"] = "/v1/chat/completions", [_BASH]
        body["messages"].insert(0, {"role": "system", "content": "You look after a build server."})
    else:
        path, body["tools"], body["max_tokens"] = "/v1/messages", [_WEATHER], 200
    httpx.post(
        url + path,
        json=body,
        headers={"authorization": f"Bearer {KEYS[key]}", "user-agent": "agent/1.0", **headers},
        timeout=WAIT_S,
    )


def _wait(data_dir: Path) -> list[dict[str, Any]]:
    """Wait until all calls have ended on record and are under a checkpoint; returns them, the
    oldest first."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        calls = json.loads(_run(data_dir, ["audit", "calls", "--order", "asc", "--json"]))["items"]
        newest = json.loads(_run(data_dir, ["audit", "checkpoint", "--json"]))
        if all(call["state"] != "ACTIVE" for call in calls) and len(calls) == len(
            _CALLS
        ) == newest.get("size"):
            return list(calls)
        time.sleep(0.2)
    raise TimeoutError("the calls did not come onto record")


def _run(data_dir: Path, arguments: Sequence[str], **environment: str) -> str:
    """Run a command in this process; returns what it says, on a terminal where the environment
    names one."""
    _add_commands()
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SLUICE_")}
    told = CliRunner().invoke(
        cli.app, list(arguments), env=env | _environment(data_dir, **environment)
    )
    if told.exception is not None and not isinstance(told.exception, SystemExit):
        raise told.exception
    return told.output


def _run_apart(data_dir: Path, arguments: Sequence[str], **environment: str) -> str:
    """Run a command that asks, which is answered with no."""
    command, env = (
        [sys.executable, "-m", "sluice.cli", *arguments],
        _environment(data_dir, **environment),
    )
    here, there = pty.openpty()
    try:
        os.write(here, b"n\n")
        with subprocess.Popen(
            command,
            env=env,
            stdin=there,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            return process.communicate(timeout=WAIT_S)[0]
    finally:
        os.close(here)
        os.close(there)


@cache
def _add_commands() -> None:
    cli._add_groups([])


def _page(data_dir: Path, calls: Sequence[dict[str, Any]]) -> str:
    blocked = next(call for call in calls if call["session"] and call["tool_calls_blocked"])
    named = {
        "BLOCKED": blocked,
        "JUDGED": next(call for call in calls if call["policy"] == "judged"),
        "QUEUED": next(call for call in calls if call["policy"] == "controlled"),
    }
    parts = [_HEAD]
    for command in COMMANDS:
        words = [str(named[word]["call_id"])[:13] if word in named else word for word in command]
        line = " ".join(f"'{word}'" if " " in word else word for word in words)
        parts.append(f"## `sluice {line}`\n")
        run = _run_apart if command == _REDACT else _run
        shown = run(
            data_dir,
            words,
            COLUMNS=str(WIDTH),
            _SLUICE_TERMINAL="1",
            TERM="xterm",
            PYTHONUNBUFFERED="1",
        )
        lines = [
            part.rstrip() for part in shown.replace("[y/N]: ", "[y/N]: n\n").strip("\n").split("\n")
        ]
        parts.append(f"```text\n$ sluice {line}\n" + "\n".join(lines) + "\n```\n")
    return _fixed("\n".join(parts), calls)


def _fixed(page: str, calls: Sequence[dict[str, Any]]) -> str:
    """The page with fixed ids, times, hashes and names."""
    for number, call in enumerate(calls):
        fixed = f"01a202c9-{0x70C8 + 0x21 * number:04x}-7000-8000-{number:012}"
        page = (
            page.replace(call["call_id"], fixed)
            .replace(call["call_id"][:13], fixed[:13])
            .replace(call["gateway"], "gateway-1")
        )
    for pattern, text in _FIXED.items():
        page = re.sub(pattern, text, page)
    return page


if __name__ == "__main__":
    sys.exit(main())
