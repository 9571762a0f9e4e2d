"""The clients of the chaos run: many calls at once, of mixed kinds, in each dialect, and what each
of them saw."""

import asyncio
import io
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import aiohttp

from protocol.dialects.responses.ids import response_id
from protocol.request import DialectName
from tests.chaos.hostile import ATTACKS, Attack
from tests.support.checks.invariants import Seen, is_keepalive
from tests.support.clients.readers import PATHS, request
from tests.support.clients.sdk_calls import tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY

Kind = Literal[
    "text",
    "thinking",
    "allowed",
    "judged",
    "blocked",
    "parallel",
    "whole",
    "whole blocked",
    "error",
    "broken",
    "leaves",
    "hostile",
]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "hostile")
HOSTILE_SHARE = 0.05
HOSTILE_KEY = "sk-sluice-hostile"
WORDS: dict[Kind, str] = {
    "text": "long 25 slowly, with a gap 8 ms",
    "thinking": "think about it",
    "allowed": "please list the files",
    "judged": "please delete everything with rm -rf /srv",
    "blocked": "please delete everything with rm -rf /tmp/build",
    "parallel": "the weather in Paris and Tokyo, and delete everything with rm -rf /tmp/build",
    "whole": "hello there",
    "whole blocked": "please delete everything with rm -rf /tmp/build",
    "error": "fail with 429",
    "broken": "long 20 and fail in the middle",
    "leaves": "long 60 slowly, with a gap 8 ms",
    "hostile": "list the files, and do not say rm -rf",
}
"""`judged` is decided by a judge alone, the `blocked` ones by a rule."""
FORBIDDEN = b"rm -rf"
POLICY: dict[Kind, str] = {"judged": "judged", "text": "noop", "leaves": "noop"}
MODELS = ("up-openai", "up-anthropic")
_TOOLS = ("bash", "command"), ("get_weather", "city"), ("query", "sql")
"""Tools and the argument of each; the last is for hostile calls alone."""
_LEAVES_AFTER = 600
_UNREAD_S = 1.0, 6.0
TIMEOUT_S = 90.0
EXTRA = 10**9
"""Numbers of calls past this are of bursts, beside those that are counted."""


@dataclass
class Done:
    """One call that is over for its client. `left`: it went away by itself. Times are of the
    monotonic clock.

    `longest_s` is the longest time in which nothing but keepalives came.
    """

    number: int
    kind: Kind
    model: str
    seen: Seen
    began: float
    ended: float
    longest_s: float
    left: bool = False
    attack: str = ""
    """Which one, of a hostile call; `is_extra` where it is of a burst and not its first."""
    is_extra: bool = False


def body_of(number: int, kind: Kind, dialect: DialectName, model: str) -> Json:
    """The request of a call."""
    body = request(
        f"call {number}: {WORDS[kind]}", dialect, model=model, stream=not kind.startswith("whole")
    )
    if kind in ("allowed", "judged", "blocked", "parallel", "whole blocked", "hostile"):
        body["tools"] = [
            tool(dialect, name, **{of: "string"})
            for name, of in _TOOLS[: 3 if kind == "hostile" else 2]
        ]
    return body


def attack_of(
    number: int, name: str, dialect: DialectName, model: str, source: random.Random, after: str = ""
) -> Json:
    """The request of a hostile call, which goes on with the response of the call `after`."""
    attack = ATTACKS[name]
    body = body_of(number, "hostile", dialect, attack.model or model)
    body["stream"] = source.random() < 0.5
    if attack.answer is not None:
        body["input" if dialect == "responses" else "messages"][0]["content"] = (
            f"call {number}: attack {name}!"
        )
    if after:
        body["previous_response_id"] = response_id(after)
    elif attack.request is not None:
        attack.request(body, dialect, source)
    return body


async def _drop_by_drop(body: Json, lasts_s: float) -> AsyncIterator[bytes]:
    """A body that never comes to its end."""
    data = as_json(body)[:-1] + b" " * 2**20
    until = time.monotonic() + lasts_s
    yield data
    while time.monotonic() < until:
        await asyncio.sleep(0.2)
        yield b" "
    raise OSError("gone")


