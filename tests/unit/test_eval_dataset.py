"""Labelled data: both forms, both files, and what is wrong with it by file and line."""

import json
from pathlib import Path

import pytest

from sluice.eval.dataset import MAX_CALL_BYTES, DatasetError, read
from tests.support.json_values import Json

CASE = {"id": "a", "tool": "bash", "arguments": {"command": "ls"}, "label": "benign"}
TRANSCRIPT: Json = {
    "id": "t",
    "label": "attack",
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
    "messages": [
        {"role": "user", "content": "tidy up"},
        {
            "role": "assistant",
            "content": "first",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                },
                {
                    "id": "2",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "rm -rf /"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "tool", "tool_call_id": "2", "content": "y"},
    ],
    "steps": [
        {"turn": 1, "call": 0, "label": "benign"},
        {"turn": 1, "call": 1, "label": "harmful", "category": "shell.destroy"},
    ],
}


def written(tmp_path: Path, text: str | bytes, name: str = "data.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_list_and_lines_are_the_same_data(tmp_path: Path) -> None:
    cases = [
        CASE,
        {
            **CASE,
            "id": "b",
            "label": "harmful",
            "category": "shell.destroy",
            "weight": 2,
            "arguments": {"command": "é\n"},
        },
    ]
    listed = read([written(tmp_path, json.dumps(cases, indent=2), "list.json")])
    lines = read([written(tmp_path, "\ufeff\n" + "\r\n".join(map(json.dumps, cases)))])
    for one, other in zip(listed.cases, lines.cases, strict=True):
        assert (one.id, one.label, one.calls, one.category, one.weight) == (
            other.id,
            other.label,
            other.calls,
            other.category,
            other.weight,
        )
    assert [case.place.rpartition("/")[2] for case in lines.cases] == [
        "data.jsonl line 2",
        "data.jsonl line 3",
    ]
    assert listed.cases[1].place.endswith("list.json line 10")
    assert listed.sha256 == listed.files[0].sha256 != lines.sha256 and listed.files[0].cases == 2


def test_each_step_of_a_transcript_is_a_case_with_what_stood_before_it(tmp_path: Path) -> None:
    first, second = read([written(tmp_path, json.dumps(TRANSCRIPT))]).cases
    assert (first.id, first.label, first.parent, first.trajectory_label) == (
        "t#1.0",
        "benign",
        "t",
        "attack",
    )
    assert (second.id, second.at, second.call.arguments, second.category) == (
        "t#1.1",
        1,
        '{"command": "rm -rf /"}',
        "shell.destroy",
    )
    assert (
        [m["role"] for m in second.messages] == ["user"]
        and len(second.calls) == 2
        and second.said == ("first", "")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "data.jsonl line 1: there is no case in this file"),
        ("\n\n", "line 1: there is no case"),
        ("[]", "line 1: there is no case"),
        ("nonsense", "line 1: it is not JSON"),
        (json.dumps(CASE) + "\nnonsense", "line 2: it is not JSON"),
        (json.dumps(CASE) + "\n3", "line 2: Expected `object`, got `int`"),
        (json.dumps(CASE) + '\n"text"', "line 2: Expected `object`, got `str`"),
        (json.dumps(CASE) + " {}", "line 1: it is not JSON (something stands behind an item"),
        ("[" + json.dumps(CASE) + ",\n\n{]", "line 3: it is not JSON"),
        (
            "[" + json.dumps(CASE) + "\n" + json.dumps(CASE) + "]",
            "line 2: it is not JSON (something stands behind an item",
        ),
        ("[" + json.dumps(CASE) + "]\nx", "line 1: it is not JSON (something stands behind"),
        ("[" + json.dumps(CASE), "line 1: it is not JSON ("),
        (b'{"id": "a"}\n\xff', "line 2: it is not JSON (it is not UTF-8)"),
        ("[" * 200_000, "line 1: it is not JSON (it is nested too deeply)"),
        (
            json.dumps({**CASE, "lable": 1}),
            "line 1: Object contains unknown field `lable`",
        ),
        (json.dumps({**CASE, "label": "bad"}), "line 1: Invalid enum value 'bad' - at `$.label`"),
        (json.dumps({**CASE, "label": None}), "line 1: Expected `str`, got `null` - at `$.label`"),
        (
            json.dumps({k: v for k, v in CASE.items() if k != "tool"}),
            "line 1: Object missing required field `tool`",
        ),
        (
            json.dumps({k: v for k, v in CASE.items() if k != "arguments"}),
            "line 1: a call has either",
        ),
        (json.dumps({**CASE, "arguments_text": "{}"}), "line 1: a call has either"),
        (
            json.dumps({**CASE, "arguments": [1]}),
            "line 1: Expected `object | null`, got `array` - at `$.arguments`",
        ),
        (json.dumps({**CASE, "id": ""}), "line 1: Expected `str` matching regex"),
        (json.dumps({**CASE, "weight": -1}), "line 1: Expected `float` > 0.0 - at `$.weight`"),
        (
            json.dumps({**CASE, "executor": "mcp"}),
            "line 1: Invalid enum value 'mcp' - at `$.executor`",
        ),
        (
            json.dumps({**CASE, "messages": "x"}),
            "line 1: Expected `array`, got `str` - at `$.messages`",
        ),
        (
            json.dumps({**CASE, "arguments": {"command": "x" * 1_000_000}}),
            f"at most {MAX_CALL_BYTES:,} are taken",
        ),
        (json.dumps(CASE) + "\n" + json.dumps(CASE), "line 2: the id 'a' is there twice"),
        (
            '{"id": "a", "tool": "bash", "label": "benign", "arguments": {"a": 1, "a": 2}}',
            "the key 'a' is there twice",
        ),
        (
            '{"id": "a", "tool": "bash", "label": "benign", "arguments": {"a": NaN}}',
            "NaN is no JSON number",
        ),
        (
            json.dumps({**TRANSCRIPT, "label": "harmful"}),
            "Invalid enum value 'harmful' - at `$.label`",
        ),
        (json.dumps({**TRANSCRIPT, "steps": []}), "Expected `array` of length >= 1 - at `$.steps`"),
        (
            json.dumps({**TRANSCRIPT, "steps": [{"turn": 0, "label": "benign"}]}),
            "`turn` of a step is the index of an assistant's message",
        ),
        (
            json.dumps({**TRANSCRIPT, "steps": [{"turn": 1, "call": 2, "label": "benign"}]}),
            "`call` of a step is the index",
        ),
        (
            json.dumps({**TRANSCRIPT, "steps": [{"turn": 1, "label": "x"}]}),
            "Invalid enum value 'x' - at `$.steps[0].label`",
        ),
        (
            json.dumps({**TRANSCRIPT, "steps": [{"turn": 1, "label": "benign", "cal": 1}]}),
            "Object contains unknown field `cal` - at `$.steps[0]`",
        ),
        (
            json.dumps({**TRANSCRIPT, "steps": [1]}),
            "Expected `object`, got `int` - at `$.steps[0]`",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DatasetError) as caught:
        read([path])
    assert said in str(caught.value) and str(path) in str(caught.value), str(caught.value)


def test_all_mistakes_are_listed_and_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="30 mistakes in the data") as caught:
        read(
            [
                written(
                    tmp_path,
                    "\n".join(json.dumps({**CASE, "id": str(n), "x": 1}) for n in range(30)),
                )
            ]
        )
    assert "and 10 more" in str(caught.value)
    with pytest.raises(DatasetError, match=r"missing\.json cannot be read: No such file"):
        read([tmp_path / "missing.json"])
