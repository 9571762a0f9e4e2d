"""What one hostile key costs all others: innocent clients are watched while nothing else happens,
and then during each attack.

`python -m bench.attacks [NAME ...] [--seconds 20] [--json]`; exit code 1 where a bound is passed.
`--list` names the attacks.

Attacker, innocents and upstream are processes of their own: what an attack computes does not look
like the product's silence. An attack is an async generator of `Attacker`: it prepares, yields once,
and then attacks until it is cancelled. Add it to `ATTACKS`. The bounds: the longest silence of the
innocents at most 1 s more than in the quiet of the same run, their tool calls at most twice as long
and at most 1.5 s, none refused; and 15 s after the attack Redis has nothing of it any more.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import redis
import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from bench.strain import config, serving
from db.keys import digest
from sluice.bench import RunningSluice, started

MIB = 2**20
LARGE_BYTES = int(15.5 * 10**6)
WORDS, FIRST, CALL = "text-100000-50000-32", "text-2-0-32", "tool-1-0-64"
"""Models of the upstream (`bench.scripted`): a word every 50 ms without end, a short answer, a tool
call."""
SILENCE_S, TOOL_TIMES, TOOL_S, GONE_S = 1.0, 2.0, 1.5, 15.0
NEVER_S = 3600.0
LEFT_BYTES = 16 * MIB
"""Redis keeps small keys of ended calls for a minute."""
KEYS = {"innocent": "sk-bench-innocent", "attacker": "sk-bench-attacker"}
Row = dict[str, Any]


class Attacker:
    """A client with one key. `answers` counts statuses, and error codes of what was refused."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session, self._url, self._headers = (
            session,
            url,
            {"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        self.answers = Counter[str]()

    async def post(self, path: str, body: bytes) -> bytes:
        """Send a request and read its answer; empty where it was refused, after the second that
        clients are asked to wait."""
        return await self._ask("POST", path, body)

    async def ask(self, model: str) -> bytes:
        """Ask a model of the hostile upstream."""
        return await self.post("/v1/chat/completions", _chat(f"hostile-{model}"))

    async def ask_and_not_read(self, model: str) -> None:
        """The same, but the answer is never read."""
        url = self._url + "/v1/chat/completions"
        async with self._session.post(
            url, data=_chat(f"hostile-{model}"), headers=self._headers
        ) as answer:
            self.answers[str(answer.status)] += 1
            await asyncio.sleep(NEVER_S if answer.status == 200 else 1.0)

    async def get(self, path: str) -> bytes:
        """Likewise."""
        return await self._ask("GET", path, None)

    async def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        data = None if body is None else aiohttp.BytesPayload(body)
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=self._headers
            ) as answer:
                read = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.answers[type(error).__name__] += 1
            return b""
        code = b"" if answer.status == 200 else read.partition(b'"code":"')[2].partition(b'"')[0]
        self.answers[f"{answer.status} {code.decode()}".strip()] += 1
        if answer.status in (429, 503):
            await asyncio.sleep(1.0)
        return read if answer.status == 200 else b""

    async def respond(self, said: str, *, previous: str = "", model: str = FIRST) -> str:
        """Ask for a response; returns its id."""
        more = {"previous_response_id": previous} if previous else {}
        answer = await self.post(
            "/v1/responses",
            json.dumps({"model": model, "stream": True, "input": said, **more}).encode(),
        )
        return _id(answer, "resp_")

    async def threads(self, count: int, one: Callable[[], Any]) -> None:
        """Do the same over and over, `count` at once."""

        async def again() -> None:
            while True:
                await one()

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(again())


def _chat(model: str) -> bytes:
    return json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    ).encode()


def _id(answer: bytes, begins: str) -> str:
    """The first id of a kind in an answer, or nothing."""
    _, found, rest = answer.partition(f'"id":"{begins}'.encode())
    return begins + rest.partition(b'"')[0].decode() if found else ""


Attack = Callable[[Attacker], AsyncIterator[None]]

# --- attacks ---


async def large_bodies(attacker: Attacker) -> AsyncIterator[None]:
    """Requests of 15.5 MB one after the other, each accepted and soon over."""
    message = {"role": "user", "content": "x" * LARGE_BYTES}
    body = json.dumps({"model": FIRST, "stream": True, "messages": [message]}).encode()
    yield
    await attacker.threads(2, lambda: attacker.post("/v1/chat/completions", body))


async def long_open_bodies(attacker: Attacker) -> AsyncIterator[None]:
    """The same, and each goes on to be answered."""
    body = json.dumps(
        {
            "model": WORDS,
            "stream": True,
            "messages": [{"role": "user", "content": "x" * LARGE_BYTES}],
        }
    ).encode()
    yield
    await attacker.threads(40, lambda: attacker.post("/v1/chat/completions", body))


