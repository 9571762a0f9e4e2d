"""The kinds of calls that lanes (`tests.support.servers.lanes`) make, the configuration for them,
and the upstream that answers."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from demo import model as demo
from protocol.request import DialectName
from settings.config import Config
from tests.support.clients.sdk_calls import tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, digest

MODELS: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-x"}
LIMITS = {
    # sealing is by the clock, after a call; its own statements fail in
    # tests/faults/test_audit_sealing.py
    "seal_s": 3600.0,
    "lease_s": 0.4,
    "claim_s": 1.5,
    "activity_s": 6.0,
    "keepalive_s": 1.0,
    "judge_s": 4.0,
    "commit_s": 4.0,
    "call_s": 10.0,
    "drain_s": 0.2,
    "redis_silent_s": 1.0,
}
_NONCE = re.compile(r"<envelope ([0-9a-f]+)>")


@dataclass(frozen=True)
class Kind:
    """One kind of call. `unapproved`: bytes of upstream's answer that must not come through;
    `others`: models that are asked after the first; `held`: what goes out only by an approval."""

    name: str
    client: DialectName
    upstream: DialectName
    words: str
    policy: str = "rules"
    streams: bool = True
    history: bool = False
    judged: int = 0
    unapproved: tuple[bytes, ...] = ()
    others: tuple[str, ...] = ()
    held: bytes = b""
    first: str = ""

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return self.first or MODELS[self.upstream]

    @property
    def models(self) -> list[str]:
        """The models that are asked, in order."""
        return [self.model, *self.others]

    def request(self) -> Json:
        """The request's body."""
        tools = [
            tool(self.client, "get_weather", city="string"),
            tool(self.client, "bash", command="string"),
        ]
        before = _HISTORY if self.history else []
        messages = [*before, {"role": "user", "content": self.words}]
        return {
            "model": self.model,
            "max_tokens": 1000,
            "stream": self.streams,
            "tools": tools,
            "messages": messages,
        }


_HISTORY: list[Json] = [
    {"role": "user", "content": "the weather in Rome"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]
TRUSTED = "claude-trusted"
"""The model that turns are deferred to: it asks for the weather, whatever it was told."""
FAILING = "gpt-failing"
"""The model that fails once it has begun to answer; another upstream answers in its place."""
_BROKEN = (
    b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-failing",'
    b' "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""},'
    b' "finish_reason": null}]}\n\n',
    b'data: {"error": {"message": "busy", "type": "server_error"}}\n\n',
)
KINDS = (
    Kind("text", "openai", "openai", "hello"),
    Kind("allowed tool call", "anthropic", "anthropic", "the weather in Paris"),
    Kind(
        "blocked tool call",
        "openai",
        "anthropic",
        "delete everything with rm -rf /",
        unapproved=(b"rm -rf", b"toolu_"),
    ),
    Kind(
        "blocked call given back",
        "anthropic",
        "openai",
        "delete everything with rm -rf /",
        "continued",
        unapproved=(b"rm -rf", b"tool_use"),
        others=(MODELS["openai"],),
    ),
    Kind("judge asked", "anthropic", "openai", "please list the files", "judged", judged=1),
    Kind(
        "thinking and two tool calls",
        "openai",
        "anthropic",
        "think of the weather in Paris and Tokyo",
        history=True,
    ),
    Kind(
        "deferred turn",
        "anthropic",
        "openai",
        "please list the files",
        "deferred",
        unapproved=(b"ls -la", b"command", TRUSTED.encode()),
        others=(TRUSTED,),
    ),
    Kind("people asked", "anthropic", "openai", "please list the files", "asked", held=b"ls -la"),
    Kind(
        "another upstream answers",
        "anthropic",
        "openai",
        "the weather in Paris",
        first=FAILING,
        others=(MODELS["anthropic"],),
    ),
    Kind("not streamed", "anthropic", "openai", "the weather in Paris", streams=False),
)


def lane_config(upstream_url: str) -> Config:
    """The configuration of a lane."""
    rules = {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": "rm -rf"}]}
    return Config.model_validate(
        {
            "upstreams": {
                "openai": {"dialect": "openai", "base_url": f"{upstream_url}/v1"},
                "anthropic": {"dialect": "anthropic", "base_url": upstream_url},
                "failing": {
                    "dialect": "openai",
                    "base_url": f"{upstream_url}/v1",
                    "breaker": False,
                },
                "trusted": {"dialect": "anthropic", "base_url": upstream_url},
            },
            "models": [
                {"match": TRUSTED, "upstream": "trusted"},
                {
                    "match": FAILING,
                    "upstream": "failing",
                    "then": [{"upstream": "anthropic", "model": MODELS["anthropic"]}],
                },
                {"match": "gpt-*", "upstream": "openai"},
                {"match": "claude-*", "upstream": "anthropic"},
                {"match": "judge-*", "upstream": "openai"},
            ],
            "policies": {
                "rules": [rules],
                "continued": [rules | {"on_block": "continue"}],
                "judged": [rules, {"use": "tool_judge", "model": "judge-x", "threshold": 0.6}],
                "asked": [
                    rules | {"ask": [{"tool": "bash"}], "approval": {"hold_s": 3}},
                ],
                "deferred": [{"use": "tests.support.upstreams.hands:Hands", "model": TRUSTED}],
            },
            "limits": LIMITS,
            "keys": [
                {
                    "name": "dev",
                    "sha256": digest(KEY),
                    "policies": ["rules", "judged", "deferred", "continued", "asked"],
                }
            ],
        }
    )


class Provider:
    """The upstream and the judge model of one lane. An answer comes in a few pieces, the next when
    `ready` or after a while."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The models that were asked, but judges."""
        self.judged = 0
        self.sent = b""
        self.ready: Callable[[], bool] = lambda: True
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_post("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    def forget(self) -> None:
        """Count from nothing."""
        self.asked, self.judged = [], 0
        self.sent = b""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = json.loads(body)
        if asked["model"].startswith("judge"):
            self.judged += 1
            nonce = _NONCE.search(asked["messages"][-1]["content"])
            assert nonce is not None
            reply = json.dumps({"nonce": nonce[1], "probability": 0.1, "explanation": "reads"})
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": reply},
            }
            return web.json_response({"choices": [choice]})
        self.asked.append(asked["model"])
        if asked["model"] == TRUSTED:
            body = as_json(
                asked | {"messages": [{"role": "user", "content": "the weather in Oslo"}]}
            )
        dialect: DialectName = "openai" if request.path.endswith("completions") else "anthropic"
        if asked["model"] == FAILING:
            return await self._write(request, 200, "text/event-stream", _BROKEN)
        script = demo.script(dialect, "chat" if dialect == "openai" else "messages", body)
        pieces = _pieces([data for _, data in script.steps])
        return await self._write(request, script.status, script.content_type, pieces)

    async def _write(
        self, request: web.Request, status: int, content_type: str, pieces: Sequence[bytes]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"content-type": content_type})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.sent += piece
                await response.write(piece)
                await self._pause()
            await response.write_eof()
        return response

    async def _pause(self) -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            await asyncio.sleep(0.002)
            if self.ready():
                return


def _pieces(frames: list[bytes], count: int = 3) -> list[bytes]:
    size = max(1, -(-len(frames) // count))
    return [b"".join(frames[n : n + size]) for n in range(0, len(frames), size)]
