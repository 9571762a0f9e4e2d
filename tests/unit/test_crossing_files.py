"""Files of text, sound, stored images, tiers and what clients say of themselves, on their way to
providers of other dialects."""

import base64
import json
from typing import Any

import pytest

from policy.judging.view import keep, view
from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.errors import InvalidRequest
from protocol.request import DialectName
from protocol.target import Target, Translated
from tests.support.json_values import Json
from tests.support.request_codecs import read_request

CSV = "a,b\n1,2\n"
DATA = base64.b64encode(CSV.encode()).decode()
TABLE = {
    "anthropic": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": CSV},
        "title": "a.csv",
    }
}


def body(client: str, *parts: Json, **more: Any) -> Json:
    field = "input" if client == "responses" else "messages"
    bound = {"max_tokens": 10} if client == "anthropic" else {}
    return {"model": "m", field: [{"role": "user", "content": list(parts)}], **bound, **more}


def write(
    client: str, upstream: DialectName, asked: Json, **target: Any
) -> tuple[Json, Translated]:
    request = read_request(client, asked)
    written = codecs.encode_request(request, Target(dialect=upstream, **target))
    return json.loads(written.body or b"{}"), written


def file(client: str, label: str, name: str, content: str = DATA) -> Json:
    data = f"data:{label};base64,{content}"
    if client == "openai":
        return {"type": "file", "file": {"filename": name, "file_data": data}}
    return {"type": "input_file", "filename": name, "file_data": data}


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", ["openai", "responses"])
@pytest.mark.parametrize(
    ("label", "name"),
    [("text/csv", "a.csv"), ("application/octet-stream", "a.csv"), ("application/json", "a.csv")],
)
def test_a_file_of_text_goes_on_as_text(
    client: str, upstream: DialectName, label: str, name: str
) -> None:
    if client == upstream:
        return
    sent, _ = write(client, upstream, body(client, file(client, label, name)))
    shown = json.dumps(sent)
    if upstream == "anthropic":
        assert sent["messages"][0]["content"] == [TABLE["anthropic"]]
    elif upstream == "converse":
        [part] = sent["messages"][0]["content"]
        source = {"text": CSV} if label == "application/json" else {"bytes": DATA}
        assert part["document"] | {"name": ""} == {
            "name": "",
            "format": "txt" if label == "application/json" else "csv",
            "source": source,
        }
    else:
        assert json.dumps(CSV)[1:-1] in shown and "a.csv" in shown


@pytest.mark.parametrize(
    ("label", "content"), [("application/zip", "UEsDBA=="), ("text/csv", "//79")]
)
def test_what_is_no_text_is_refused_by_name(label: str, content: str) -> None:
    with pytest.raises(InvalidRequest, match=r"neither a PDF, text nor an image|not UTF-8"):
        write("openai", "anthropic", body("openai", file("openai", label, "a.csv", content)))


SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def test_sound_goes_to_gemini_and_is_refused_elsewhere() -> None:
    sent, _ = write("openai", "gemini", body("openai", {"type": "text", "text": "x"}, SOUND))
    assert sent["contents"][0]["parts"][1] == {
        "inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}
    }
    for upstream in ("anthropic", "converse", "responses"):
        with pytest.raises(InvalidRequest, match="cannot be sent to this model's provider"):
            write("openai", upstream, body("openai", SOUND))
    for wrong in ({"data": "UklGRg==", "format": "a/b"}, {"data": "%", "format": "wav"}, {}):
        with pytest.raises(InvalidRequest, match=r"input_audio|base64"):
            write("openai", "gemini", body("openai", {"type": "input_audio", "input_audio": wrong}))


