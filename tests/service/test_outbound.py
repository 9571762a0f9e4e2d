"""Connections that leave through a proxy, or with certificates of their own, on real sockets."""

import asyncio
import contextlib
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.errors import UpstreamUnreachable
from providers.origin import Origin
from providers.outbound import Outbound, outbound
from settings.config import Config
from settings.upstreams import Upstream
from sluice.check.upstreams import check_upstreams
from tests.service.test_http1 import pool, post, provider, say_ok
from tests.support.servers.certificates import certificate
from tests.support.waiting import wait_until

LOGIN = "Basic " + b64encode(b"me:a word").decode()


class Proxy:
    """An HTTP proxy that wants a login: tunnels, and forwards requests as they are."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            self.asked.append(f"{method} {target}")
            if f"proxy-authorization: {LOGIN}" not in head:
                writer.write(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")
            elif method == "CONNECT":
                host, _, port = target.rpartition(":")
                there, back = await asyncio.open_connection(host, int(port))
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await asyncio.gather(_pass(reader, back), _pass(there, writer))
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@contextlib.asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    made = Proxy()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


async def test_https_goes_through_a_tunnel_and_http_is_forwarded(tmp_path: Path) -> None:
    pem, context = certificate(tmp_path, "127.0.0.1")
    async with proxy() as between, provider(say_ok, context) as server, pool() as by:
        way = f"http://me:a%20word@127.0.0.1:{between.port}"
        secure = Origin(f"https://127.0.0.1:{server.port}", Outbound(way, str(pem)))
        for _ in range(2):
            assert (await post(server, by, origin=secure)).size == 5
        assert between.asked == [f"CONNECT 127.0.0.1:{server.port}"] and server.connections == 1
        plain = Origin("http://a.example:81/v1", Outbound(way))
        assert (await post(server, by, origin=plain)).size == 5
        assert between.asked[1:] == ["POST http://a.example:81/v1/chat"]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_told_from_the_provider(scheme: str) -> None:
    async with proxy() as between, provider(say_ok) as server, pool() as by:
        way = f"http://me:zebra@127.0.0.1:{between.port}"
        with pytest.raises(UpstreamUnreachable, match=r"proxy 127\.0\.0\.1:\d+ wants") as failed:
            await post(server, by, origin=Origin(f"{scheme}://a.example", Outbound(way)))
        assert failed.value.error_code == "proxy_denied" and "zebra" not in failed.value.message
        assert not server.bodies
    with pytest.raises(UpstreamUnreachable) as failed:
        async with pool() as by:
            await post(server, by, origin=Origin(f"{scheme}://a.example", Outbound(way)))
    assert failed.value.error_code == "proxy_refused"


async def test_certificates_are_shown_and_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two", "mine"):
        (tmp_path / name).mkdir()
    pem, context = certificate(tmp_path / "one", "127.0.0.1")
    other, _ = certificate(tmp_path / "two", "127.0.0.1")
    mine, _ = certificate(tmp_path / "mine", "127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(mine)
    both = tmp_path / "mine" / "127.0.0.1.both.pem"
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(pem.read_bytes())
    async with provider(say_ok, context) as server, pool() as by:
        to = f"https://127.0.0.1:{server.port}"
        origin = Origin(to, Outbound("", str(trusted), str(both)))
        for _ in range(2):
            assert (await post(server, by, origin=origin)).size == 5
        assert server.connections == 1
        # what cannot be read leaves what was
        trusted.write_text("nothing")
        assert (await post(server, by, origin=origin)).size == 5
        assert (await post(server, by, origin=origin)).size == 5
        assert [line.message for line in caplog.records if line.levelname == "ERROR"] == [
            "certificates cannot be read; the earlier ones stay"
        ]
        # a kept connection was made with the old ones
        (tmp_path / "new.pem").write_bytes(other.read_bytes())
        (tmp_path / "new.pem").rename(trusted)
        with pytest.raises(UpstreamUnreachable) as failed:
            await post(server, by, origin=origin)
        assert failed.value.error_code == "upstream_tls"
        await wait_until(lambda: server.left >= 1)
        with pytest.raises(UpstreamUnreachable) as failed:
            await post(server, by, origin=Origin(to, Outbound("", str(tmp_path / "none"))))
        assert failed.value.error_code == "upstream_certificates"


@pytest.mark.parametrize(
    ("url", "variables", "place"),
    [
        ("https://a.example", {"HTTPS_PROXY": "http://p:1"}, ("p", 1)),
        ("https://a.example", {"HTTPS_PROXY": "p:1"}, ("p", 1)),
        ("https://a.example", {"all_proxy": "http://p:1"}, ("p", 1)),
        ("http://a.example", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b, .example"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example:80"}, ("p", 1)),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, ("p", 1)),
        ("https://127.0.0.1:9", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://[::1]:9", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://localhost:9", {"HTTPS_PROXY": "http://p:1"}, None),
    ],
)
def test_the_environments_proxy(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    variables: dict[str, str],
    place: tuple[str, int] | None,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for written in (name, name.upper()):
            monkeypatch.delenv(written, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = outbound(url, Upstream(dialect="openai", base_url=url))
    assert (made and made.place) == place
    own = outbound(url, Upstream(dialect="openai", base_url=url, proxy="http://q:2"))
    assert own is not None and own.place == ("q", 2)
    assert outbound(url, Upstream(dialect="openai", base_url=url, proxy="")) is None


@pytest.mark.parametrize(
    "wrong", ["socks5://p:1", "https://p", "http://", "http://p:x", "http://p/x"]
)
def test_a_proxy_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        outbound("https://a.example", Upstream(dialect="openai", base_url="https://a", proxy=wrong))


async def test_the_doctor_goes_the_same_way() -> None:
    async with proxy() as between:
        mine = Upstream(
            dialect="openai", base_url="https://a.example", proxy=f"http://127.0.0.1:{between.port}"
        )
        [(_, state, message)] = await asyncio.to_thread(
            check_upstreams, Config(upstreams={"mine": mine}), step_s=5.0
        )
        assert (state, between.asked) == ("failed", ["CONNECT a.example:443"])
        assert "proxy: the proxy 127.0.0.1" in message and "another login" in message
