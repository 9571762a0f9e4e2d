"""The provider recordings beside the repository, and our own small ones, as bytes that an upstream
would send."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.request import DialectName
from tests.support.json_values import Json

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "streams"
OWN = ROOT / "tests" / "fixtures" / "streams"


@dataclass(frozen=True)
class Recording:
    """One upstream answer. `facts` is what expected.json says of it."""

    name: str
    dialect: DialectName
    body: bytes
    is_stream: bool
    facts: Json
    must: str = ""


def framed(dialect: DialectName, lines: list[str]) -> bytes:
    """Frame one event JSON per line as its dialect does."""
    if dialect == "openai":
        return b"".join(f"data: {line}\n\n".encode() for line in lines) + b"data: [DONE]\n\n"
    return b"".join(
        f"event: {json.loads(line)['type']}\ndata: {line}\n\n".encode() for line in lines
    )


def _split(lines: list[str]) -> list[list[str]]:
    """Split a file with several answers before each message_start."""
    parts: list[list[str]] = []
    for line in lines:
        if json.loads(line)["type"] == "message_start" or not parts:
            parts.append([])
        parts[-1].append(line)
    return parts


def recordings(folder: Path = SHARED) -> list[Recording]:
    """All recordings of a folder with an expected.json; a missing one gives none of them."""
    if not (folder / "expected.json").exists():
        return []
    found = []
    for entry in json.loads((folder / "expected.json").read_text())["entries"]:
        dialect: DialectName = entry["api"]
        path = folder / entry["file"]
        if entry["kind"] == "chunks":
            lines = [line for line in path.read_text().split("\n") if line.strip()]
            several = entry.get("messages")
            answers = (
                [framed(dialect, part) for part in _split(lines)]
                if several
                else [framed(dialect, lines)]
            )
        else:
            several, answers = None, [path.read_bytes()]
        for number, body in enumerate(answers):
            name = f"{entry['name']}#{number}" if several else entry["name"]
            facts = several[number] if several else entry["facts"]
            found.append(
                Recording(
                    name, dialect, body, entry["kind"] != "json", facts, entry.get("must", "")
                )
            )
    return found


def own_recordings() -> list[Recording]:
    """Our own streams, of which nothing is known but their bytes."""
    paths = sorted(OWN.glob("*.sse"))
    return [
        Recording(
            f"own/{p.stem}",
            "openai" if p.stem.startswith("openai") else "anthropic",
            p.read_bytes(),
            True,
            {},
        )
        for p in paths
    ]


def expected(recording: Recording) -> Json:
    """The facts in one shape: characters and hash of text, tool calls, finish reason, prompt and
    completion tokens."""
    facts = recording.facts
    if recording.dialect == "anthropic":
        calls = facts.get("tool_use") or [
            b for b in facts.get("blocks", []) if b["type"] == "tool_use"
        ]
        usage = facts["usage"]
        prompt = (
            usage["input_tokens"]
            + (usage.get("cache_read_input_tokens") or 0)
            + (usage.get("cache_creation_input_tokens") or 0)
        )
        return {
            "chars": facts["text_chars"],
            "sha": facts["text_sha"],
            "thinking": facts.get("thinking_chars", 0),
            "calls": [(c["name"], c["input"]) for c in calls],
            "stop": facts["stop_reason"],
            "tokens": (prompt, usage["output_tokens"]),
        }
    usage = facts["usage"]
    finish = (facts.get("finish_reasons") or [facts.get("finish_reason")])[-1]
    return {
        "chars": facts["content_chars"],
        "sha": facts.get("content_sha"),
        "thinking": facts.get("reasoning_chars", 0),
        "calls": [(c["name"], c["arguments"]) for c in facts["tool_calls"]],
        "stop": finish,
        "tokens": (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None,
    }


def own(name: str) -> bytes:
    """One of our own streams, by file name."""
    return (OWN / name).read_bytes()


def need_recordings() -> None:
    """Skip, or fail in CI, when the recordings are not beside the repository."""
    if not (SHARED / "expected.json").exists():
        if os.environ.get("CI"):
            pytest.fail("../shared/streams is missing")
        pytest.skip("../shared/streams is missing")
