import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.base import ALLOW, Block, Context, OtherBlock, TextBlock, Verdict
from policy.builtin.text_replace import TextReplace
from protocol.events import BlockKind
from protocol.request import ChatRequest
from tests.support.json_values import Json

BLOCK = TextBlock(0, BlockKind.TEXT)
CONTEXT = Context("call", "nonce", "key", "", ChatRequest(dialect="openai", model="demo"))


def run(pieces: list[str], **options: Any) -> str:
    policy = TextReplace(**options).for_call(CONTEXT)
    return "".join(policy.on_text(piece, BLOCK) for piece in pieces) + policy.on_text_end(BLOCK)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(p % (len(text) + 1) for p in places)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


literals = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)
patterns = st.lists(
    st.sampled_from(
        [
            "a+b",
            "ab|abc",
            "^a",
            "c$",
            r"\bab\b",
            "a.{0,6}c",
            "(?s).b",
            "(?m)^b",
            "b*c",
            "a[^ ]*",
            "(?:ab)+",
            "b??c",
        ]
    ),
    min_size=1,
    max_size=3,
)
places = st.lists(st.integers(0, 200), max_size=12)


@pytest.mark.case("J6")
@given(literals, st.text("abc \n", max_size=60), places)
def test_literals_do_not_depend_on_the_cut(finds: list[str], text: str, where: list[int]) -> None:
    rules = [{"find": find, "replace": f"<{n}>"} for n, find in enumerate(finds)]
    expected = re.sub(
        "|".join(re.escape(f) for f in finds), lambda m: f"<{finds.index(m[0])}>", text
    )
    assert run(cut(text, where), rules=rules) == expected


@pytest.mark.case("J6")
@given(patterns, literals, st.text("abc \n\u00e9\ud800", max_size=60), places, st.integers(1, 8))
def test_patterns_do_not_depend_on_the_cut(
    chosen: list[str], finds: list[str], text: str, where: list[int], longest: int
) -> None:
    rules = [{"pattern": p, "replace": rf"<{n}\0>"} for n, p in enumerate(chosen)] + [
        {"find": f, "replace": "!"} for f in finds
    ]
    assert run(cut(text, where), rules=rules, max_match=longest) == run(
        [text], rules=rules, max_match=longest
    )


@given(patterns, st.text("abc \n", max_size=60), places)
def test_patterns_replace_what_python_would_replace(
    chosen: list[str], text: str, where: list[int]
) -> None:
    pattern = chosen[0].replace("c$", r"c\Z")
    expected = re.sub(pattern, lambda m: f"<{m[0]}>" if m[0] else "", text)
    assert run(cut(text, where), rules=[{"pattern": chosen[0], "replace": r"<\0>"}]) == expected


@pytest.mark.case("J6")
@pytest.mark.parametrize("rule", [{"find": "hunter2-secret"}, {"pattern": "hunter[0-9]-secret"}])
def test_a_secret_split_anywhere_never_leaks(rule: dict[str, str]) -> None:
    text = "the password is hunter2-secret, keep it"
    for first in range(len(text)):
        for second in range(first, len(text)):
            policy = TextReplace(rules=[{**rule, "replace": "***"}]).for_call(CONTEXT)
            out = ""
            for piece in (text[:first], text[first:second], text[second:]):
                out += policy.on_text(piece, BLOCK)
                assert "hunter" not in out
            assert out + policy.on_text_end(BLOCK) == "the password is ***, keep it"


def test_literals_hold_back_only_what_may_become_a_match() -> None:
    policy = TextReplace(rules=[{"find": "abcd", "replace": "-"}]).for_call(CONTEXT)
    assert policy.on_text("hello ab", BLOCK) == "hello "
    assert policy.on_text("c", BLOCK) == ""
    assert policy.on_text("x", BLOCK) == "abcx"


def test_a_literal_that_wins_at_once_is_not_held_for_a_longer_one() -> None:
    policy = TextReplace(
        rules=[{"find": "ab", "replace": "1"}, {"find": "abc", "replace": "2"}]
    ).for_call(CONTEXT)
    assert policy.on_text("ab", BLOCK) == "1"
    policy = TextReplace(
        rules=[{"find": "abc", "replace": "2"}, {"find": "ab", "replace": "1"}]
    ).for_call(CONTEXT)
    assert policy.on_text("ab", BLOCK) == ""
    assert policy.on_text("c", BLOCK) == "2"


def test_patterns_hold_back_at_most_max_match_characters() -> None:
    policy = TextReplace(rules=[{"pattern": "x+y", "replace": ""}], max_match=5).for_call(CONTEXT)
    assert policy.on_text("0123456789", BLOCK) == "01234"


def test_blocks_and_calls_do_not_share_held_text() -> None:
    policy = TextReplace(rules=[{"find": "ab", "replace": "-"}])
    one, two = policy.for_call(CONTEXT), policy.for_call(CONTEXT)
    other = TextBlock(1, BlockKind.THINKING)
    assert [one.on_text("a", BLOCK), one.on_text("b", other), two.on_text("b", BLOCK)] == [
        "",
        "b",
        "b",
    ]
    assert [
        one.on_text_end(BLOCK),
        one.on_text_end(other),
        two.on_text_end(BLOCK),
        two.on_text_end(other),
    ] == ["a", "", "", ""]


