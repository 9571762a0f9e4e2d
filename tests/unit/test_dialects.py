"""The table of dialects: whole, immutable, and the only place outside the dialects' folders that
names them."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from protocol.dialects.base import Dialect
from protocol.dialects.table import CLIENTS, DEFAULT, DIALECTS, check_name, client_paths, of_client
from protocol.errors import InvalidRequest, StreamProtocolError
from providers.doors.table import open_door
from settings.config import DEMO_MODELS, Upstream
from streams import layout
from tests.support import toy
from tests.support.repository import ROOT, tracked
from tests.support.worker_calls import start_of

PRODUCT = (
    *("gateway", "workers", "policy", "db", "protocol", "streams", "providers", "sluice"),
    *("settings", "demo"),
)
NAMED = re.compile(r'"(?:openai|anthropic)"|\.dialect (?:==|!=) (?!\w+\.dialect\b)')
GUIDED = ("protocol/target.py", "protocol/text_calls/prompt.py", "sluice/agents/agents.py")
"""`guided: openai` is the name of a server's way to take a schema; the last has settings of other
programs."""


def test_nobody_but_the_dialects_names_a_dialect() -> None:
    found = {}
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if (
            path.suffix != ".py"
            or not name.startswith(tuple(f"{folder}/" for folder in PRODUCT))
            or name in GUIDED
        ):
            continue
        own = {Path(*one.__module__.split(".")).as_posix() for one in DIALECTS.values()}
        if not name.startswith(tuple(f"{folder}/" for folder in own)) and (
            lines := NAMED.findall(path.read_text(encoding="utf-8"))
        ):
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_has_what_the_table_asks_of_it(name: str) -> None:
    one = DIALECTS[name]
    client = CLIENTS.get(name)
    assert (
        one.name == name and {one.answers, one.streams or one.answers} <= one.upstream_paths.keys()
    )
    client_endpoints = set(client.client_paths.values()) if client is not None else set[str]()
    assert (
        (one.token_counts is not None)
        == ("count_tokens" in one.upstream_paths)
        == ("count_tokens" in client_endpoints)
    )
    assert one.turns is not None or not one.pauses
    assert one.decoder() is not None and one.decode_error(429, b"", None).status == 429
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]
    if client is not None:
        assert client.changes() is not None and one.answers in client_endpoints
        assert client.about.keys() == client_endpoints
        assert (client.keeper() is not None) == bool(client.kept_path)


def test_a_dialect_without_one_of_its_modules_cannot_be_made() -> None:
    class Half(Dialect):
        """Names no module."""

        name = answers = "half"
        upstream_paths = {"half": "/"}  # noqa: RUF012 - as the others
        judge_replies = ("text",)

    with pytest.raises(TypeError, match=r"abstract methods? _decode, _failures, _write"):
        Half()  # type: ignore[abstract]


def test_the_smallest_dialect_is_small() -> None:
    modules = [ast.parse(path.read_text("utf-8")) for path in Path(*toy.__path__).glob("*.py")]
    assert sum(len(list(ast.walk(module))) for module in modules) < 1700


def test_two_dialects_share_no_path_and_no_header() -> None:
    assert len(client_paths()) == sum(len(one.client_paths) for one in CLIENTS.values())
    headers = [header for one in CLIENTS.values() for header in one.error_headers]
    assert len(headers) == len(set(headers))


def test_errors_are_told_in_the_dialect_of_path_or_headers() -> None:
    assert of_client("/v1/messages/batches", []) is DIALECTS["anthropic"]
    assert of_client("/nowhere", [(b"anthropic-version", b"x")]) is DIALECTS["anthropic"]
    assert (
        of_client("/v1/chat/completions", [(b"accept", b"x")])
        is of_client("/nowhere", [])
        is DEFAULT
    )


def test_a_name_is_checked_where_it_comes_in() -> None:
    assert check_name("openai") == "openai"
    with pytest.raises(ValueError, match="no dialect has the name 'nobody'"):
        check_name("nobody")
    with pytest.raises(ValueError, match="'openai' or 'anthropic'"):
        Upstream.model_validate({"dialect": "nobody", "base_url": "http://x"})
    start = start_of(b"", layout.new_call_id(), policies=(), body_sha256=b"")
    packed = msgspec.msgpack.encode(start)
    assert layout.unpack_start(packed) == start
    with pytest.raises(StreamProtocolError):
        layout.unpack_start(packed.replace(b"\xa6openai", b"\xa6nobody"))


def test_each_dialect_has_a_demo_model() -> None:
    assert {"demo": None, **{f"demo-{name}": name for name in CLIENTS}} == DEMO_MODELS
    assert {"demo-openai", "demo-anthropic"} <= DEMO_MODELS.keys()


@pytest.mark.parametrize("model", ["..", ".", "a\nb", "a\ud800"])
def test_a_model_that_no_path_can_hold_is_refused(model: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot stand in the path"):
        toy.DIALECT.asked("ask", model)
    assert DIALECTS["openai"].asked("chat", model) == "chat"


def test_a_model_in_a_path_is_one_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "toy", toy.DIALECT)
    upstream = Upstream(dialect="toy", base_url="http://there/api/")
    door = open_door(upstream)
    path = door.path(toy.DIALECT.asked("tell", "a/../b c?d#{model}"))
    assert path == "/a%2F..%2Fb%20c%3Fd%23%7Bmodel%7D/tell?as=steps"
    assert door.origin.head(path, {}).startswith(
        b"POST /api/a%2F..%2Fb%20c%3Fd%23%7Bmodel%7D/tell?as=steps HTTP/1.1\r\nhost: there\r\n"
    )
    assert door.path("models") == "/models"
