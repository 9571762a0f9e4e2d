"""The second set of recordings: answers of Responses, Gemini, Converse, Azure and vendors like
OpenAI, streamed and whole."""

import json
import os
import struct
from pathlib import Path

import pytest

from protocol.dialects.table import DIALECTS
from protocol.request import DialectName
from tests.support.json_values import Json, as_json
from tests.support.upstreams.recordings import ROOT, Recording
from tests.support.upstreams.replay import Cutting, Reply, stream

DIALECT_STREAMS = ROOT.parent / "shared" / "dialect-streams"
APIS: dict[str, DialectName] = {
    "openai-responses": "responses",
    "gemini": "gemini",
    "bedrock-converse": "converse",
    "azure-openai": "openai",
    "openai-like": "openai",
}
"""Claude by Invoke is not here: it is a matter of a door (tests of providers/doors)."""
NO_ANSWERS = ("openai-responses/input-tokens",)
_EVENT_STREAM = "application/vnd.amazon.eventstream"


def dialect_recordings(folder: Path = DIALECT_STREAMS) -> list[Recording]:
    """All of a folder whose dialect is in the table; none where the folder is not there."""
    if not (folder / "expected.json").exists():
        return []
    found = []
    for entry in json.loads((folder / "expected.json").read_text())["entries"]:
        dialect = APIS.get(entry["api"])
        if dialect not in DIALECTS or entry["name"] in NO_ANSWERS:
            continue
        body = (folder / entry["file"]).read_bytes()
        if entry["kind"] == "chunks":
            body = _framed(dialect, [line for line in body.decode().split("\n") if line.strip()])
        facts = entry["facts"] | {"http_status": entry["http_status"]}
        found.append(
            Recording(
                entry["name"], dialect, body, entry["kind"] != "json", facts, entry.get("must", "")
            )
        )
    return found


def need_dialect_recordings() -> None:
    """Skip, or fail in CI, when the second set is not beside the repository."""
    if not (DIALECT_STREAMS / "expected.json").exists():
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")


def _framed(dialect: DialectName, lines: list[str]) -> bytes:
    if dialect == "responses":
        return b"".join(
            f"event: {json.loads(line)['type']}\ndata: {line}\n\n".encode() for line in lines
        )
    return b"".join(f"data: {line}\n\n".encode() for line in lines) + (
        b"data: [DONE]\n\n" if dialect == "openai" else b""
    )


def streamed(recording: Recording, cutting: Cutting, seed: int) -> Reply:
    """The stream as its provider sends it."""
    if recording.dialect == "converse":
        return Reply(recording.body, content_type=_EVENT_STREAM, cutting=cutting, seed=seed)
    return stream(recording.body, cutting=cutting, seed=seed)


def whole_of(recording: Recording) -> bytes | None:
    """The body of the same answer without a stream, or None where none can be told from the
    stream."""
    if not recording.is_stream:
        return recording.body
    if recording.dialect == "responses":
        last: Json = _payloads(recording.body)[-1].get("response") or {}
        return as_json(last) if last.get("status") == "completed" and last.get("output") else None
    if recording.dialect == "gemini":
        return _whole_gemini(_payloads(recording.body))
    return _whole_converse(recording.body) if recording.dialect == "converse" else None


def _payloads(body: bytes) -> list[Json]:
    texts = [
        line[5:].strip()
        for line in body.replace(b"\r\n", b"\n").decode().split("\n")
        if line.startswith("data:")
    ]
    return [json.loads(text) for text in texts if text != "[DONE]"]


def _whole_gemini(chunks: list[Json]) -> bytes | None:
    """Pieces of text of one kind, unsigned, are one part; arguments in pieces only streams have."""
    parts: list[Json] = []
    candidate: Json = {}
    for chunk in chunks:
        for one in chunk.get("candidates", []):
            for part in one.get("content", {}).get("parts", []):
                if "willContinue" in part.get("functionCall", {}) or "partialArgs" in part.get(
                    "functionCall", {}
                ):
                    return None
                _join(parts, part)
            candidate |= {k: v for k, v in one.items() if k != "content"}
    return as_json(
        chunks[-1] | {"candidates": [candidate | {"content": {"role": "model", "parts": parts}}]}
    )


def _join(parts: list[Json], part: Json) -> None:
    plain = set(part) <= {"text", "thought"} and "text" in part
    if plain and parts and set(parts[-1]) == set(part):
        parts[-1]["text"] += part["text"]
    else:
        parts.append(dict(part))


def _messages(body: bytes) -> list[tuple[str, Json]]:
    """Names and values of the messages of an event stream."""
    found, at = [], 0
    while at < len(body):
        total, headers = struct.unpack(">II", body[at : at + 8])
        block, names = body[at + 12 : at + 12 + headers], {}
        while block:
            end = 1 + block[0]
            size = struct.unpack(">H", block[end + 1 : end + 3])[0]
            names[block[1:end].decode()] = block[end + 3 : end + 3 + size].decode()
            block = block[end + 3 + size :]
        found.append((names[":event-type"], json.loads(body[at + 12 + headers : at + total - 4])))
        at += total
    return found


def _whole_converse(body: bytes) -> bytes | None:
    blocks: dict[int, Json] = {}
    made: Json = {"output": {"message": {"role": "assistant"}}, "metrics": {"latencyMs": 1}}
    for name, value in _messages(body):
        if name == "contentBlockStart":
            blocks[value["contentBlockIndex"]] = {
                kind: {**start} for kind, start in value["start"].items()
            }
        elif name == "contentBlockDelta":
            if not _take(blocks.setdefault(value["contentBlockIndex"], {}), value["delta"]):
                return None
        elif name == "messageStop":
            made["stopReason"] = value["stopReason"]
        elif name == "metadata":
            made |= {k: v for k, v in value.items() if k != "p"}
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"].get("input") or "{}")
    made["output"]["message"]["content"] = list(blocks.values())
    return as_json(made)


def _take(block: Json, delta: Json) -> bool:
    """Add a delta; False for one that looks different in a whole answer."""
    [(kind, value)] = delta.items()
    if kind == "text":
        block["text"] = block.get("text", "") + value
    elif kind == "toolUse":
        block["toolUse"]["input"] = block["toolUse"].get("input", "") + value["input"]
    elif kind == "reasoningContent":
        text = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})
        text["text"] += value.get("text", "")
        text |= {k: v for k, v in value.items() if k == "signature"}
    else:
        return False
    return True