async def going_on_with_much(attacker: Attacker) -> AsyncIterator[None]:
    """Requests of 60 bytes that go on with a response of 15 MB."""
    large = await attacker.respond("x" * (LARGE_BYTES - MIB))
    yield
    await attacker.threads(30, lambda: attacker.respond("go on", previous=large))


async def referring_to_much(attacker: Attacker) -> AsyncIterator[None]:
    """Requests that refer to one large item of a response."""
    answer = await attacker.post(
        "/v1/responses",
        json.dumps({"model": "text-14-0-1000000", "stream": True, "input": "x"}).encode(),
    )
    said = [{"type": "item_reference", "id": _id(answer, "msg_")}, {"role": "user", "content": "y"}]
    body = json.dumps({"model": FIRST, "stream": True, "input": said}).encode()
    yield
    await attacker.threads(30, lambda: attacker.post("/v1/responses", body))


async def reading_much_again(attacker: Attacker) -> AsyncIterator[None]:
    """The input of a large response, again and again."""
    large = await attacker.respond("x" * (LARGE_BYTES - MIB))
    yield
    await attacker.threads(16, lambda: attacker.get(f"/v1/responses/{large}/input_items"))


async def asking_for_nothing(attacker: Attacker) -> AsyncIterator[None]:
    """Ids that never were, of calls that would have begun just now: each is waited for."""
    known = await attacker.respond("x")

    async def one() -> None:
        unknown = f"{known[:-10]}{time.monotonic_ns() % 16**8:08x}00"
        await attacker.get(f"/v1/responses/{unknown}")
        await attacker.respond("y", previous=unknown)

    yield
    await attacker.threads(24, one)


async def small_deltas(attacker: Attacker) -> AsyncIterator[None]:
    """Ten streams of 20,000 deltas of one letter."""
    yield
    await attacker.threads(10, lambda: attacker.ask("text-20000-0-1"))


async def more_small_deltas(attacker: Attacker) -> AsyncIterator[None]:
    """Thirty of them."""
    yield
    await attacker.threads(30, lambda: attacker.ask("text-20000-0-1"))


async def small_fragments(attacker: Attacker) -> AsyncIterator[None]:
    """Thirty tool calls whose arguments come letter by letter."""
    yield
    await attacker.threads(30, lambda: attacker.ask("tool-20000-0-1"))


async def unread_answers(attacker: Attacker) -> AsyncIterator[None]:
    """Twenty streams of 32 MB that nobody reads."""
    yield
    await attacker.threads(20, lambda: attacker.ask_and_not_read("text-32000-0-1000"))


async def judged_calls(attacker: Attacker) -> AsyncIterator[None]:
    """Forty answers at once of 128 tool calls, each of which a judge is asked about."""
    yield
    await attacker.threads(40, lambda: attacker.ask("calls-128-0-64"))


async def busy_cores(attacker: Attacker) -> AsyncIterator[None]:
    """No attack: two processes that compute and ask nothing, as the attacker and the upstream do
    beside what they ask.

    It tells what a machine adds on which all share the cores: so much of another row need not be
    the product's.
    """
    yield
    busy = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
        for _ in range(2)
    ]
    try:
        await asyncio.gather(*(process.wait() for process in busy))
    finally:
        for process in busy:
            process.kill()


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        busy_cores,
        large_bodies,
        long_open_bodies,
        going_on_with_much,
        referring_to_much,
        reading_much_again,
        asking_for_nothing,
        small_deltas,
        more_small_deltas,
        small_fragments,
        unread_answers,
        judged_calls,
    )
}

# --- conversations ---


async def going_on(place: RunningSluice) -> list[Row]:
    """How long the next step of a conversation takes: after 500 small responses, and after one of
    15 MB."""
    rows = []
    async with _session() as session:
        client = Attacker(session, place.url, KEYS["innocent"])
        last = ""
        for number in range(499):
            last = await client.respond(f"step {number}", previous=last) or sys.exit(
                f"step {number} was refused: {client.answers}"
            )
        large = await client.respond("x" * (LARGE_BYTES - MIB))
        for what, previous, bound in (
            ("500 small responses", last, 1.0),
            ("one of 15 MB", large, 3.0),
        ):
            began = time.monotonic()
            if not await client.respond("go on", previous=previous):
                sys.exit(f"{what}: refused: {client.answers}")
            took = time.monotonic() - began
            rows.append(
                {
                    "attack": f"going on after {what}",
                    "took_s": round(took, 2),
                    "reached": took <= bound,
                }
            )
    return rows


# --- innocents ---


