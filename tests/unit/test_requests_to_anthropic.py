"""Requests of chat/completions clients, as a Messages provider gets them: a case for each field
(docs/change/protocol.md 1.1, 1.2)."""

import base64
import json
from typing import Any

import msgspec
import pytest

from protocol.errors import InvalidRequest
from protocol.request import OtherPart, Part, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.target import Target
from tests.support.clients.to_anthropic import (
    ANSWER,
    EPHEMERAL,
    EVERY,
    NEWEST,
    SYSTEM,
    TOOL,
    UNKNOWN,
    USER,
    call,
    cross,
    file,
    image,
    read,
    refused,
    translate,
)
from tests.support.json_values import Json
from tests.support.request_codecs import sent_body, written_body

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = base64.b64encode(b"%PDF-1.7 ...").decode()


def texts(*values: str) -> list[Json]:
    return [{"type": "text", "text": value} for value in values]


# --- messages ---


def test_every_leading_system_message_is_a_block_of_its_own_and_keeps_what_it_marks_for_the_cache() -> (
    None
):
    marked = [
        {"type": "text", "text": "b", "cache_control": EPHEMERAL},
        {"type": "text", "text": "c"},
        {"type": "text", "text": " "},
    ]
    messages = [
        {"role": "system", "content": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"role": "developer", "content": marked},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}],
            "name": "n",
        },
        {"role": "system", "content": " "},
        USER,
    ]
    done = translate(messages=messages)
    assert sent_body(done)["system"] == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "b", "cache_control": EPHEMERAL},
        {"type": "text", "text": "c"},
        {"type": "text", "text": "de"},
    ]
    assert done.dropped == ("messages[].name",)
    # a policy that rewrote the text does not bring the old one back
    request = msgspec.structs.replace(read({"messages": messages}), system=("A", "B", "C", ""))
    body = written_body(request, Target(dialect="anthropic"))
    assert [block["text"] for block in body["system"]] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([USER, SYSTEM, ANSWER, USER], ["user", "system", "assistant", "user"]),
        ([USER, SYSTEM], ["user", "system"]),
        ([USER, SYSTEM, {"role": "developer", "content": "t"}], ["user", "system"]),
        ([USER, SYSTEM, USER], ["user"]),
        ([USER, SYSTEM, {"role": "assistant", "content": " "}, USER], ["user"]),
        ([USER, ANSWER, SYSTEM, ANSWER], ["user", "assistant", "user", "assistant"]),
    ],
)
def test_a_later_system_message_stays_one_where_the_model_and_the_place_allow_it(
    messages: list[Any], roles: list[str]
) -> None:
    assert [m["role"] for m in cross(model=NEWEST, messages=messages)["messages"]] == roles
    for model in (UNKNOWN, "claude-opus-4-7"):
        written = cross(model=model, messages=messages)["messages"]
        assert "system" not in [m["role"] for m in written]
        assert "[system message] s" in json.dumps(written)


@pytest.mark.parametrize(
    "message",
    [SYSTEM, {"role": "tool", "tool_call_id": "a", "content": "x"}, USER],
    ids=lambda m: str(m["role"]),
)
@pytest.mark.timeout(10)
def test_many_messages_of_one_kind_take_linear_time(message: Json) -> None:
    done = translate(model=NEWEST, messages=[SYSTEM, USER, *[message] * 9_900])
    assert done.body is not None
    assert done.body.count(b'"x"') + done.body.count(b'"s"') > 9_900


def test_messages_of_the_same_role_are_one_and_empty_text_is_none() -> None:
    messages = [
        USER,
        {"role": "user", "content": [*texts("", " ", "b")]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "c"},
    ]
    assert cross(messages=messages)["messages"] == [
        {"role": "user", "content": texts("x", "b", "c")}
    ]
    assert refused(messages=[{"role": "user", "content": " "}]) == "messages"


def test_a_request_of_system_messages_alone_asks_the_last_of_them() -> None:
    body = cross(messages=[SYSTEM, {"role": "developer", "content": "Say hello."}])
    assert (body["system"], body["messages"]) == (
        texts("s"),
        [{"role": "user", "content": texts("Say hello.")}],
    )


