"""The neutral form of a request: what readers make of their own dialect, and what writers make of
parts that no client of today has."""

from typing import Any

import pytest

from protocol import codecs
from protocol.dialects.anthropic import Messages
from protocol.dialects.anthropic import write as to_messages
from protocol.dialects.openai_chat import write as to_chat
from protocol.errors import InvalidRequest
from protocol.request import (
    ChatRequest,
    OtherPart,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests.neutral import (
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    Option,
    ProviderCallPart,
    ProviderResultPart,
    SummaryPart,
    ThinkingPart,
)
from protocol.target import Target, Translated
from tests.support.request_codecs import sent_body

CALL = ToolUsePart("t", "f", "{}")
THOUGHT = ThinkingPart("hm", "sig", "anthropic")
SEARCHED = ProviderCallPart(id="s", name="web_search", input={"query": "q"}, kind="server_tool_use")
FOUND = ProviderResultPart(
    call_id="s", content=[{"title": "T"}], is_error=False, kind="web_search_tool_result"
)
RESULT = ToolResultPart("t", "r")


def crossing(
    *turns: NeutralTurn, words: dict[str, str] | None = None, **options: Any
) -> NeutralRequest:
    request = ChatRequest(**{"dialect": "openai", "model": "m"} | options)
    return NeutralRequest(request=request, system=(), turns=turns, words=words or {})


def chat(request: NeutralRequest) -> Translated:
    return to_chat.encode(request, Target(dialect="openai"))


def messages(request: NeutralRequest) -> Translated:
    return to_messages.encode(request, Target(dialect="anthropic"))


def answered(*parts: NeutralPart) -> NeutralRequest:
    return crossing(
        NeutralTurn("user", (TextPart("x"),)),
        NeutralTurn("assistant", parts),
        NeutralTurn("user", (TextPart("y"),)),
    )


def said(translated: Translated) -> Any:
    return sent_body(translated)["messages"][1]["content"]


def test_sealed_thinking_of_another_dialect_goes_to_nobody() -> None:
    assert said(messages(answered(THOUGHT, TextPart("a")))) == [{"type": "text", "text": "a"}]
    assert said(chat(answered(THOUGHT, TextPart("a")))) == "a"


@pytest.mark.parametrize("part", [SummaryPart("s"), OtherPart("odd", {"type": "odd"}, "openai")])
def test_the_messages_writer_refuses_what_it_has_no_block_for(part: NeutralPart) -> None:
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        messages(answered(part))


@pytest.mark.parametrize(
    "part",
    [
        RESULT,
        MediaPart(media="image", url="https://x"),
        OtherPart("odd", {"type": "odd"}, "anthropic"),
    ],
)
def test_the_chat_writer_refuses_in_an_answer_what_only_a_user_sends(part: NeutralPart) -> None:
    with pytest.raises(InvalidRequest, match="in this place"):
        chat(answered(part))


@pytest.mark.parametrize("part", [THOUGHT, SEARCHED, MediaPart(media="audio"), CALL])
def test_the_chat_writer_refuses_in_a_question_what_only_an_answer_has(part: NeutralPart) -> None:
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        chat(crossing(NeutralTurn("user", (part,))))


def test_the_messages_writer_refuses_a_search_result() -> None:
    with pytest.raises(InvalidRequest, match="search_result"):
        messages(crossing(NeutralTurn("user", (MediaPart(media="search_result", title="t"),))))


def test_what_a_provider_ran_is_told_once_with_its_result() -> None:
    written = chat(answered(SEARCHED, FOUND, SummaryPart("")))
    assert said(written) == '[The provider ran web_search with {"query":"q"}. Result: T]\n\n'
    assert written.dropped == ("messages[].server_tool_use", "messages[].web_search_tool_result")


def test_a_mark_of_another_dialect_is_a_cache_breakpoint_and_named_as_the_client_named_it() -> None:
    turns = [
        NeutralTurn("user", (TextPart(str(n), {"keep_here": Option("cache", "5m")}),))
        for n in range(5)
    ]
    written = messages(crossing(*turns))
    body = sent_body(written)
    assert [b.get("cache_control") for b in body["messages"][0]["content"]] == [None] + [
        {"type": "ephemeral"}
    ] * 4
    assert written.dropped == ("keep_here.ttl", "keep_here")
    assert chat(crossing(*turns)).dropped == ("keep_here",)


def test_the_clients_word_for_stop_is_named() -> None:
    request = crossing(
        NeutralTurn("user", (TextPart("x"),)), words={"stop": "stopSequences"}, stop=(" ",) * 5
    )
    assert messages(request).dropped == ("stopSequences",)
    with pytest.raises(InvalidRequest) as caught:
        chat(request)
    assert caught.value.param == "stopSequences"


def test_a_grammar_is_refused_where_there_are_none() -> None:
    tool = Tool("f", kind="custom", extra={"format": Option("grammar", {})})
    with pytest.raises(InvalidRequest, match="grammars"):
        messages(crossing(NeutralTurn("user", (TextPart("x"),)), tools=(tool,)))


def test_a_request_of_the_same_dialect_is_never_brought_into_neutral_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Messages, "neutral", None)
    image = OtherPart("image", {"type": "image", "source": {"type": "odd"}}, "anthropic")
    request = ChatRequest(
        dialect="anthropic", model="m", turns=(Turn("user", (image,)),), max_tokens=1
    )
    written = codecs.encode_request(request, Target(dialect="anthropic"), changed=True)
    assert sent_body(written)["messages"][0]["content"] == [image.body]
    assert codecs.encode_request(request, Target(dialect="anthropic"), changed=False).body is None