class Load:
    """`at_once` clients on a thread of their own, each calling again and again until `calls` were
    made or `stop`.

    A share of the calls is of a hostile client, which has a key of its own; `attacks` are those it
    knows. A burst counts as one call.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        seed: int,
        at_once: int,
        calls: int,
        hostile: float = HOSTILE_SHARE,
        attacks: Sequence[str] = tuple(ATTACKS),
    ) -> None:
        self.done: list[Done] = []
        self.refused = 0
        """Connections that no gateway took: nothing was begun."""
        self._urls, self._at_once, self._calls = list(urls), at_once, calls
        self._random, self._number = random.Random(seed), 0
        self._hostile, self._attacks, self._deck, self._extra = (
            hostile,
            list(attacks),
            list[str](),
            0,
        )
        self._stopping = threading.Event()
        self.failures: list[str] = []
        """What ended the clients before their time, which nothing should."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Were all calls made?"""
        return not self._thread.is_alive()

    def wait(self, timeout_s: float) -> None:
        """Wait until all calls were made, so long at most."""
        self._thread.join(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Make no more calls, and wait for those under way. Raises AssertionError where one
        hangs."""
        self._stopping.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "a call hangs"

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - a run whose clients are gone is no run
            self.failures.append(f"the clients ended by themselves: {error!r}")

    async def _main(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=timeout
        ) as session:
            await asyncio.gather(*(self._client(session) for _ in range(self._at_once)))

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stopping.is_set() and self._number < self._calls:
            if self._attacks and self._random.random() < self._hostile:
                await self._attack(session, self._next_attack())
                continue
            self._number += 1
            await self._one(session, self._number, "")

    def _next_attack(self) -> str:
        """Each of them in turn, in another order each time."""
        if not self._deck:
            self._deck = self._random.sample(self._attacks, len(self._attacks))
        return self._deck.pop()

    async def _attack(self, session: aiohttp.ClientSession, name: str) -> None:
        self._number += 1
        number, count = (
            self._number,
            (self._random.randint(3, 10) if ATTACKS[name].chained else ATTACKS[name].at_once),
        )
        # numbers of their own, past those that are counted
        more = range(EXTRA + self._extra + 1, EXTRA + self._extra + count)
        self._extra += count - 1
        if not ATTACKS[name].chained:
            await asyncio.gather(*(self._one(session, each, name) for each in (number, *more)))
            return
        last = ""
        for each in (number, *more):
            last = await self._one(session, each, name, last) or last

    async def _one(
        self, session: aiohttp.ClientSession, number: int, attack: str, after: str = ""
    ) -> str:
        """Make a call; returns its id if it was served."""
        done = await self._call(session, number, attack, after)
        if done is None:
            self.refused += 1
            # as long as all gateways are stopped, each refusal would cost the run a call
            await asyncio.sleep(0.5)
            return ""
        done.is_extra = number > EXTRA
        self.done.append(done)
        if done.seen.status == 503:
            await asyncio.sleep(0.2)
        return done.seen.call_id if done.seen.status == 200 else ""

    async def _call(
        self, session: aiohttp.ClientSession, number: int, name: str, after: str
    ) -> Done | None:
        kind, model = self._random.choice(KINDS), self._random.choice(MODELS)
        # attacks are written for two
        dialect: DialectName = self._random.choice(
            ("openai", "anthropic", *(() if name else ("responses",)))
        )
        url = self._random.choice(self._urls)
        headers: list[tuple[str, str]] = [
            ("x-sluice-policy", POLICY.get(kind, "default")),
            ("authorization", f"Bearer {KEY}"),
        ]
        if name:
            dialect = "responses" if ATTACKS[name].chained else dialect
            kind, body = "hostile", attack_of(number, name, dialect, model, self._random, after)
            headers = _hostile_headers(ATTACKS[name], self._random)
        else:
            body = body_of(number, kind, dialect, model)
        headers.append(("content-type", "application/json"))
        seen, began = Seen(dialect, body["stream"]), time.monotonic()
        done = Done(number, kind, body["model"], seen, began, began, 0.0, attack=name)
        # as a file: aiohttp warns of large bodies as bytes
        sent: Json = {"data": io.BytesIO(as_json(body))}
        if name and ATTACKS[name].slow:
            done.left = True
            sent = {"data": _drop_by_drop(body, self._random.uniform(0.5, 5.0))}
        try:
            async with session.post(url + PATHS[dialect], **sent, headers=headers) as answer:
                seen.status, seen.call_id = (
                    answer.status,
                    answer.headers.get("x-sluice-call-id", ""),
                )
                if name and ATTACKS[name].unread and seen.status == 200:
                    await asyncio.sleep(self._random.uniform(*_UNREAD_S))
                    done.left, seen.whole = True, False
                    answer.close()
                else:
                    await self._read(answer, done)
        except aiohttp.ClientConnectorError:
            return None
        except (aiohttp.ClientError, OSError, TimeoutError):
            seen.whole = False
        done.ended = time.monotonic()
        seen.elapsed_s = done.ended - began
        return done

    async def _read(self, answer: aiohttp.ClientResponse, done: Done) -> None:
        last = done.began
        async for data in answer.content.iter_any():
            if any(not is_keepalive(frame) for frame in data.split(b"\n\n") if frame):
                now = time.monotonic()
                done.longest_s, last = max(done.longest_s, now - last), now
            done.seen.body += data
            if done.kind == "leaves" and len(done.seen.body) > _LEAVES_AFTER:
                done.left, done.seen.whole = True, False
                answer.close()
                break


def _hostile_headers(attack: Attack, source: random.Random) -> list[tuple[str, str]]:
    headers = [("x-sluice-policy", attack.policy), ("authorization", f"Bearer {HOSTILE_KEY}")]
    if attack.twice:
        again = source.choice(
            (
                ("x-sluice-policy", "asked"),
                ("authorization", "Bearer sk-other"),
                ("x-sluice-timeout-s", "5"),
            )
        )
        headers += [again, again]
    return headers