def test_an_image_by_its_id_is_a_file_and_never_an_empty_address() -> None:
    image = {"type": "input_image", "file_id": "file_1"}
    sent, _ = write(
        "responses", "anthropic", body("responses", image), families=frozenset(("files",))
    )
    assert sent["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    ]
    for upstream in ("anthropic", "openai", "gemini", "converse"):
        with pytest.raises(InvalidRequest):
            write("responses", upstream, body("responses", image))


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "priority"])
@pytest.mark.parametrize(("client", "upstream"), [("openai", "responses"), ("responses", "openai")])
def test_a_tier_keeps_its_word_between_the_apis_of_openai(
    client: str, upstream: DialectName, tier: str
) -> None:
    text = {"type": "text" if client == "openai" else "input_text", "text": "x"}
    sent, _ = write(client, upstream, body(client, text, service_tier=tier) | {"model": "gpt-5"})
    assert sent["service_tier"] == tier
    to_claude, _ = write(client, "anthropic", body(client, text, service_tier=tier))
    assert to_claude["service_tier"] == ("auto" if tier in ("auto", "default") else "standard_only")


@pytest.mark.parametrize("upstream", ["anthropic", "responses", "gemini", "converse"])
def test_reasoning_of_a_chat_history_is_named_where_it_is_left_out(upstream: DialectName) -> None:
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "hm"},
        {"role": "user", "content": "z"},
    ]
    _, written = write("openai", upstream, {"model": "m", "messages": messages})
    assert "messages[].reasoning_content" in written.dropped


def test_the_title_of_a_document_at_an_address_is_told() -> None:
    document = {
        "type": "document",
        "source": {"type": "url", "url": "https://a.test/x.pdf"},
        "title": "Report",
    }
    sent, _ = write("anthropic", "responses", body("anthropic", document))
    assert [part["type"] for part in sent["input"][0]["content"]] == [
        "input_text",
        "input_file",
    ] and "Report" in json.dumps(sent)


LINE = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={};"


def prompts(cch: str) -> list[Any]:
    line = LINE.format(cch)
    agent = {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}
    return [[{"type": "text", "text": line}, agent], f"{line}\n\nYou are an agent."]


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("form", [0, 1])
def test_what_a_client_says_of_itself_goes_to_its_vendor_alone(
    upstream: DialectName, form: int
) -> None:
    said = [{"type": "text", "text": "hi"}]
    first, second = (
        write("anthropic", upstream, body("anthropic", *said, system=prompts(cch)[form]))
        for cch in ("36ee5", "0aaa9")
    )
    if upstream == "anthropic":
        assert "36ee5" in json.dumps(first[0]) and "0aaa9" in json.dumps(second[0])
        return
    assert (
        first == second
        and "billing" not in json.dumps(first[0])
        and "You are an agent." in json.dumps(first[0])
    )
    assert any(name.endswith("].x-anthropic-billing-header") for name in first[1].dropped)


def test_judges_do_not_see_it_either() -> None:
    request = read_request(
        "anthropic", body("anthropic", {"type": "text", "text": "hi"}, system=prompts("1")[0])
    )
    assert (
        "billing" not in view(keep(request, 5, 10_000), 10_000).json
        and "You are an agent." in view(keep(request, 5, 10_000), 10_000).json
    )


@pytest.mark.parametrize(
    "model", ["openai.gpt-6-sol", "openai.gpt-5.6-mini", "us.openai.gpt-6-sol"]
)
def test_models_of_openai_on_bedrock_take_an_effort_and_no_sampling(model: str) -> None:
    asked = body(
        "openai", {"type": "text", "text": "x"}, temperature=0.3, top_p=0.9, reasoning_effort="low"
    ) | {"model": model}
    sent, written = write("openai", "converse", asked)
    assert sent["additionalModelRequestFields"] == {"reasoning_effort": "low"} and not sent.get(
        "inferenceConfig"
    )
    assert set(written.dropped) == {"temperature", "top_p"}
    to_mantle, _ = write(
        "anthropic",
        "openai",
        body("anthropic", {"type": "text", "text": "x"}, temperature=0.3)
        | {"model": model.removeprefix("us.")},
    )
    assert "temperature" not in to_mantle
