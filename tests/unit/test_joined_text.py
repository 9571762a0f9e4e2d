"""Text policies see text as clients join it: over blocks, split characters, and in pieces that they
release later than they came."""

import itertools
import json
import random
from pathlib import Path
from typing import Any, Self

import pytest

from policy.base import ALLOW, Block, Context, OtherBlock, Policy, TextBlock, Verdict
from policy.builtin.text_replace import TextReplace
from policy.builtin.tool_rules import ToolRules
from policy.session.answer.text_comparison import Echo
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
from protocol.events import BlockKind
from protocol.records import BlockRecord, EventRecord
from protocol.request import DialectName
from tests.support.clients.answering import Answer, direct
from tests.support.json_values import Json
from tests.support.upstreams.joined_text import completion, fields, message
from tests.support.upstreams.written_calls import LENIENT, ONE

FALCON = {"rules": [{"find": "Project Falcon", "replace": "[code name]"}]}
SECRET = {"rules": [{"pattern": "sk-[A-Za-z0-9]{20,64}", "replace": "[key]"}]}
KEY = "sk-abcdefghijklmnopqrstuvwxyz0123"
TOOLS: dict[DialectName, list[Json]] = {
    "openai": [
        {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    ],
    "anthropic": [{"name": "bash", "input_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "bash", "parameters": {"type": "object"}}],
}
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "bash", "arguments": "{}"},
}


def answered(upstream: DialectName, client: DialectName, body: bytes, *policies: Policy) -> Answer:
    return Answer(upstream, client, policies=policies, tools=TOOLS[client]).feed(body)


def blocks_of(answer: Answer) -> list[tuple[str, str]]:
    return [(r.kind, r.verdict) for r in answer.records if isinstance(r, BlockRecord)]


BETWEEN: dict[str, Json] = {
    "reasoning": {"reasoning_content": "hm"},
    "refusal": {"refusal": "no"},
    "tool call": {"tool_calls": [CALL]},
}


# in Messages a refusal is a text block, so clients join it to the content as well
@pytest.mark.parametrize(
    ("between", "client"),
    [
        *itertools.product(("reasoning", "tool call"), CLIENTS),
        ("refusal", "openai"),
        ("refusal", "responses"),
    ],
)
@pytest.mark.parametrize(("options", "phrase"), [(FALCON, "Project Falcon"), (SECRET, KEY)])
def test_a_phrase_over_blocks_of_chat_completions_is_not_read_whole(
    between: str, client: DialectName, options: Json, phrase: str
) -> None:
    for at in range(1, len(phrase)):
        body = completion(
            {"content": f"a {phrase[:at]}"}, BETWEEN[between], {"content": f"{phrase[at:]} is go"}
        )
        answer = answered("openai", client, body, TextReplace(**options))
        read = fields(answer)
        text = read["content" if client == "openai" else "text"]
        assert phrase not in text and text.endswith(" is go") and text.startswith("a ")
        # a key that is one already is replaced, what makes it longer is left out
        assert text.count("[") == 1
        if between == "tool call":
            assert '"bash"' in answer.data.decode()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("options", "phrase"), [(FALCON, "Project Falcon"), (SECRET, KEY)])
@pytest.mark.parametrize("blocks", [2, 3, 8])
def test_a_phrase_over_blocks_of_messages_is_not_read_whole(
    client: DialectName, options: Json, phrase: str, blocks: int
) -> None:
    print("seed", blocks)
    chance = random.Random(blocks)
    for _ in range(20):
        cuts = [0, *sorted(chance.sample(range(1, len(phrase)), blocks - 1)), len(phrase)]
        parts = [phrase[a:b] for a, b in itertools.pairwise(cuts)]
        between: Json = {"type": "thinking", "thinking": "well", "signature": ""}
        body = message(
            *(b for part in parts for b in ({"type": "text", "text": part}, between)),
            {"type": "text", "text": " is go"},
        )
        text = fields(answered("anthropic", client, body, TextReplace(**options)))[
            "content" if client == "openai" else "text"
        ]
        assert phrase not in text and text.endswith(" is go") and text.count("[") == 1


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_joined_by_its_field(name: str) -> None:
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[name]
    body = completion({name: "Project "}, {other: "x"}, {name: "Falcon"}, {"content": "Falcon"})
    read = fields(answered("openai", "openai", body, TextReplace(**FALCON)))
    assert (
        read[name] == "Project [code name]" and read[other] == "x" and read["content"] == "Falcon"
    )


