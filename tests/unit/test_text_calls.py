"""Calls written as text: found in every shape, whole and in pieces; what is none comes through as
it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.text_calls.scanner import MAX_HELD, CallScanner
from protocol.text_calls.words import Piece, TextCall, Thought
from tests.support.checks.kinds import of_kind
from tests.support.cpu import cpu_within
from tests.support.upstreams.written_calls import ARGUMENTS, CALL, LENIENT, ONE, A


def scan(*parts: str, reasoning: bool = False, names: frozenset[str] | None = None) -> list[Piece]:
    scanner = CallScanner(names, reasoning=reasoning)
    pieces = [p for part in parts for p in scanner.feed(part)]
    return [*pieces, *scanner.finish()]


def joined(pieces: list[Piece]) -> str:
    return "".join(p if isinstance(p, str) else p.raw for p in pieces)


def calls(pieces: list[Piece]) -> list[tuple[str, object]]:
    return [(p.name, json.loads(p.arguments)) for p in pieces if isinstance(p, TextCall)]


def texts(pieces: list[Piece]) -> str:
    return "".join(p for p in pieces if isinstance(p, str))


HARMLESS = [
    "x.bash({a: 1}); foo({b: 2}); sometools.x",
    "[Some text](url) and\n[bash] (x) [f(1)] [f(x) for x in y]\n[link](http://x)",
    "Action: think about it\nInput: {a: 1}\nArguments (ARGS) [ARGSX]{x: 1}",
    "<a:b>text</a:b> <ns:tool> <svg:function-x/>",
    "the <|message|>{x} token, to=x",
    "Plain words, and more of them.",
    "def f(x):\n    return {x: [1, 2]}\n",
    'function g() {\n  if (a < b) { return "name"; }\n}',
    '{"title": "A", "year": 2020, "tags": ["x", "y"]}',
    '{"name": "Alice", "age": 5}',
    'She said "name it" and left. <b>Bold</b> `code` ```x```',
    "a < b and <tool> is a word; <toolbox>; [1] [TOOL",
    "```python\nprint({'a': 1})\n```",
    "{{template}} [link](url) '\"'",
    '{"name": ',
    "[[[[{{{{<<<<````",
    "\u2028{\x00}\U0001f600",
]


@pytest.mark.parametrize("text", ONE.values(), ids=ONE)
def test_a_call_is_found_in_every_shape(text: str) -> None:
    pieces = scan(text)
    assert calls(pieces) == [("bash", ARGUMENTS)]
    assert joined(pieces) == text
    assert "rm" not in texts(pieces)


@pytest.mark.parametrize("text", LENIENT.values(), ids=LENIENT)
def test_what_a_lenient_parser_might_run_is_found_too(text: str) -> None:
    pieces = scan(text)
    found = of_kind(pieces, TextCall)
    assert [p.name for p in found] == ["bash"]
    assert "rm -rf /" in json.dumps(json.loads(found[0].arguments))
    assert not found[0].strict or text.startswith("<")
    assert joined(pieces) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_comes_through_as_it_is(text: str) -> None:
    pieces = scan(text)
    assert joined(pieces) == text
    assert calls(pieces) == []


@pytest.mark.parametrize("text", [*ONE.values(), *LENIENT.values(), *HARMLESS])
def test_any_two_pieces_give_what_the_whole_gives(text: str) -> None:
    whole = scan(text)
    for at in range(1, len(text)):
        assert merged(scan(text[:at], text[at:])) == merged(whole), at
    assert merged(scan(*text)) == merged(whole)


def merged(pieces: list[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        elif isinstance(piece, Thought) and out and isinstance(out[-1], Thought):
            out[-1] = Thought(out[-1].text + piece.text, out[-1].raw + piece.raw)
        else:
            out.append(piece)
    return out


TWO = [
    f"{CALL}\n{CALL}",
    f"[{CALL}, {CALL}]",
    f'{{"tool_calls": [{CALL}, {CALL}]}}',
    f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
    f"```json\n[{CALL},\n{CALL}]\n```",
    f"<tool_call>[{CALL},{CALL}]</tool_call>",
]


@pytest.mark.parametrize("text", TWO)
def test_two_calls_are_two_and_each_has_its_own_text(text: str) -> None:
    pieces = scan(text)
    assert calls(pieces) == [("bash", ARGUMENTS)] * 2
    assert joined(pieces) == text
    assert all(p.raw.count("rm -rf") == 1 for p in pieces if isinstance(p, TextCall))


def test_ordinary_text_and_json_are_not_held() -> None:
    scanner = CallScanner(None, reasoning=False)
    assert scanner.feed('{"title": "A", "list": [1, 2') == ['{"title": "A", "list": [1, 2']
    assert scanner.feed("], more {x: y} and") == ["], more {x: y} and"]


def test_a_name_that_comes_later_in_an_object_is_held_from_there() -> None:
    scanner = CallScanner(None, reasoning=False)
    assert scanner.feed('{"x": 1, "name": "bash", "argu') == ['{"x": 1, ']
    assert scanner.feed('ments": {"command": "rm"') == []
    found = scanner.feed("}} ok")
    assert calls(found) == [("bash", {"command": "rm"})]


@pytest.mark.parametrize("padding", [MAX_HELD - 100, MAX_HELD + 10, 3 * MAX_HELD])
@pytest.mark.parametrize("where", ["before", "between", "behind"])
def test_padding_past_the_bound_hides_no_call(padding: int, where: str) -> None:
    pad = '"pad": "' + "x" * padding + '", '
    text = {
        "before": "{" + pad + '"name": "bash", "arguments": {"command": "rm -rf /"}}',
        "between": '{"name": "bash", ' + pad + '"arguments": {"command": "rm -rf /"}}',
        "behind": '{"name": "bash", "arguments": {"command": "rm -rf /", ' + pad + '"z": 1}}',
    }[where]
    pieces = scan(*(text[i : i + 1000] for i in range(0, len(text), 1000)))
    assert joined(pieces) == text
    assert "rm -rf" not in texts(pieces)
    assert [p.name for p in pieces if isinstance(p, TextCall)] == ["bash"]


def test_reasoning_between_tags_is_a_thought() -> None:
    for text in ("<think>hm { hm</think>Hello", "<thinking>hm</thinking>\n" + CALL):
        whole = scan(text, reasoning=True)
        assert isinstance(merged(whole)[0], Thought)
        assert joined(whole) == text
        assert merged(scan(*text, reasoning=True)) == merged(whole)
    assert calls(scan(f"<think>I could {CALL}</think>no", reasoning=True)) == []
    assert joined(scan("<think>never ends", reasoning=True)) == "<think>never ends"


@given(
    st.lists(
        st.sampled_from(
            [
                *"{}[]\"'<>`:, \\",
                "name",
                "arguments",
                "tool_call",
                "<tool_call>",
                '"name":',
                '"x"',
                CALL,
                "```json\n",
                "a",
            ]
        ),
        max_size=30,
    )
)
def test_nothing_is_lost_or_added(parts: list[str]) -> None:
    text = "".join(parts)
    whole = scan(text)
    assert joined(whole) == text
    assert merged(scan(*parts)) == merged(whole)
    assert merged(scan(*text)) == merged(whole)


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "[",
        "<tool_call",
        "<tool_call>",
        '{"name":',
        '{"name": "a", ',
        "```json\n",
        "\\",
        '"name"',
        "'",
        '[{"',
        "<think>",
        ":{",
        "({",
        "Action: a\nAction Input:{",
        "to=a<|message|>{",
        "a[ARGS]{",
        "functions.a({",
        "\n[a(",
        '\n[a(b="',
        '\n[a(b="c")]',
        "<a:b",
        "<|tool_call_begin|>a",
        "{\u201cname",
        "[TOOL_CALLS]a[ARGS]",
        "```\n{",
        "functions.a(```\n{}",
        "<a:tool",
        "to=functions.a ",
    ],
)
@pytest.mark.parametrize("step", [1, 100_000])
def test_hostile_text_takes_linear_time(unit: str, step: int) -> None:
    text = unit * (100_000 // len(unit))
    scanner = CallScanner(None, reasoning=True)
    with cpu_within(3):
        out = [p for i in range(0, len(text), step) for p in scanner.feed(text[i : i + step])]
        out += scanner.finish()
    assert joined(out) == text


@pytest.mark.parametrize("unit", ["<", "{", "<<{", "< "])
def test_openers_that_begin_nothing_take_next_to_no_time(unit: str) -> None:
    text = unit * (500_000 // len(unit))
    with cpu_within(0.5):
        pieces = scan(*(text[i : i + 16_384] for i in range(0, len(text), 16_384)))
        # 1 us a character; they took 1.5 to 6, of which a large answer dies by the step's bound
    assert joined(pieces) == text


def test_parameters_that_are_never_closed_take_linear_time() -> None:
    text = '<invoke name="a"><parameter name="b">' * 14_000
    with cpu_within(3):
        pieces = scan(*(text[i : i + MAX_HELD] for i in range(0, len(text), MAX_HELD)))
    assert joined(pieces) == text


@pytest.mark.parametrize("second", ['<parameter name="b">2', '<parameter name="a">2</parameter>'])
def test_parameters_that_parsers_may_read_differently_are_not_read(second: str) -> None:
    text = f'<invoke name="f"><parameter name="a">1</parameter>{second}</invoke>'
    (found,) = scan(text)
    assert isinstance(found, TextCall) and not found.strict and not found.repaired
    assert (found.name, json.loads(found.arguments)) == ("f", {"text": text})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"name": "f", "arguments": {"a": 1}, "input": {"a": 2}}', ["f"]),
        ('{"name": "f", "arguments": "{}", "args": {"a": 2}}', ["f"]),
        ('{"name": "f", "tool": "g", "arguments": {}}', ["f", "g"]),
        ('{"name": "f", "Name": "g", "arguments": {}}', ["f", "g"]),
        (
            '{"name": "f", "function": {"name": "g", "arguments": {"a": 1}}, "arguments": {}}',
            ["f", "g"],
        ),
    ],
)
def test_a_call_that_parsers_may_read_as_two_is_decided_under_every_name(
    text: str, names: list[str]
) -> None:
    for pieces in (scan(text), scan(*text)):
        found = of_kind(pieces, TextCall)
        assert [p.name for p in found] == names and joined(pieces) == text
        assert all(
            (p.strict, p.repaired, json.loads(p.arguments)) == (False, False, {"text": text})
            for p in found
        )
        assert all(p.raw for p in found)
    assert of_kind(scan(text, names=frozenset({"other"})), TextCall) == []


def test_one_name_under_two_keys_and_names_within_arguments_are_read() -> None:
    assert calls(
        scan(
            '{"name": "f", "tool": "f", "arguments": {"name": "x", "tool": "y", "input": {},'
            ' "args": {}}}'
        )
    ) == [("f", {"name": "x", "tool": "y", "input": {}, "args": {}})]


def test_code_with_two_calls_is_decided_under_both_names() -> None:
    text = 'ok:\n[ls(path="."), bash(command="rm -rf /")] then'
    for pieces in (scan(text), scan(*text)):
        assert joined(pieces) == text
        assert "rm" not in texts(pieces)
        assert [p.name for p in pieces if isinstance(p, TextCall)] == ["bash", "ls"]


def test_a_name_that_went_out_long_before_names_its_call() -> None:
    text = "commentary to=functions.bash " + "x" * 90 + "<|message|>" + A
    for pieces in (scan(text), scan(*text), scan("w" * 5000 + text)):
        assert calls(pieces) == [("bash", ARGUMENTS)]


@pytest.mark.parametrize("end", ["</function>", "</x>", "</"])
def test_a_call_behind_the_end_of_another_tag_is_found(end: str) -> None:
    for text in (
        f"<tool_call>{end}{CALL}",
        f"<tool_call>{end}\\{CALL}</tool_call>",
        f"<|python_tag|>{end}{CALL}",
    ):
        for pieces in (scan(text), scan(*text)):
            assert joined(pieces) == text
            assert CALL not in texts(pieces)
            assert [p.name for p in pieces if isinstance(p, TextCall)] == ["bash"]