class Meter:
    """Innocent clients: four open streams, and others that ask one thing after the other."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self._headers = {"authorization": f"Bearer {KEYS['innocent']}"}
        self.silence_s = 0.0
        self.times: dict[str, list[float]] = {}
        self.refused = list[str]()

    async def watch(self) -> None:
        """Watch until something comes on stdin."""
        begun = [asyncio.Event() for _ in range(4)]
        streams = [asyncio.create_task(self._stream(event)) for event in begun]
        for event in begun:
            await event.wait()
        answer = await (
            await self._post("/v1/responses", {"model": FIRST, "stream": True, "input": "x"})
        ).read()
        known = f"/v1/responses/{_id(answer, 'resp_')}/input_items"
        asks: dict[str, Callable[[], Any]] = {
            "first_s": lambda: self._chat(FIRST),
            "tool_s": lambda: self._chat(CALL),
            "lookup_s": lambda: self._get(known),
            "audit_s": lambda: self._get("/audit/calls?limit=1"),
        }
        # what its process loads when it is first asked is not what an attack costs
        await asyncio.gather(*(ask() for ask in asks.values()))
        self.refused.clear()
        asking = [asyncio.create_task(self._again(name, ask)) for name, ask in asks.items()]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        over = [
            str(task.exception() or "a stream ended") for task in (*streams, *asking) if task.done()
        ]
        for task in (*streams, *asking):
            task.cancel()
        await asyncio.gather(*streams, *asking, return_exceptions=True)
        print(json.dumps([self.silence_s, self.times, self.refused + over]), flush=True)

    async def _stream(self, begun: asyncio.Event) -> None:
        answer = await self._post(
            "/v1/chat/completions",
            {"model": WORDS, "stream": True, "messages": [{"role": "user", "content": "x"}]},
        )
        begun.set()
        last = time.monotonic()
        try:
            async for _ in answer.content.iter_any():
                now = time.monotonic()
                self.silence_s, last = max(self.silence_s, now - last), now
        finally:
            self.silence_s = max(self.silence_s, time.monotonic() - last)

    async def _again(self, name: str, ask: Callable[[], Any]) -> None:
        times = self.times[name] = []
        while True:
            began = time.monotonic()
            try:
                await ask()
            finally:
                # one that is still unanswered at the end counts with what it has waited
                times.append(time.monotonic() - began)
            await asyncio.sleep(0.05)

    async def _chat(self, model: str) -> None:
        answer = await self._post(
            "/v1/chat/completions",
            {"model": model, "stream": True, "messages": [{"role": "user", "content": "x"}]},
        )
        whole = await answer.read()
        if answer.status != 200 or b"[DONE]" not in whole:
            self.refused.append(f"{model}: {answer.status} {whole[-200:]!r}")

    async def _get(self, path: str) -> None:
        async with self._session.get(self._url + path, headers=self._headers) as answer:
            whole = await answer.read()
            if answer.status != 200:
                self.refused.append(f"{path[:40]}: {answer.status} {whole[-200:]!r}")

    async def _post(self, path: str, body: Row) -> aiohttp.ClientResponse:
        return await self._session.post(self._url + path, json=body, headers=self._headers)


# --- measuring ---


def _session() -> Any:
    connector, timeout = (
        aiohttp.TCPConnector(limit=0),
        aiohttp.ClientTimeout(total=None, sock_read=120),
    )
    return aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=MIB)


@contextlib.contextmanager
def _child(*args: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "bench.attacks", *args]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _say(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline() or sys.exit(f"{process.args!r} ended")


class Store:
    """What Redis holds."""

    def __init__(self, place: RunningSluice) -> None:
        self._redis: Any = redis.Redis.from_url(place.redis_url)

    @property
    def used(self) -> int:
        """Bytes."""
        return int(self._redis.info("memory")["used_memory"])

    def has_backlog(self, before: int) -> bool:
        """Are there records or bodies that are not in PostgreSQL yet, or is there memory that is
        not free again?"""
        streams = self._redis.scan_iter("sluice:*:audit", count=1000)
        bodies = any(True for _ in self._redis.scan_iter("sluice:*:body:*", count=1000))
        return (
            bodies
            or any(self._redis.xlen(stream) for stream in streams)
            or self.used > before + LEFT_BYTES
        )


def measure(place: RunningSluice, name: str, seconds: float) -> Row:
    """One attack, or quiet where there is no such name: what innocents saw, and what became of
    Redis."""
    store = Store(place)
    attack = (
        _child("attack", name, place.url, str(seconds))
        if name in ATTACKS
        else contextlib.nullcontext()
    )
    with attack as attacker:
        if attacker is not None:
            _hear(attacker)
        before = peak = store.used
        with _child("meter", place.url) as meter:
            _hear(meter)
            if attacker is not None:
                _say(attacker)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                peak = max(peak, store.used)
                time.sleep(0.1)
            _say(meter)
            silence_s, all_times, refused = json.loads(_hear(meter))
        answers = json.loads(_hear(attacker)) if attacker is not None else {}
    ended = time.monotonic()
    while store.has_backlog(before) and time.monotonic() - ended < 4 * GONE_S:
        peak = max(peak, store.used)
        time.sleep(0.1)
    row: Row = {"attack": name, "silence_s": round(silence_s, 2)}
    for kind, times in all_times.items():
        row[kind] = round(max(times), 2)
        row[f"{kind}_median"] = round(sorted(times)[len(times) // 2], 3)
    row |= {"refused": refused, "gone_s": round(time.monotonic() - ended, 1)}
    row |= {
        "redis_mib": round(before / MIB),
        "redis_peak_mib": round(peak / MIB),
        "answers": answers,
    }
    return row


def judge(row: Row, quiet: Row) -> None:
    """Say of a row whether it is within the bounds."""
    row["reached"] = (
        row["silence_s"] <= quiet["silence_s"] + SILENCE_S
        and row["tool_s"] <= min(TOOL_S, max(TOOL_TIMES * quiet["tool_s"], 0.2))
        and not row["refused"]
        and row["gone_s"] <= GONE_S
    )


def show(rows: list[Row]) -> None:
    """Print a table."""
    table = Table(
        box=box.SIMPLE,
        padding=(0, 1),
        pad_edge=False,
        caption="seconds: the longest (the median); MiB: before and the most",
    )
    for name in (
        "",
        "silence",
        "first byte",
        "tool call",
        "lookup",
        "/audit",
        "refused",
        "gone",
        "Redis",
        "",
        "attacker",
    ):
        table.add_column(name)
    for row in rows:
        if "took_s" in row:
            table.add_row(
                row["attack"],
                f"{row['took_s']:.2f}",
                *[""] * 7,
                "" if row["reached"] else "not reached",
                "",
            )
            continue
        times = [
            f"{row[k]:.2f} ({row[f'{k}_median']:.3f})"
            for k in ("first_s", "tool_s", "lookup_s", "audit_s")
        ]
        held = f"{row['redis_mib']} {row['redis_peak_mib']}"
        answers = ", ".join(f"{what} {count}" for what, count in row["answers"].items())
        reached = "" if row.get("reached", True) else "not reached"
        refused = str(len(row["refused"]))
        table.add_row(
            row["attack"],
            f"{row['silence_s']:.2f}",
            *times,
            refused,
            f"{row['gone_s']}",
            held,
            reached,
            answers,
        )
    Console(width=200).print(table)
    for row in rows:
        for what in row.get("refused", [])[:3]:
            print(f"{row['attack']}: {what}")


async def _attack(name: str, url: str, seconds: float) -> None:
    async with _session() as session:
        attacker = Attacker(session, url, KEYS["attacker"])
        steps = ATTACKS[name](attacker)
        await anext(steps)
        attacker.answers.clear()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(seconds):
                await anext(steps)
        print(json.dumps(attacker.answers), flush=True)


async def _meter(url: str) -> None:
    async with _session() as session:
        await Meter(session, url).watch()


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "attacks", nargs="*", help="names of attacks, or `conversations`; all unless given"
    )
    options.add_argument("--seconds", type=float, default=20.0, help="of each attack")
    options.add_argument("--list", action="store_true")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    known = [*ATTACKS, "conversations"]
    if unknown := set(args.attacks) - set(known):
        options.error(
            f"there is no attack {', '.join(sorted(unknown))}: there are {', '.join(known)}"
        )
    if args.list:
        print(
            "\n".join(
                f"{name}: {(attack.__doc__ or '').strip()}" for name, attack in ATTACKS.items()
            )
        )
        return
    chosen = args.attacks or known
    with serving("bench.scripted") as upstream, serving("bench.scripted") as hostile:
        keys = [
            {
                "name": name,
                "sha256": digest(key),
                "roles": ["client", "auditor"] if name == "innocent" else ["client"],
            }
            for name, key in KEYS.items()
        ]
        made = config(upstream)
        made["upstreams"]["hostile"] = {"dialect": "openai", "base_url": f"{hostile}/v1"}
        made["models"].insert(0, {"match": "hostile-*", "upstream": "hostile"})
        with started(made | {"keys": keys}, "--policy-workers", "2") as place:
            measure(place, "warm", 2.0)
            rows = [measure(place, "quiet", min(args.seconds, 10.0))]
            for name in chosen:
                if name in ATTACKS:
                    rows.append(measure(place, name, args.seconds))
                    judge(rows[-1], rows[0])
                else:
                    rows += asyncio.run(going_on(place))
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows)
    sys.exit(not all(row.get("reached", True) for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["attack"]:
        uvloop.run(_attack(sys.argv[2], sys.argv[3], float(sys.argv[4])))
    elif sys.argv[1:2] == ["meter"]:
        uvloop.run(_meter(sys.argv[2]))
    else:
        main()
