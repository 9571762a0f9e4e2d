"""Caddy and nginx in front, which use a connection for one client after another: nobody gets an
answer to somebody else's request."""

import json
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from tests.support.clients.packages import missing
from tests.support.clients.raw import Answers
from tests.support.json_values import as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import CLIENT_KEY, KEY, Product
from tests.support.waiting import wait_for

CADDYFILE = """{
    admin off
}
http://:%(port)d {
    bind 127.0.0.1
    reverse_proxy 127.0.0.1:%(gateway)d
}"""
NGINX = """daemon off; master_process off; pid %(folder)s/pid; error_log %(folder)s/error.log;
events {}
http {
    access_log off; client_body_temp_path %(folder)s/bodies; proxy_temp_path %(folder)s/answers;
    fastcgi_temp_path %(folder)s/f; uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    upstream gateway { server 127.0.0.1:%(gateway)d; keepalive 1; }
    server {
        listen 127.0.0.1:%(port)d;
        location / {
            proxy_pass http://gateway; proxy_http_version 1.1; proxy_request_buffering off;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
        }
    }
}"""
COMMANDS = {
    "caddy": (["run", "--adapter", "caddyfile", "--config"], CADDYFILE),
    "nginx": (["-e", "stderr", "-c"], NGINX),
}
OFFERS = (
    "Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
)
SLOW = json.dumps(
    {"model": "demo", "messages": [{"role": "user", "content": "long 10 slowly, with a gap 50 ms"}]}
)
SMUGGLED = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer"
    f" {KEY}\r\nContent-Length: {len(SLOW)}\r\n\r\n{SLOW}".encode()
)
PAUSE_S = 0.3


@pytest.fixture(scope="module", params=["caddy", "nginx"])
def port(
    request: pytest.FixtureRequest, product: Product, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """Where the proxy listens."""
    program = shutil.which(request.param) or shutil.which(request.param, path="/usr/sbin")
    if program is None:
        missing(f"no {request.param}: `apt-get install {request.param}`")
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    arguments, text = COMMANDS[request.param]
    file = folder / "config"
    file.write_text(text % {"port": port, "gateway": product.port, "folder": folder})
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *arguments, str(file)], stdout=log, stderr=log, env={"HOME": str(folder)}
        )
    try:
        wait_for(lambda: answers_at(port), what=f"{request.param} listens")
        yield port
    finally:
        process.kill()
        process.wait()


def answers_at(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def sent_in_two(
    port: int,
    lines: str,
    body: bytes,
    key: str = KEY,
    *,
    path: str = "/v1/chat/completions",
    pause_s: float = PAUSE_S,
) -> list[tuple[int, bytes]]:
    """The answers to one request whose head and body come apart."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type:"
        f" application/json\r\n{lines}\r\n"
    )
    data = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode())
        time.sleep(pause_s)
        connection.sendall(body)
        while not Answers(data).whole:
            piece = connection.recv(65536)
            if not piece:
                break
            data += piece
        connection.settimeout(PAUSE_S)
        try:
            while piece := connection.recv(65536):
                data += piece
        except (TimeoutError, ConnectionResetError):
            # a reset is an end too: the answer came before all of the body
            pass
    return Answers(data).whole


@pytest.mark.slow
@pytest.mark.parametrize("offer", OFFERS)
def test_no_answer_is_shifted(port: int, offer: str) -> None:
    """The body of each attack is a slow request. A proxy passes it on behind the head, which was
    answered if that counts as a request; and uses the connection for the next client soon after."""

    def attack(number: int) -> tuple[int, ...]:
        key, lines = (
            (KEY if number % 4 else "sk-wrong"),
            f"{offer}Content-Length: {len(SMUGGLED)}\r\n",
        )
        return tuple(
            status
            for status, _ in sent_in_two(port, lines, SMUGGLED, key, pause_s=number % 12 * 0.005)
        )

    def ask(number: int) -> tuple[int, bool]:
        model = f"victim-{number}"
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
        headers = {"authorization": f"Bearer {CLIENT_KEY}"}
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers=headers, timeout=20
        )
        return answer.status_code, model in answer.text

    with ThreadPoolExecutor(4) as attackers, ThreadPoolExecutor(4) as victims:
        attacks = [attackers.submit(attack, number) for number in range(36)]
        asked = Counter[tuple[int, bool]]()
        while not all(one.done() for one in attacks):
            asked.update(victims.map(ask, range(8)))
    assert set(asked) == {(404, True)}
    assert {one.result() for one in attacks} <= {(400,), (401,)}


@pytest.mark.parametrize("is_chunked", [False, True], ids=["sized", "chunked"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_clients_that_offer_http_2_have_their_answer(
    port: int, path: str, is_chunked: bool
) -> None:
    """As the JDK's HttpClient sends it, to everybody."""
    prompt = (
        {"input": "hello"}
        if path == "/v1/responses"
        else {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 99}
    )
    body = as_json({"model": "demo", **prompt})
    settings = "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n"
    framing = "Transfer-Encoding: chunked\r\n" if is_chunked else f"Content-Length: {len(body)}\r\n"
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    ((status, _),) = sent_in_two(
        port,
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{settings}{framing}",
        data,
        path=path,
    )
    assert status == 200


def test_curl_that_offers_http_2_has_its_answer(port: int, product: Product) -> None:
    if (curl := shutil.which("curl")) is None:
        missing("no curl: `apt-get install curl`")
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hello"}]})
    for at in (port, product.port):
        arguments = [
            "--http2",
            "-sS",
            "-m",
            "20",
            "-H",
            f"authorization: Bearer {KEY}",
            "-d",
            body,
            "-w",
            "\n%{http_code}",
        ]
        done = subprocess.run(
            [curl, *arguments, f"http://127.0.0.1:{at}/v1/chat/completions"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith("\n200")