def test_reasoning_is_left_alone_where_asked() -> None:
    rules = [{"find": "ab", "replace": "-"}]
    thinking = TextBlock(1, BlockKind.THINKING)
    for options, expected in (({}, "-"), ({"thinking": False}, "ab")):
        policy = TextReplace(rules=rules, **options).for_call(CONTEXT)
        assert policy.on_text("ab", thinking) + policy.on_text_end(thinking) == expected
        assert policy.on_text("ab", BLOCK) == "-"


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({"replace": ""}, "either `find` or `pattern`"),
        ({"find": "a", "pattern": "b", "replace": ""}, "either `find` or `pattern`"),
        ({"pattern": "(", "replace": ""}, "not valid RE2"),
        ({"pattern": "(?=a)", "replace": ""}, "not valid RE2"),
        ({"pattern": "a*", "replace": ""}, "empty text"),
        ({"pattern": "a", "replace": r"\1"}, "names a group"),
    ],
)
def test_bad_rules_are_refused_at_load(rule: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        TextReplace(rules=[rule])


def test_a_hostile_text_costs_linear_time() -> None:
    run(["a" * 20_000], rules=[{"pattern": "(a|a)*b", "replace": ""}], max_match=64)


# --- what is carried whole ---

RULES = [
    {"find": "Project Falcon", "replace": "the project"},
    {"pattern": r"sk-[a-z0-9]{4,20}", "replace": "[key]"},
]


def reason(said: Verdict) -> str:
    return said.reason if isinstance(said, Block) else ""


def other(type: str, body: Json, **options: Any) -> Verdict:
    return (
        TextReplace(**{"rules": RULES, **options})
        .for_call(CONTEXT)
        .on_other(OtherBlock(0, type, body))
    )


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (
            "web_search_tool_result",
            {
                "content": [
                    {"title": "x"},
                    {"title": "About Project Falcon", "encrypted_content": "x"},
                ]
            },
        ),
        ("mcp_tool_result", {"content": [{"type": "text", "text": "the key is sk-abcd1234."}]}),
        ("code_execution_tool_result", {"content": {"stdout": "", "stderr": "Project Falcon\n"}}),
        ("citation", {"citation": {"cited_text": "Project Falcon", "url": "https://x.example"}}),
        (
            "annotations",
            {"annotations": [{"url_citation": {"url": "https://x.example/?k=sk-abcd1234"}}]},
        ),
        ("block foo", {"anything": {"Project Falcon": 1}}),
        ("redacted_thinking", {"data": "x", "note": "sk-abcd1234"}),
        ("mcp_tool_result", {"data": "sk-abcd1234"}),
        ("mcp_tool_result", {"encrypted_content": "Project Falcon, in words"}),
        ("mcp_tool_result", {"signature": {"inner": "sk-abcd1234"}}),
        ("mcp_tool_result", {"content": "\ud800 sk-abcd1234"}),
    ],
)
def test_what_is_carried_whole_and_holds_a_text_to_replace_is_blocked(
    type: str, body: Json
) -> None:
    assert reason(other(type, body)) == "text"


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (
            "web_search_tool_result",
            {"content": [{"title": "Nothing of it", "page_age": None, "n": 1.5}]},
        ),
        ("web_search_tool_result", {"content": [{"encrypted_content": "sk-abcd1234"}]}),
        ("citation", {"citation": {"cited_text": "x", "encrypted_index": "sk-abcd1234"}}),
        ("thinking", {"signature": "sk-abcd1234"}),
        ("encrypted_code_execution_result", {"encrypted_stdout": "sk-abcd1234"}),
        ("redacted_thinking", {"data": "sk-abcd1234"}),
        ("x", {}),
    ],
)
def test_what_holds_none_passes_and_so_do_letters_that_only_the_provider_can_read(
    type: str, body: Json
) -> None:
    assert other(type, body) == ALLOW


@given(patterns, literals, st.text("abc \n\u00e9", max_size=60), st.integers(1, 8))
def test_a_text_carried_whole_is_blocked_exactly_where_the_rules_would_change_it(
    chosen: list[str], finds: list[str], text: str, longest: int
) -> None:
    rules = [{"pattern": p, "replace": "<!>"} for p in chosen] + [
        {"find": f, "replace": "<!>"} for f in finds
    ]
    changed = run([text], rules=rules, max_match=longest) != text
    assert (reason(other("x", {"": text}, rules=rules, max_match=longest)) == "text") is changed


def test_a_deep_body_is_searched_to_its_end() -> None:
    body: Any = "Project Falcon"
    for _ in range(100_000):
        body = [body]
    assert other("x", {"x": body}) == Block("text", rule="rules[0]")
    while isinstance(body, list):
        body = body.pop()
