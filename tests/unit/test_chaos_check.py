"""The checker of the chaos run finds what it looks for: a hostile client that got something, an
innocent one that was ended."""

import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests.chaos.breaking import Breaker, Fault
from tests.chaos.check import innocent_faults, page_faults
from tests.chaos.check_hostile import hostile_faults, line_faults
from tests.chaos.load import Done
from tests.support.checks.invariants import Recorded, Seen, sum_faults
from tests.support.json_values import Json, as_json
from tests.support.upstreams.cases import frames as anthropic


def openai(*deltas: Json) -> bytes:
    frames = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    return b"".join(b"data: " + as_json(f) + b"\n\n" for f in frames) + b"data: [DONE]\n\n"


def call(name: str, arguments: str) -> Json:
    return {
        "tool_calls": [{"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}]
    }


def found(attack: str, body: bytes, *, dialect: Any = "openai", status: int = 200) -> list[str]:
    seen = Seen(dialect, streams=True, status=status, body=body)
    return list(hostile_faults(Done(1, "hostile", "m", seen, 0, 1, 0, attack=attack), set()))


BAD = {
    "text in pieces": ("harm", openai({"content": "rm "}, {"content": "-rf"})),
    "a phrase over reasoning": (
        "phrases over blocks",
        openai({"content": "Project F"}, {"reasoning": "x"}, {"content": "alcon"}),
    ),
    "a split character": (
        "split characters",
        openai({"content": "\ud83e"}, {"content": "\udd85 plan"}),
    ),
    "a key": (
        "phrases over blocks",
        openai({"content": "sk-abcdefghij"}, {"content": "abcdefghij"}),
    ),
    "prose in an id": ("prose in names", openai({"x": "Project Falcon"})),
    "prose in escapes": ("prose in names", openai().replace(b"data", b"Project\\u0020Falcon", 1)),
    "a tool that was not offered": ("a tool that was not offered", openai(call("deploy", "{}"))),
    "a second call": (
        "a second call",
        openai(
            call("bash", "{}"),
            {"tool_calls": [{"index": 1, "id": "2", "function": {"name": "bash"}}]},
        ),
    ),
    "a statement": ("statements", openai(call("query", '{"sql":"SELECT 1 DELETE FROM users"}'))),
    "an unseen character": ("odd commands", openai(call("bash", '{"command":"r\\u0000m -rf /"}'))),
    "a separator": ("odd commands", openai(call("bash", '{"command":"rm\\u2028-rf /"}'))),
    "a list": ("odd commands", openai(call("bash", '{"command":"rm","args":["-rf"]}'))),
    "full-width letters": ("odd commands", openai(call("bash", '{"command":"\uff52\uff4d -rf"}'))),
    "what is refused": ("headers twice", openai({"content": "hello"})),
}


@pytest.mark.parametrize(("attack", "body"), BAD.values(), ids=BAD)
def test_what_a_hostile_client_may_not_have_is_found(attack: str, body: bytes) -> None:
    assert found(attack, body)
    assert not found(
        attack, openai({"content": "fine"}), status=400 if attack == "headers twice" else 200
    )


def test_texts_of_blocks_are_joined_as_clients_do() -> None:
    deltas = [
        {"type": "content_block_delta", "index": n, "delta": {"type": "text_delta", "text": t}}
        for n, t in enumerate(("rm ", "-rf"))
    ]
    assert found("harm", anthropic(*deltas), dialect="anthropic")


def test_a_field_that_upstream_may_not_see_is_found() -> None:
    done = Done(
        1,
        "hostile",
        "m",
        Seen("openai", streams=True, status=200, body=openai()),
        0,
        1,
        0,
        attack="routing",
    )
    assert list(hostile_faults(done, {"model", "lora"}))
    assert not list(hostile_faults(done, {"model"}))


@pytest.mark.parametrize("sign", "\u2028\u2029\u0085\x0b\x0c\x1c\x1e")
def test_a_line_that_some_readers_split_is_found(sign: str) -> None:
    body = openai({"content": "fine"})
    assert not list(line_faults(Seen("openai", streams=True, status=200, body=body)))
    assert list(
        line_faults(
            Seen("openai", streams=True, status=200, body=body.replace(b"fine", sign.encode()))
        )
    )


class Nothing(Breaker):
    """A breaker that broke what it is told, and is never run."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)


JUDGE = Fault("judge SIGKILL", 0.0, 1.0, visible=False)
GATEWAY = Fault("gateway SIGKILL", 0.0, 1.0, visible=True)
ERROR = b'{"error":{"code":"no_worker","type":"overloaded"}}'
SERVED = Seen("openai", streams=True, status=200, body=openai())
ENDED = {
    "no worker took it": (
        Seen("openai", streams=True, status=503, body=ERROR),
        Recorded(),
        GATEWAY,
    ),
    "its step was ended": (
        Seen("openai", streams=True, status=200, body=openai()),
        Recorded(end=("FAILED", "policy_failed", 200, 1)),
        None,
    ),
    "a judge came late": (SERVED, Recorded(tools=[{"reason": "judge_deadline"}]), JUDGE),
}


@pytest.mark.parametrize(("seen", "recorded", "excuse"), ENDED.values(), ids=ENDED)
def test_an_innocent_call_that_suffers_is_found(
    seen: Seen, recorded: Recorded, excuse: Fault | None
) -> None:
    done = Done(1, "judged", "m", seen, 0.5, 2.0, 0.0)
    assert list(innocent_faults(done, recorded, Nothing()))
    if excuse is not None:
        assert not list(innocent_faults(done, recorded, Nothing(excuse)))
        later = Done(1, "judged", "m", seen, 30.0, 31.0, 0.0)
        assert list(innocent_faults(later, recorded, Nothing(excuse)))


@pytest.mark.parametrize(
    ("at", "is_found"), [(0.9, False), (8.9, False), (9.1, True), (30.0, True), (-0.1, True)]
)
def test_a_takeover_is_held_against_what_was_broken_when_it_happened(
    at: float, is_found: bool
) -> None:
    """Not against what was while its client was there, who had gone before that."""
    recorded = Recorded(taken_over=[at + time.time() - time.monotonic()])
    for done in (
        Done(1, "leaves", "m", SERVED, at - 0.5, at - 0.1, 0.0, left=True),
        Done(1, "judged", "m", SERVED, at - 0.5, at + 1, 0.0),
    ):
        assert bool(list(innocent_faults(done, recorded, Nothing(GATEWAY)))) is is_found
        assert list(innocent_faults(done, recorded, Nothing(JUDGE)))


def test_an_innocent_call_that_is_served_is_not() -> None:
    seen = Seen("openai", streams=True, status=200, body=openai({"content": "fine"}))
    assert not list(
        innocent_faults(Done(1, "judged", "m", seen, 0.5, 2.0, 0.0), Recorded(), Nothing())
    )


FRAMES = [b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]
RELEASES = [(n, n + 1, frame, sha256(frame).digest()) for n, frame in enumerate(FRAMES, 1)]
SUMMED = Recorded(
    end=("ENDED", "complete", 200, 4),
    chunks=[(1, b"x", "allow"), (2, b"y", "allow")],
    releases=RELEASES,
    sums=(2, 3, sha256(b"".join(digest for *_, digest in RELEASES)).digest()),
)
GOT = Seen("openai", streams=True, status=200, body=b"".join(FRAMES))


@pytest.mark.parametrize("count", range(4))
def test_sums_of_what_was_relayed_fit_however_far_it_came(count: int) -> None:
    """The rest went out to a gateway whose client had left."""
    relayed = sha256(b"".join(digest for *_, digest in RELEASES[:count])).digest()
    recorded = replace(SUMMED, end=("FAILED", "client_gone", 200, count + 1), sums=(2, 3, relayed))
    assert sum_faults(replace(GOT, body=b"".join(FRAMES[:count]), whole=False), recorded) == []
    assert count == 3 or sum_faults(GOT, recorded)


HOLES: dict[str, Callable[[Recorded], Recorded]] = {
    "a chunk": lambda r: replace(r, chunks=r.chunks[:1]),
    "the last release": lambda r: replace(r, releases=r.releases[:2]),
    "a release between": lambda r: replace(r, releases=[r.releases[0], r.releases[2]]),
    "a byte of a release": lambda r: replace(
        r, releases=[(1, 2, b"data: 7\n\n", sha256(b"data: 7\n\n").digest()), *r.releases[1:]]
    ),
    "what it says itself": lambda r: replace(
        r, events=[("incomplete", "2 of 3 releases are on record")]
    ),
}


@pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES)
def test_a_record_that_does_not_fit_its_sums_is_found(hole: Callable[[Recorded], Recorded]) -> None:
    assert sum_faults(GOT, SUMMED) == []
    assert sum_faults(GOT, hole(SUMMED))


def test_sums_that_nobody_could_say_are_not_compared() -> None:
    assert (
        sum_faults(GOT, Recorded(end=("FAILED", "gateway_lost", 200, -1), releases=RELEASES)) == []
    )


def test_a_page_that_is_not_what_the_client_got_is_found() -> None:
    page = GOT.body
    left = replace(GOT, body=page[:12], whole=False)
    assert [*page_faults(GOT, page), *page_faults(left, page)] == []
    assert all(list(page_faults(seen, page[:-1])) for seen in (GOT, replace(GOT, whole=False)))
    assert list(page_faults(GOT, page + b": keepalive\n\n")) and list(
        page_faults(replace(left, body=b"data: 2"), page)
    )