def test_what_is_no_phrase_over_blocks_stays_and_comes_out_before_what_is_between() -> None:
    body = completion(
        {"content": "Project "},
        {"tool_calls": [CALL]},
        {"content": "Fal"},
        {"content": "coon"},
        finish="tool_calls",
    )
    answer = answered("openai", "openai", body, TextReplace(**FALCON))
    assert fields(answer)["content"] == "Project Falcoon" and answer.data.index(
        b"Project"
    ) < answer.data.index(b"bash")
    assert blocks_of(answer) == [("text", "allow"), ("text", "allow")]


def test_any_cut_of_the_same_text_into_pieces_and_blocks_lets_no_match_through() -> None:
    """Literals and a pattern together; what comes out holds none of them, and a text without
    borders comes out as it would whole."""
    seed = 15
    print("seed", seed)
    chance = random.Random(seed)
    rules = [
        {"find": "abab", "replace": "1"},
        {"pattern": "c[ab]{2,6}c", "replace": "2"},
        {"find": "bca", "replace": "3"},
    ]
    for _ in range(600):
        text = "".join(chance.choices("abc", k=40))
        policy = TextReplace(rules=rules, max_match=8).for_call(Any)  # type: ignore[arg-type]
        out, block, at = "", 0, 0
        while at < len(text):
            end = at + chance.randint(1, 6)
            out += policy.on_text(text[at:end], TextBlock(block, BlockKind.TEXT, "content"))
            at = end
            if chance.random() < 0.3:
                out += policy.on_text_end(TextBlock(block, BlockKind.TEXT, "content"))
                block += 1
        out += policy.on_text_end(TextBlock(block, BlockKind.TEXT, "content"))
        for piece in out.replace("2", "1").replace("3", "1").split("1"):
            assert "abab" not in piece and "bca" not in piece, text


def test_what_a_later_policy_blocks_is_not_released_with_the_next_block() -> None:
    class NoSecret(Policy):
        def on_text(self, text: str, block: TextBlock) -> str | Block:
            return Block("secret") if "secret" in text else text

    pattern = {"rules": [{"pattern": "sk-[a-z]{20}", "replace": "*"}], "max_match": 30}
    body = completion(
        {"content": "secret" + "x" * 40 + "PASSWORD"},
        {"reasoning_content": "hm"},
        {"content": "hello"},
    )
    text = fields(answered("openai", "openai", body, TextReplace(**pattern), NoSecret()))["content"]
    assert "PASSWORD" not in text and text.endswith("hello")


