"""The table of dialects: whole, immutable, and the only place outside the dialects' folders that
names them."""

import ast
import re
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from protocol.config import DEMO_MODELS, Upstream
from protocol.dialects import CLIENTS, DEFAULT, DIALECTS, check_name, client_paths, of_client
from protocol.errors import InvalidRequest, StreamProtocolError
from providers import endpoints
from streams import layout
from tests.support import toy
from tests.unit.test_repository import ROOT, tracked

PRODUCT = ("gateway", "workers", "policy", "db", "protocol", "streams", "providers", "sluice")
NAMED = re.compile(r'"(?:openai|anthropic)"|\.dialect (?:==|!=) (?!\w+\.dialect\b)')
GUIDED = ("protocol/target.py", "protocol/text_calls/prompt.py", "sluice/agents.py")
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
        own = {Path(*one.package.split(".")).as_posix() for one in DIALECTS.values()}
        if not name.startswith(tuple(f"{folder}/" for folder in own)) and (
            lines := NAMED.findall(path.read_text(encoding="utf-8"))
        ):
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_folder_has_what_the_table_asks_of_it(name: str) -> None:
    one = DIALECTS[name]
    wanted = {
        "decode": ("StreamDecoder", "decode_whole"),
        "write": ("encode",),
        "failures": ("decode_error", "error_body"),
    }
    if name in CLIENTS:
        wanted |= {"encode": ("make",), "read": ("decode",)} | (
            {} if one.is_plain else {"neutral": ("neutral",)}
        )
        wanted["failures"] += "failed_response", "error_frame"
        assert one.changes() is not None and one.answers in one.client_paths.values()
    wanted |= {"turn": ("TurnBuilder", "with_turns")} if one.has_turns else {}
    wanted |= {"count_tokens": ("as_count", "decode_count", "encode_count")} if one.counts else {}
    for module, names in wanted.items():
        made = import_module(f"{one.package}.{module}")
        assert [n for n in names if not callable(getattr(made, n, None))] == []
    assert (
        one.name == name and {one.answers, one.streams or one.answers} <= one.upstream_paths.keys()
    )
    assert (
        one.counts
        == ("count_tokens" in one.upstream_paths)
        == ("count_tokens" in one.client_paths.values())
    )
    assert one.has_turns or not one.pauses
    assert one.about.keys() == set(one.client_paths.values())
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]


def test_the_smallest_dialect_is_small() -> None:
    modules = [ast.parse(path.read_text("utf-8")) for path in Path(*toy.__path__).glob("*.py")]
    assert sum(len(list(ast.walk(module))) for module in modules) < 1700


def test_two_dialects_share_no_path_and_no_header() -> None:
    assert len(client_paths()) == sum(len(one.client_paths) for one in DIALECTS.values())
    headers = [header for one in DIALECTS.values() for header in one.error_headers]
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
    start = layout.Start(
        call_id=layout.new_call_id(),
        at=1,
        gateway="g",
        dialect="openai",
        endpoint="chat",
        key="k",
        policies=(),
        policy="",
        session="",
        nonce="n",
        deadline=2,
        key_id="k",
        policy_sets=(),
        body_sha256=b"",
    )
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
    origin, path = endpoints.address(upstream, toy.DIALECT.asked("tell", "a/../b c?d#{model}"))
    assert path == "/a%2F..%2Fb%20c%3Fd%23%7Bmodel%7D/tell?as=steps"
    assert origin.head(path, {}).startswith(
        b"POST /api/a%2F..%2Fb%20c%3Fd%23%7Bmodel%7D/tell?as=steps HTTP/1.1\r\nhost: there\r\n"
    )
    assert endpoints.address(upstream, "models")[1] == "/models"
