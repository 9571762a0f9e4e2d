"""Connections to upstreams: one that its provider closed as it was used again; why one cannot be
had is on record and in the log."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.support.json_values import Json, as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import CLIENT_KEY, KEY, ROOT, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.product import call_of, new_session
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.waiting import wait_for

ANSWER = as_json(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "finish_reason": "stop",
            }
        ],
    }
)
HELLO = (
    b"data:"
    b' {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
)


class Closing(threading.Thread):
    """A provider that answers one request on each connection and takes the next, but says no word
    to it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.requests = self.connections = 0
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            # the connections of this test come one after the other, but for one that was given up
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as read:
            for number in range(2):
                size = 0
                while (line := read.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                if not line:
                    return
                read.read(size)
                self.requests += 1
                if not number:
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:"
                        b" %d\r\n\r\n" % len(ANSWER) + ANSWER
                    )

    def stop(self) -> None:
        """Listen no longer."""
        self.listening.close()


@pytest.fixture(scope="module")
def closing() -> Iterator[Closing]:
    made = Closing()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def product(
    stores: Stores,
    replay: Replay,
    closing: Closing,
) -> Iterator[Product]:
    config = upstreams.config(replay)
    places = {
        "closing": f"http://127.0.0.1:{closing.port}",
        "refused": f"http://127.0.0.1:{free_port()}",
        "dns": "http://no-such-host.invalid",
        # no TLS is spoken there
        "tls": f"https://127.0.0.1:{replay.port}",
        "told": replay.url,
    }
    config["upstreams"] |= {
        name: {"dialect": "openai", "base_url": url + "/v1"} for name, url in places.items()
    }
    config["upstreams"]["keyless"] = config["upstreams"]["told"] | {
        "api_key_env": "TEST_KEY_THAT_NOBODY_SET"
    }
    config["models"] += [{"match": name, "upstream": name} for name in (*places, "keyless")]
    config["limits"] |= {
        "first_byte_s": 1.0,
        "idle_s": 1.0,
        "output_bytes": 2**20,
        "event_bytes": 2**14,
    }
    dev, app = config["keys"]
    config["keys"] = [dev, app | {"policies": ["noop"], "server_tools": ["web_search"]}]
    with running(*stores, config) as made:
        yield made


def ask(
    product: Product, model: str, *, streams: bool = False, key: str = KEY
) -> tuple[httpx.Response, Json]:
    """The answer, and the call as it is on record."""
    session = new_session()
    body = {"model": model, "stream": streams, "messages": [{"role": "user", "content": "go"}]}
    headers = {
        "authorization": f"Bearer {key}",
        "x-sluice-policy": "noop",
        "x-sluice-session": session,
    }
    answer = httpx.post(
        f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=20
    )
    call = product.audit(f"calls/{call_of(product, session)['call_id']}")
    # of the session there is always one
    return answer, call | {
        "events": [
            event
            for event in call["events"]
            if event["kind"] not in ("identified", "usage_estimated")
        ]
    }


def events(call: Json) -> list[str]:
    return [event["kind"] for event in call["events"]]


@pytest.mark.slow
def test_a_request_on_a_connection_that_the_provider_closed_is_sent_once_more_and_that_is_on_record(
    product: Product, closing: Closing
) -> None:
    first, _ = ask(product, "closing")
    before, connections = closing.requests, closing.connections
    second, call = ask(product, "closing")
    assert (first.status_code, second.status_code) == (200, 200) and "hello" in second.text
    assert (closing.requests, closing.connections) == (before + 2, connections + 1)
    assert call["reason"] == "complete" and events(call) == ["upstream_repeated"]
    # what a provider does for a request must not be done twice: keys that may ask for that get the
    # error
    third, call = ask(product, "closing", key=CLIENT_KEY)
    assert third.status_code == 502 and events(call) == ["upstream_closed"]
    assert closing.requests == before + 3


CUT = stream(HELLO, ending="cut")
SILENT = Reply(b"", ending="hang", cutting="events")
ZIPPED = Reply(
    b"\x1f\x8b\x08\x00zip", content_type="text/event-stream", headers={"content-encoding": "gzip"}
)


