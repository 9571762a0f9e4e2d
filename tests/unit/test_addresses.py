"""URLs of the operator's own network are refused in every spelling, in both dialects, wherever a
server would fetch them."""

import pytest

from policy.session.effects import Respond, SendUpstream
from policy.session.session import Session
from protocol.request import DialectName
from protocol.requests.addresses import is_private
from tests.support.clients.answering import CONFIG, MODEL
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

PRIVATE = """http://169.254.169.254/latest http://localhost/ http://LOCALHOST./x https://127.0.0.1 http://2130706433/ http://0x7f000001
http://0177.0.0.1 http://0x7f.1 http://127.1 http://[::1]/ http://[::ffff:127.0.0.1] http://[::ffff:a9fe:a9fe] http://[64:ff9b::a9fe:a9fe]
http://10.0.0.1 http://192.168.1.1 http://172.16.0.1 http://100.64.0.1 http://user@127.0.0.1/ http://127.0.0.1@example.com/
http://example.com@127.0.0.1 http://metadata.google.internal/ http://metadata/ http:\\\\127.0.0.1\\x http:/127.0.0.1 http:127.0.0.1
http://127。0。0。1 http://①②⑦.0.0.1 http://localhost:80 http://0/ http://0.0.0.0 http://[fe80::1%25eth0]/ http://[fd00::1]
http://127.0.0.1.:80 //127.0.0.1/x file:///etc/passwd HTTP://127.0.0.1 http://%31%32%37.0.0.1 http://a.svc http://redis:6379
http://[::7f00:1] http://010.0.0.1 http://169.254.169.254.:80/ http://3232235777 http://[2002:7f00:1::] http://127.0.0.1\\@example.com
http://example.com#@127.0.0.1 http://0300.0250.0.1 http://ⓛocalhost http://[::1 gopher://127.0.0.1 http:// http://224.0.0.1
http://[2001:0:a9fe:a9fe:0:0:5601:5601] http://99999999999999999999 http://1.2.3.4.5.localhost http://0x""".split()
ODD = [
    "http://127.0.0\t.1",
    "\x01http://127.0.0.1",
    " http://127.0.0.1",
    "http://127.0.0\u200b.1",
]
PUBLIC = """https://example.com/a.png http://8.8.8.8/x https://[2606:4700::1111]/ data:image/png;base64,xx aGVsbG8=
https://upload.wikimedia.org/x?u=http://localhost https://user:pw@example.com/x https://example.com:8443/x
https://xn--bcher-kva.example.com https://a.b.co/#127.0.0.1 https://cdn.internal-tools.com/x file-abc
https://bücher.example.com/""".split()


@pytest.mark.parametrize("url", [*PRIVATE, *ODD])
def test_a_url_of_the_own_network_is_found(url: str) -> None:
    assert is_private(url)


@pytest.mark.parametrize("url", PUBLIC)
def test_a_public_url_is_not(url: str) -> None:
    assert not is_private(url)


def test_a_large_data_url_costs_nothing() -> None:
    assert not is_private("data:image/png;base64," + "A" * 10_000_000)


def parts(url: str) -> list[tuple[DialectName, list[Json]]]:
    image: Json = {"type": "image", "source": {"type": "url", "url": url}}
    document: Json = {"type": "document", "source": {"type": "url", "url": url}}
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "x", "input": {}}],
    }
    openai_image = {"type": "image_url", "image_url": {"url": url}}
    openai_call = {
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
        ],
    }
    return [
        ("openai", [{"role": "user", "content": [openai_image]}]),
        ("openai", [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]),
        (
            "openai",
            [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": url}}]}],
        ),
        ("openai", [{"role": "user", "content": [{"type": "file", "file": {"file_url": url}}]}]),
        (
            "openai",
            [
                {"role": "user", "content": "x"},
                openai_call,
                {"role": "tool", "tool_call_id": "c", "content": [openai_image]},
            ],
        ),
        ("anthropic", [{"role": "user", "content": [image]}]),
        ("anthropic", [{"role": "user", "content": [document]}]),
        (
            "anthropic",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "content", "content": [image]}}
                    ],
                }
            ],
        ),
        (
            "anthropic",
            [
                call,
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c", "content": [image]}],
                },
            ],
        ),
    ]


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("private_urls", ["refuse", "pass"])
def test_the_request_is_refused_unless_the_operator_lets_it_pass(
    number: int, private_urls: str
) -> None:
    config = CONFIG.model_copy(update={"private_urls": private_urls})
    for url, is_refused in (
        ("http://169.254.169.254/x.png", private_urls == "refuse"),
        ("https://example.com/x.png", False),
    ):
        dialect, messages = parts(url)[number]
        session = Session(
            call_info("c", dialect, max_arguments_bytes=1000),
            [],
            config,
        )
        session.begin(as_json({"model": MODEL[dialect], "max_tokens": 5, "messages": messages}))
        [out] = session.drain().outputs
        assert isinstance(out, Respond) == is_refused, out
        if isinstance(out, Respond):
            assert out.status == 400 and b"own network" in out.body
        else:
            assert isinstance(out, SendUpstream)
