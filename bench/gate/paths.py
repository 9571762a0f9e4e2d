"""What a policy worker does to a chunk, without the IO: unpack, decode, decide, encode, pack a
release and its records.

Measured over streams from tests/fixtures, as a multiple of a reference: what it takes to parse the
same chunks with the standard library, put their text together and write it out again. The reference
shares no code with Sluice, and both see the same machine and the same Python. The measure is
instructions, which are exact (bench/gate/callgrind.py).
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import yaml

from policy.base import Policy
from policy.effects import touch
from policy.effects.shell import reading
from policy.loading import load
from policy.session.effects import SESSION_VERSION, CallInfo
from policy.session.session import Session
from protocol.dialects.table import DIALECTS
from protocol.request import DialectName
from settings.config import Config
from streams import layout
from streams.layout import Entry, EntryKind, Start
from workers.policy.call.owned import OwnedCall

ROOT = Path(__file__).parents[2]
STREAMS = ROOT / "tests" / "fixtures" / "streams"
_CONFIG = Config.model_validate(
    {
        "policies": yaml.safe_load((ROOT / "bench" / "bench.yaml").read_text())["policies"],
        "upstreams": {
            name: {"dialect": name, "base_url": f"http://127.0.0.1:9{one.client_base}"}
            for name, one in DIALECTS.items()
        },
        "models": [{"match": name, "upstream": name} for name in DIALECTS],
    }
)
_POLICIES = load(_CONFIG.policies["default"], session_version=SESSION_VERSION)
_DEFAULT = load(Config().policies["default"], session_version=SESSION_VERSION)
"""What a configuration without policies has."""
_COMMANDS = (
    "cd src && grep -rn 'def main' --include='*.py' . | head -20",
    "git status --short && git diff --stat HEAD~1",
    "npm ci && npm test 2>&1 | tail -50",
    "find . -name '*.pyc' -not -path './.venv/*' -delete",
    "python -m pytest -q tests/unit/test_x.py::test_y",
    "sed -i 's/foo/bar/g' src/app.py",
    "curl -s http://localhost:8080/health | python3 -m json.tool",
    "mkdir -p build && cp -r assets build/ && ls -la build",
)
"""What coding agents ordinarily run."""
_TOOL = {"type": "object", "properties": {}}
_JUDGEMENT = b'{"probability":0.01,"explanation":"harmless","model":"demo-judge","latency_ms":1,"attempts":1}'
_AT, _CALL = 1_767_225_600_000, "019b7600-0000-7000-8000-000000000001"
_PARSED = re.compile(rb"^(?:event: .*\n)?data: (.*)$", re.M)
TOOLS = "whole calls with tools"
COMMANDS = "whole calls with commands under the default policies"
Series = tuple[list[Policy], str]


class Case:
    """A call of one client dialect whose upstream answers with a recorded stream, in entries of
    `together` chunks."""

    def __init__(
        self,
        client: DialectName,
        upstream: DialectName,
        frames: Sequence[bytes],
        *,
        together: int = 1,
        series: Series = _POLICIES,
    ) -> None:
        self.client, self.frames, self._series = client, frames, series
        self._body = _request(client, upstream)
        seq, kinds = 1, list[Entry]()
        for first in range(0, len(frames), together):
            chunks = list(frames[first : first + together])
            kinds.append(Entry(seq, _AT, "chunks", chunks))
            seq += len(chunks)
        kind: EntryKind
        for kind in "eof", "closed":
            kinds.append(Entry(seq, _AT, kind, text="complete"))
            seq += 1
        self._entries = [layout.pack(entry) for entry in kinds]

    def __call__(self) -> str:
        """Take the whole call through; returns with which reason it ended."""
        endpoint = DIALECTS[self.client].answers
        start = Start(
            call_id=_CALL,
            at=_AT,
            gateway="g",
            dialect=self.client,
            endpoint=endpoint,
            key="k",
            policies=("default",),
            policy="",
            session="",
            nonce="n",
            deadline=_AT + 1000,
            key_id="k",
            policy_sets=(),
            body_sha256=sha256(self._body).digest(),
        )
        series, revision = self._series
        info = CallInfo(
            _CALL, _AT, self.client, endpoint, "k", "", "n", "g", "default", revision, True, 2**20
        )
        session = Session(info, series, _CONFIG)
        call = OwnedCall(
            start,
            "t",
            "1-0",
            session,
            policy_header=f"default@{revision}",
            released=0,
            digest="",
            recorded=0,
        )
        call.begin(self._body)
        end = _release(call)
        for blob in self._entries:
            call.feed_entry(layout.unpack_entry(blob))
            end = _release(call) or end
        return end


def _release(call: OwnedCall) -> str:
    """Release what there is, the judge allowing and the record committed at once."""
    end = ""
    while call.queue.is_waiting:
        release = call.next_release(_AT)
        assert release is not None, "the call broke"
        if call.session.state == "ENDED" and release.reply:
            end = layout.unpack_reply(release.reply).end or end
        call.answered()
        asks, waits, _ = call.waits.take_new()
        for ask in asks:
            call.feed_fact(layout.judgement_field(ask.block, ask.step), _JUDGEMENT, _AT)
        for block in waits:
            call.feed_fact(layout.commit_field(block), b"1", _AT)
    return end


def _request(client: DialectName, model: str) -> bytes:
    if client == "responses":
        return json.dumps({"model": model, "stream": True, "input": "x"}).encode()
    messages = [{"role": "user", "content": "x"}]
    body: dict[str, object] = {"model": model, "stream": True, "messages": messages}
    names = ("get_weather", "get_time", "bash", "f", "lookup")
    if client == "openai":
        body["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": _TOOL}} for name in names
        ]
    else:
        body |= {
            "max_tokens": 1000,
            "tools": [{"name": name, "input_schema": _TOOL} for name in names],
        }
    return json.dumps(body).encode()


def _frames(name: str) -> list[bytes]:
    return [part + b"\n\n" for part in (STREAMS / name).read_bytes().split(b"\n\n") if part.strip()]


def _long(name: str, delta: bytes, times: int) -> list[bytes]:
    """A recorded stream whose text deltas come `times` times."""
    frames = _frames(name)
    deltas = [frame for frame in frames if delta in frame]
    at = frames.index(deltas[0])
    rest = [frame for frame in frames if frame not in deltas]
    return [*rest[:at], *deltas * times, *rest[at:]]


def cases(times: int) -> dict[str, list[Case]]:
    """What is measured: about 6 * `times` chunks of each."""
    openai = _long("openai-text.sse", b'"delta":{"content":', times)
    anthropic = _long("anthropic-text.sse", b'"text_delta"', times)
    tools = [
        Case("openai", "anthropic", _frames("anthropic-tools-parallel.sse")),
        Case("anthropic", "openai", _frames("openai-tools-interleaved.sse")),
    ]
    return {
        "text, chunks that come alone": [
            Case("openai", "openai", openai),
            Case("anthropic", "anthropic", anthropic),
        ],
        "text, 16 chunks together": [
            Case("openai", "openai", openai, together=16),
            Case("anthropic", "anthropic", anthropic, together=16),
        ],
        TOOLS: tools * max(1, times // 4),
        COMMANDS: [
            Case("openai", "openai", _command(command), series=_DEFAULT) for command in _COMMANDS
        ],
    }


def _command(command: str) -> list[bytes]:
    """A stream whose one call of `bash` has this command."""
    call = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
    }
    deltas: list[tuple[object, str | None]] = [
        ({"role": "assistant", "content": None, "tool_calls": [call]}, None),
        ({}, "tool_calls"),
    ]
    parts = [
        json.dumps(
            {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }
        )
        for delta, reason in deltas
    ]
    return [f"data: {part}\n\n".encode() for part in [*parts, "[DONE]"]]


def reference(frames: Sequence[bytes]) -> int:
    """Parse every chunk, read its text or arguments, and write them out again with a running
    hash."""
    digest, written = hashlib.sha256(), 0
    for frame in frames:
        found = _PARSED.search(frame)
        if found is None or found[1] == b"[DONE]":
            continue
        texts = list[str]()
        _read(json.loads(found[1]), texts)
        data = (
            b"data: "
            + json.dumps(
                {"id": "reference", "choices": [{"index": 0, "delta": {"content": "".join(texts)}}]}
            ).encode()
            + b"\n\n"
        )
        digest.update(data)
        written += len(data)
    return written


def _read(value: object, texts: list[str]) -> None:
    if isinstance(value, dict):
        for one in value.values():
            _read(one, texts)
    elif isinstance(value, list):
        for one in value:
            _read(one, texts)
    elif isinstance(value, str):
        texts.append(value)


def runs(found: Sequence[Case]) -> tuple[Callable[[], object], Callable[[], object]]:
    """The calls, and their reference."""

    def ours() -> None:
        # each call is read anew, as calls with other commands would be
        touch._remembered.cache_clear()
        reading._read.cache_clear()
        for case in found:
            end = case()
            assert end == "complete", f"a call ended {end!r}"

    frames = [frame for case in found for frame in case.frames]
    return ours, lambda: reference(frames)