@pytest.mark.parametrize(
    ("model", "reply", "status", "code", "said", "why"),
    [
        ("refused", None, 502, "upstream_refused", "the upstream cannot be reached", "refused"),
        (
            "dns",
            None,
            502,
            "upstream_dns",
            "the upstream cannot be reached",
            "no-such-host.invalid",
        ),
        ("tls", None, 502, "upstream_tls", "the upstream cannot be reached", "SSL"),
        (
            "told",
            CUT,
            200,
            "upstream_cut",
            "the upstream's answer was cut",
            "closed the connection before its answer was complete",
        ),
        (
            "told",
            ZIPPED,
            502,
            "upstream_encoding",
            "answer is compressed in a way that cannot be opened",
            "compressed",
        ),
        (
            "told",
            SILENT,
            504,
            "upstream_timeout",
            "the upstream did not answer in time",
            "silent for too long",
        ),
    ],
    ids=["refused", "dns", "tls", "cut", "zipped", "silent"],
)
@pytest.mark.slow
def test_why_an_upstream_failed_is_on_record_and_in_the_log(
    product: Product,
    replay: Replay,
    model: str,
    reply: Reply | None,
    status: int,
    code: str,
    said: str,
    why: str,
) -> None:
    if reply is not None:
        replay.answer(reply)
    answer, call = ask(product, model, streams=True)
    assert answer.status_code == status and said in answer.text
    assert events(call) == [code]
    (event,) = call["events"]
    # which host, and what the network said: on record and in the log, not for the client
    assert (
        "://" in event["detail"] and why in event["detail"] and event["detail"] not in answer.text
    )
    assert "://" not in answer.text and "no-such-host" not in answer.text
    line = log_line(product, call)
    assert code in line and "upstream failed" in line and event["detail"] in json.loads(line)["why"]
    (told,) = [
        said
        for name, said in doctor(product)
        if name == "upstream failures" and f"the upstream {model!r} " in said
    ]
    assert f"({code}, " in told and " failed in " in told


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 402])
def test_a_refused_key_names_where_it_comes_from_to_the_operator_alone(
    product: Product, replay: Replay, status: int
) -> None:
    replay.answer(
        Reply(b'{"error":{"message":"Incorrect API key provided: sk-none"}}', status=status)
    )
    answer, call = ask(product, "keyless")
    code = {401: "upstream_authentication", 402: "upstream_billing"}[status]
    assert (
        answer.status_code == 502
        and answer.json()["error"]["code"] == code
        and "TEST_KEY" not in answer.text
    )
    assert (
        events(call) == [code]
        and "the key in the variable TEST_KEY_THAT_NOBODY_SET" in call["events"][0]["detail"]
    )
    (told,) = [
        said
        for name, said in doctor(product)
        if name == "upstream failures" and "'keyless'" in said
    ]
    assert f"({code}, 1)" in told and "the key in the variable TEST_KEY_THAT_NOBODY_SET" in told
    if status == 401:
        line = json.loads(log_line(product, call))
        assert (line["message"], line["key_from"], line["key_is_set"]) == (
            "upstream refused the key",
            "the variable TEST_KEY_THAT_NOBODY_SET",
            False,
        )


def log_line(product: Product, call: Json) -> str:
    (gateway,) = product.of("gateway")
    lines = gateway.log.read_text
    return wait_for(
        lambda: next((x for x in lines().splitlines() if call["call_id"] in x), None),
        what="a line in the log",
    )


def doctor(product: Product) -> list[tuple[str, str]]:
    """What `sluice doctor` warns of."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "SLUICE_CONFIG": str(product.config_file),
        "SLUICE_REDIS_URL": product.redis_url,
        "SLUICE_DATABASE_URL": product.database_url,
        "PYTHONPATH": str(ROOT),
    }
    said = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "doctor", "--json"],
        env=env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return [
        (one["name"], one["message"])
        for one in json.loads(said.stdout)["checks"]
        if one["state"] == "warning"
    ]


@pytest.mark.slow
def test_an_event_may_have_six_times_the_bytes_of_arguments(
    product: Product, replay: Replay
) -> None:
    for size, reason in ((5 * 2**14, "complete"), (7 * 2**14, "api_error")):
        replay.answer(
            stream(
                HELLO.replace(b'"hi"', b'"%b"' % (b"x" * size))
                + HELLO.replace(b'{"content":"hi"}', b'{},"finish_reason":"stop"')
                + b"data: [DONE]\n\n"
            )
        )
        answer, call = ask(product, "told", streams=True)
        assert call["reason"] == reason, answer.text[-300:]
