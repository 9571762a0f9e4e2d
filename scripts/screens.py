"""Write docs/screens.md: what each audit command shows at 80 and at 140 columns, of a fixed set of calls to the demo model.

Starts a product of its own with servers of its own, in a folder that goes again. Run it when a table changes: python -m scripts.screens
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import yaml

PAGE = Path(__file__).parents[1] / "docs" / "screens.md"
WIDTHS = (80, 140)
WAIT_S = 60.0
KEYS = {"agent-ci": "sk-sluice-screens-ci", "kim": "sk-sluice-screens-kim"}
_RULES = {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": r"\brm\b.*\s-r"}]}
_JUDGE = {"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}
CONFIG: dict[str, Any] = {
    "policies": {"default": [_RULES, _JUDGE], "judged": [_JUDGE]},
    "keys": [
        {
            "name": name,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "roles": ["client", "auditor"],
            "policies": ["default", "judged"],
        }
        for name, text in KEYS.items()
    ],
    "demo": True,
}
_BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}
_WEATHER = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
_CALLS: tuple[tuple[str, str, str, dict[str, str], bool], ...] = (
    ("agent-ci", "chat", "list the files", {"x-sluice-session": "nightly-build-4711"}, False),
    ("agent-ci", "chat", "delete everything with rm -rf /var/lib", {"x-sluice-session": "nightly-build-4711"}, True),
    ("kim", "messages", "what is the weather in Paris and Tokyo", {}, False),
    ("kim", "chat", "delete everything with rm -rf ~/old", {"x-sluice-policy": "judged"}, False),
    ("kim", "messages", "fail with 503", {}, False),
    ("agent-ci", "chat", "hello", {"x-sluice-session": "nightly-build-4711"}, True),
)
"""Whose key, the dialect, what the user says, headers, and whether the answer is streamed."""
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("audit", "calls"), ("audit", "calls", "--state", "failed", "--since", "1h"), ("audit", "tool-calls"), ("audit", "judge-blocks"),
    ("audit", "counts"), ("audit", "counts", "--by", "key,name,verdict", "--since", "today"), ("audit", "show", "BLOCKED"),
    ("audit", "show", "BLOCKED", "--raw"), ("audit", "tool-calls", "--name", "no-such-tool"), ("audit", "redact", "BLOCKED", "--reason",
    "asked by the user", "--dry-run"), ("audit", "verify"), ("keys", "list"), ("doctor",),
)  # fmt: skip
_HEAD = """# Screens

What each audit command shows in a terminal of 80 columns and in one of 140, of a few calls to the demo model. Made by
`python -m scripts.screens`, with new calls each time. Into a pipe the same commands write a header line and tab-separated values.
"""


def main() -> int:
    """Write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory(prefix="sluice-screens-") as made, _product(Path(made)) as (url, data_dir):
        for call in _CALLS:
            _ask(url, *call)
        blocked = _wait(data_dir)
        output.write_text(_page(data_dir, blocked))
    return 0


@contextmanager
def _product(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run `sluice up`; gives its address and data directory."""
    config, data_dir = folder / "sluice.yaml", folder / "data"
    config.write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-m", "sluice.cli", "up", "--port", "0", "--config", str(config), "--data-dir", str(data_dir), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment(data_dir)) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], data_dir
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)


def _environment(data_dir: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return kept | {"SLUICE_DATA_DIR": str(data_dir), "TZ": "UTC"} | more


def _ask(url: str, key: str, endpoint: str, words: str, headers: dict[str, str], is_streamed: bool) -> None:
    body: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": words}], "stream": is_streamed}
    if endpoint == "chat":
        path, body["tools"] = "/v1/chat/completions", [_BASH]
        body["messages"].insert(0, {"role": "system", "content": "You look after a build server."})
    else:
        path, body["tools"], body["max_tokens"] = "/v1/messages", [_WEATHER], 200
    httpx.post(url + path, json=body, headers={"authorization": f"Bearer {KEYS[key]}", **headers}, timeout=WAIT_S)


def _wait(data_dir: Path) -> str:
    """Wait until all calls have ended on record; returns the beginning of the id of a blocked one."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        calls = json.loads(_run(data_dir, ["audit", "calls", "--json"]))["items"]
        report = json.loads(_run(data_dir, ["audit", "verify", "--json"]) or "{}")
        if len(calls) == len(_CALLS) and all(call["state"] != "ACTIVE" for call in calls) and not report.get("unsealed", 1):
            return next(str(call["call_id"])[:13] for call in calls if call["session"] and call["tool_calls_blocked"])
        time.sleep(0.2)
    raise TimeoutError("the calls did not come onto record")


def _run(data_dir: Path, arguments: Sequence[str], **environment: str) -> str:
    env = _environment(data_dir, **environment)
    done = subprocess.run([sys.executable, "-m", "sluice.cli", *arguments], env=env, capture_output=True, text=True, timeout=WAIT_S)
    return done.stdout + done.stderr if environment else done.stdout


def _page(data_dir: Path, blocked: str) -> str:
    parts = [_HEAD]
    for command in COMMANDS:
        words = [blocked if word == "BLOCKED" else word for word in command]
        parts.append(f"## `sluice {' '.join(command).replace('BLOCKED', 'CALL')}`\n")
        for width in WIDTHS:
            shown = _run(data_dir, words, COLUMNS=str(width), _SLUICE_TERMINAL="1", TERM="xterm")
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace(str(data_dir), ".sluice").strip()
            # but for the progress bar, which a terminal takes away again
            lines = [line.rstrip() for line in re.split(r"[\r\n]+(?=verifying)|\n", plain) if not line.startswith("verifying")]
            line = " ".join(f"'{word}'" if " " in word else word for word in words)
            parts.append(f"{width} columns:\n\n```text\n$ sluice {line}\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