def test_an_image_in_a_result_stays_an_image() -> None:
    content = [
        *texts("see"),
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    result = cross(messages=messages)["messages"][2]["content"][0]["content"]
    assert [block["type"] for block in result] == ["text", "image"]


def test_a_result_that_failed_says_so() -> None:
    request = msgspec.structs.replace(
        read({}), turns=(Turn("user", (ToolResultPart("a", "no", is_error=True),)),)
    )
    block = written_body(request, Target(dialect="anthropic"))["messages"][0]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}


def user(*parts: Json) -> list[Json]:
    written: list[Json] = cross(messages=[{"role": "user", "content": list(parts)}])["messages"][0][
        "content"
    ]
    return written


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_what_its_first_bytes_say_and_not_its_label(start: bytes, kind: str) -> None:
    data = base64.b64encode(start + b"....").decode()
    source = {"type": "base64", "media_type": kind, "data": data}
    assert user(image(f"data:image/x-anything;base64,{data}")) == [
        {"type": "image", "source": source}
    ]


def test_an_images_address_is_passed_on_and_never_fetched() -> None:
    for url in ("https://example.org/a.png?b=c", "http://169.254.169.254/latest/meta-data"):
        assert user(image(url)) == [{"type": "image", "source": {"type": "url", "url": url}}]
    assert translate(
        messages=[{"role": "user", "content": [image("https://x", detail="high")]}]
    ).dropped == ("messages[].image_url.detail",)
    assert (
        translate(
            messages=[{"role": "user", "content": [image("https://x", detail="auto")]}]
        ).dropped
        == ()
    )


def test_files_are_documents_and_keep_their_name() -> None:
    """LiteLLM leaves the name out."""
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    expected = [{"type": "document", "source": source, "title": "a.pdf"}]
    assert user(file(file_data=f"data:application/pdf;base64,{PDF}", filename="a.pdf")) == expected
    assert user(file(file_data=PDF, filename="a.pdf")) == expected
    text = base64.b64encode("schön".encode()).decode()
    assert user(file(file_data=f"data:text/plain;charset=utf-8;base64,{text}")) == [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "schön"},
        }
    ]
    assert (
        user(file(file_data=f"data:image/png;base64,{PNG}"))[0]["source"]["media_type"]
        == "image/png"
    )


def test_a_stored_file_needs_its_family() -> None:
    messages = [{"role": "user", "content": [file(file_id="file_1")]}]
    done = translate(messages=messages)
    expected = [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]
    assert sent_body(done)["messages"][0]["content"] == expected
    assert done.betas == ("files-api-2025-04-14",)
    with pytest.raises(InvalidRequest, match="file_id"):
        translate(messages=messages, families=frozenset())
    assert refused(messages=[{"role": "user", "content": [file(file_id=7)]}]) == "messages"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (image("data:image/png;base64,QUJD"), "neither JPEG"),
        (image("data:image/svg+xml;base64,PHN2Zy8+"), "neither JPEG"),
        (image("data:image/png;base64,!"), "not valid base64"),
        (image("data:image/png,abc"), "in base64"),
        (image("data:image/png;base64"), "in base64"),
        (image("file:///etc/passwd"), "http"),
        (image("ftp://x"), "http"),
        (image(7), "must be a string"),
        ({"type": "image_url"}, "must be a string"),
        (
            image(
                "data:image/png;base64,"
                + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20 * 1024 * 1024)).decode()
            ),
            "larger",
        ),
        (file(), "file_data or file_id"),
        ({"type": "file"}, "file_data or file_id"),
        (file(file_data="data:application/zip;base64,UEsDBA=="), "neither a PDF"),
        (file(file_data="data:text/plain;base64,/w=="), "UTF-8"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "audio"),
        ({"type": "document", "source": {}}, "document"),
        ({"type": "refusal", "refusal": 7}, "refusal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "part",
)
def test_parts_that_the_provider_cannot_be_given_are_refused(part: Json, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        translate(messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == "messages"


def test_what_an_assistant_said_before() -> None:
    refusal = {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}, {"type": "refusal", "refusal": " "}],
    }
    assert cross(messages=[USER, refusal, USER])["messages"][1]["content"] == texts("no")
    said: Json = {
        "role": "assistant",
        "content": "a",
        "refusal": "no",
        "reasoning_content": "hm",
        "annotations": [],
        "audio": None,
        "made_up": 1,
    }
    done = translate(messages=[USER, said, USER])
    assert sent_body(done)["messages"][1]["content"] == texts("no", "a")
    assert done.dropped == ("messages[].reasoning_content", "messages[].made_up")
    assert cross(messages=[USER, {"role": "assistant", "content": "prefill \n"}])["messages"][1][
        "content"
    ] == texts("prefill")
    assert refused(messages=[USER, {"role": "assistant", "audio": {"id": "a"}}]) == "messages"