def test_blocks_of_a_field_inside_one_another_are_refused() -> None:
    start: Json = {
        "type": "content_block_start",
        "content_block": {"type": "thinking", "thinking": ""},
    }
    head = message().split(b"event: message_delta")[0]
    frames = b"".join(
        b"event: content_block_start\ndata: %s\n\n" % dumps({**start, "index": n}) for n in range(2)
    )
    assert (
        answered("anthropic", "anthropic", head + frames, TextReplace(**FALCON)).session.state
        == "FAILED"
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_own_policies_are_told_what_text_is_joined_to(client: DialectName) -> None:
    class Sees(Policy):
        def __init__(self) -> None:
            self.seen: list[tuple[str, str]] = []

        def for_call(self, context: Context) -> Self:
            mine = super().for_call(context)
            mine.seen = self.seen  # the test's own list, not one of the call's
            return mine

        def on_text(self, text: str, block: TextBlock) -> str:
            self.seen.append((block.field, text))
            return text

    policy = Sees()
    answered(
        "openai",
        client,
        completion({"content": "a"}, {"reasoning": "b"}, {"refusal": "c"}, {"content": "d"}),
        policy,
    )
    refusal = "content" if client == "anthropic" else "refusal"
    assert policy.seen == [("content", "a"), ("reasoning", "b"), (refusal, "c"), ("content", "d")]


# --- split characters ---

EAGLE = "\U0001f985"
HALVES = ("\ud83e", "\udd85 plan")


@pytest.mark.parametrize("rule", [{"find": EAGLE + " plan"}, {"pattern": EAGLE + " plan"}])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
def test_a_character_in_two_deltas_is_one(
    rule: dict[str, str], client: DialectName, upstream: DialectName
) -> None:
    body = (
        completion({"content": "the " + HALVES[0]}, {"content": HALVES[1]})
        if upstream == "openai"
        else message({"type": "text", "text": "the " + HALVES[0] + HALVES[1]}, pieces=5)
    )
    assert (
        json.dumps(HALVES[0])[1:-1].encode() in body
        and json.dumps(EAGLE)[1:-1].encode() not in body
    )
    answer = answered(upstream, client, body, TextReplace(rules=[{**rule, "replace": "X"}]))
    assert fields(answer)["content" if client == "openai" else "text"] == "the X"


def test_a_character_in_two_parts_is_one() -> None:
    parts = [{"type": "text", "text": "the " + HALVES[0]}, {"type": "text", "text": HALVES[1]}]
    answer = answered(
        "openai",
        "openai",
        completion({"content": parts}),
        TextReplace(rules=[{"find": EAGLE, "replace": "X"}]),
    )
    assert fields(answer)["content"] == "the X plan"


def test_half_a_character_at_the_end_of_a_block_is_none_for_the_next() -> None:
    body = completion(
        {"content": "the " + HALVES[0]}, {"reasoning_content": "hm"}, {"content": HALVES[1]}
    )
    answer = answered(
        "openai", "openai", body, TextReplace(rules=[{"find": EAGLE, "replace": "X"}])
    )
    assert (
        json.dumps(HALVES[0])[1:-1].encode() not in answer.data
        and EAGLE.encode() not in answer.data
    )
    assert blocks_of(answer)[0] == ("text", "replace")


def test_a_policy_may_block_half_a_character() -> None:
    class NoHalves(Policy):
        def on_text(self, text: str, block: TextBlock) -> str | Block:
            return Block("half", "no halves") if "\ufffd" in text else text

        def on_text_end(self, block: TextBlock) -> str | Block:
            return Block("end", "never ends") if block.kind is BlockKind.THINKING else ""

    answer = answered("openai", "openai", completion({"content": "the " + HALVES[0]}), NoHalves())
    assert fields(answer)["content"].startswith("the \n\n[Sluice blocked text here: no halves. ")
    assert blocks_of(answer) == [("text", "block")]
    assert blocks_of(
        answered("openai", "openai", completion({"reasoning": "a" + HALVES[0]}), NoHalves())
    ) == [("thinking", "block")]


def test_characters_that_nobody_replaces_stay_and_count_as_unchanged() -> None:
    answer = answered(
        "openai",
        "openai",
        completion({"content": "a" + HALVES[0]}, {"content": HALVES[1]}),
        TextReplace(**FALCON),
    )
    assert fields(answer)["content"] == f"a{EAGLE} plan" and blocks_of(answer) == [
        ("text", "allow")
    ]


# --- held back is not changed ---

SIGNED = {"type": "thinking", "thinking": "hm well, plain words", "signature": "EqoB/+=="}
RULES = [FALCON, SECRET, {"rules": [*FALCON["rules"], *SECRET["rules"]]}]


@pytest.mark.parametrize("options", RULES)
@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_text_that_was_only_held_back_keeps_its_signature_and_citations(
    options: Json, pieces: int
) -> None:
    citation = {
        "type": "char_location",
        "cited_text": "x",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 1,
    }
    body = message(
        SIGNED,
        {"type": "text", "text": "the Fox ran Projec", "citations": [citation]},
        pieces=pieces,
    )
    answer = answered("anthropic", "anthropic", body, TextReplace(**options))
    assert fields(answer) == {"thinking": "hm well, plain words", "text": "the Fox ran Projec"}
    assert b"EqoB/+==" in answer.data and b"char_location" in answer.data
    assert blocks_of(answer) == [("thinking", "allow"), ("text", "allow")]


@pytest.mark.parametrize("options", RULES)
@pytest.mark.parametrize("word", ["Project Falcon", KEY])
def test_text_that_was_replaced_loses_its_signature(options: Json, word: str) -> None:
    is_found = any(
        r.get("find") == word or (word == KEY and "pattern" in r) for r in options["rules"]
    )
    answer = answered(
        "anthropic",
        "anthropic",
        message({**SIGNED, "thinking": f"hm {word} hm"}),
        TextReplace(**options),
    )
    assert (b"EqoB/+==" in answer.data) is not is_found
    assert blocks_of(answer) == [("thinking", "replace" if is_found else "allow")]


def logprobs(*tokens: str) -> Json:
    entries = [
        {
            "token": t,
            "logprob": -0.1,
            "bytes": None,
            "top_logprobs": [{"token": "Falcon", "logprob": -3, "bytes": None}],
        }
        for t in tokens
    ]
    return {"content": entries}


@pytest.mark.parametrize("options", [{"rules": [{"find": "Eagle", "replace": "X"}]}, SECRET])
def test_log_probabilities_stay_with_text_that_nobody_changed(options: Json) -> None:
    deltas = [
        {"delta": {"content": t}, "logprobs": logprobs(t)} for t in ("the ", "fox ", "E", "at")
    ]
    answer = answered("openai", "openai", completion(*deltas), TextReplace(**options))
    read = [
        json.loads(p[6:])["choices"][0].get("logprobs")
        for p in answer.data.decode().split("\n\n")
        if p[6:7] == "{"
    ]
    assert [e["token"] for r in read if r for e in r["content"]] == ["the ", "fox ", "E", "at"]


def test_log_probabilities_that_hold_what_is_replaced_are_withheld() -> None:
    deltas = [{"delta": {"content": t}, "logprobs": logprobs(t)} for t in ("the ", "fox ")]
    answer = answered(
        "openai",
        "openai",
        completion(*deltas),
        TextReplace(rules=[{"find": "Falcon", "replace": "X"}]),
    )
    assert (
        b"logprob" not in answer.data.replace(b'"logprobs":null', b"")
        and fields(answer)["content"] == "the fox "
    )
    changed = [
        {"delta": {"content": t}, "logprobs": logprobs(t)}
        for t in ("the ", "Ea", "gle ", "fl", "ies")
    ]
    answer = answered(
        "openai",
        "openai",
        completion(*changed),
        TextReplace(rules=[{"find": "Eagle", "replace": "X"}]),
    )
    kept = [
        json.loads(p[6:])["choices"][0].get("logprobs")
        for p in answer.data.decode().split("\n\n")
        if p[6:7] == "{"
    ]
    assert [e["token"] for r in kept if r for e in r["content"]] == ["the "]


def test_log_probabilities_that_no_policy_reads_do_not_pass_one_that_reads_text() -> None:
    class ReadsText(Policy):
        def on_text(self, text: str, block: TextBlock) -> str:
            return text

    class ReadsAll(ReadsText):
        def on_other(self, block: OtherBlock) -> Verdict:
            return ALLOW

    body = completion({"delta": {"content": "a"}, "logprobs": logprobs("a")})
    assert b"top_logprobs" not in answered("openai", "openai", body, ReadsText()).data
    assert b"top_logprobs" in answered("openai", "openai", body, ReadsAll()).data


def test_a_policy_that_never_releases_what_it_held_changes_the_text() -> None:
    class Forgets(Policy):
        def on_text(self, text: str, block: TextBlock) -> str:
            return text[:-1]

    body = message({"type": "thinking", "thinking": "hm", "signature": "EqoB"}, pieces=100)
    answer = answered("anthropic", "anthropic", body, Forgets())
    assert b"EqoB" not in answer.data and blocks_of(answer) == [("thinking", "replace")]


def test_an_echo_tells_the_same_text_from_another() -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(500):
        text = "".join(chance.choices("ab", k=12))
        other = (
            text
            if chance.random() < 0.5
            else "".join(chance.choices("ab", k=chance.randint(0, 14)))
        )
        echo, came, said = Echo(), 0, 0
        while came < len(text):
            more, out = chance.randint(0, 4), chance.randint(0, 3)
            echo.feed(
                text[came : came + more],
                other[said : said + out] if said < min(came + more, len(text)) else "",
            )
            said += out if said < min(came + more, len(text)) else 0
            came += more
        echo.feed("", other[said:])
        echo.finish()
        if other == text and not echo.has_changed:
            assert not echo.is_behind
        if other != text:
            assert echo.has_changed


def test_notes_name_what_was_withheld() -> None:
    deltas = [{"delta": {"content": t}, "logprobs": logprobs(t)} for t in ("Ea", "gle")]
    answer = answered(
        "openai",
        "openai",
        completion(*deltas),
        TextReplace(rules=[{"find": "Eagle", "replace": "X"}]),
    )
    assert [r.detail for r in answer.records if isinstance(r, EventRecord)] == [
        "-1: logprobs",
        "2: logprobs",
    ]


# --- annotations that stand by themselves ---

PAGE = {
    "type": "url_citation",
    "url_citation": {
        "url": "https://example.org",
        "title": "Page",
        "start_index": 0,
        "end_index": 0,
    },
}
SEARCHED = (
    Path(__file__).parents[1] / "fixtures/streams/openai-openrouter-search.sse"
).read_bytes()


def urls(answer: Answer) -> list[str]:
    """The annotations that the SDK's stream helper ends with."""
    [choice] = direct.accumulated(answer.data)["choices"]
    return [a["url_citation"]["url"][-1] for a in choice["message"].get("annotations") or ()]


@pytest.mark.parametrize("policies", [[], [TextReplace(**FALCON)], [TextReplace(**SECRET)]])
def test_what_a_search_found_reaches_a_streamed_client(policies: list[Policy]) -> None:
    assert urls(answered("openai", "openai", SEARCHED, *policies)) == ["a", "b", "c"]


def test_annotations_go_with_text_that_nobody_changed_and_past_policies_that_read_them() -> None:
    rain = TextReplace(rules=[{"find": "rains", "replace": "X"}])
    page = TextReplace(rules=[{"find": "Page c.", "replace": "X"}])
    assert urls(answered("openai", "openai", SEARCHED, rain)) == []
    assert b"Page c." not in answered("openai", "openai", SEARCHED, page).data
    alone = completion(
        {"content": "It rains"}, {"delta": {}, "finish_reason": "stop"}, {"annotations": [PAGE]}
    )
    for policy, is_kept in (
        (rain, False),
        (TextReplace(**FALCON), True),
        (TextReplace(rules=[{"find": "Page", "replace": "X"}]), False),
    ):
        answer = answered("openai", "openai", alone, policy)
        assert (b"url_citation" in answer.data) is is_kept


@pytest.mark.parametrize("form", [*ONE, *LENIENT])
def test_a_call_that_begins_in_one_text_and_goes_on_in_the_next_is_found_in_every_spelling(
    form: str,
) -> None:
    written = (ONE | LENIENT)[form]
    for middle in range(1, written.index("rm -rf") + 6):
        deltas: list[Json] = [
            {"content": written[:middle]},
            {"tool_calls": [CALL]},
            {"content": written[middle:]},
        ]
        answer = Answer(
            "openai",
            "openai",
            policies=[ToolRules(deny=[{"tool": "*", "argument_matches": "rm -rf"}])],
            tools=TOOLS["openai"],
        )
        assert b"rm -rf" not in answer.feed(completion(*deltas, finish="tool_calls")).data, middle