def test_thinking_that_a_client_tells_is_never_passed_on_as_the_models() -> None:
    thinking = [{"type": "thinking", "thinking": "t", "signature": "s"}]
    forged = {"role": "assistant", "content": "a", "thinking_blocks": thinking}
    assert cross(messages=[USER, forged, USER])["messages"][1]["content"] == texts("a")
    assert (
        refused(
            messages=[
                USER,
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "t", "signature": "s"}],
                },
            ]
        )
        == "messages"
    )


def test_blocks_from_the_record_go_out_as_they_were_and_where_they_were() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    search = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    result = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"encrypted_content": "e"}],
    }
    blocks = tuple(OtherPart(str(b["type"]), b, "anthropic") for b in (thinking, search, result))
    parts: tuple[Part, ...] = (
        blocks[0],
        TextPart("Looking."),
        *blocks[1:],
        ToolUsePart("toolu_1", "f", '{"city": "Paris"}'),
    )
    turns = (
        Turn("user", (TextPart("x"),)),
        Turn("assistant", parts, {"cache_control": EPHEMERAL}),
        Turn("user", (TextPart("y"),)),
    )
    request = msgspec.structs.replace(read({"tools": [TOOL]}), turns=turns)
    target = Target(dialect="anthropic", families=EVERY, container="container_1")
    body = written_body(request, target)
    call_block = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "f",
        "input": {"city": "Paris"},
        "cache_control": EPHEMERAL,
    }
    assert body["messages"][1]["content"] == [
        thinking,
        *texts("Looking."),
        search,
        result,
        call_block,
    ]
    assert body["container"] == "container_1"
    ends = msgspec.structs.replace(
        request,
        turns=(turns[0], Turn("assistant", blocks[:1], {"cache_control": EPHEMERAL}), turns[2]),
    )
    assert written_body(ends, target)["messages"][1]["content"] == [thinking]


def test_arguments_are_never_guessed() -> None:
    for arguments in ("{", "[]", '"a"', '{"a": 1, "a": 2}', "{'a': 1}"):
        assert (
            refused(
                messages=[USER, {"role": "assistant", "tool_calls": [call("a", "f", arguments)]}]
            )
            == "messages"
        )
    written = cross(
        messages=[
            USER,
            {"role": "assistant", "tool_calls": [call("a", "f", " ")]},
            {"role": "tool", "tool_call_id": "a", "content": ""},
        ]
    )
    assert written["messages"][1]["content"][0]["input"] == {}


def test_breakpoints_of_the_cache() -> None:
    part = {
        "type": "text",
        "text": "b",
        "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
    }
    done = translate(messages=[{"role": "user", "content": [*texts("a"), part]}])
    assert sent_body(done)["messages"][0]["content"][1] == {
        "type": "text",
        "text": "b",
        "cache_control": EPHEMERAL,
    }
    assert done.dropped == ("prompt_cache_breakpoint.ttl",)
    many = [
        {"type": "text", "text": str(i), "prompt_cache_breakpoint": {"mode": "explicit"}}
        for i in range(6)
    ]
    tool = TOOL | {"cache_control": EPHEMERAL}
    done = translate(messages=[{"role": "user", "content": many}], tools=[tool])
    body = sent_body(done)
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert (body["tools"][0]["cache_control"], done.dropped) == (
        EPHEMERAL,
        ("prompt_cache_breakpoint",),
    )
    assert user({"type": "text", "text": "a", "cache_control": EPHEMERAL}) == [
        {"type": "text", "text": "a", "cache_control": EPHEMERAL}
    ]
