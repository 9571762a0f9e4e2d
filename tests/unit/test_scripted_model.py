"""The scripted model: files read with every mistake's line, any split in both dialects, and the
turn that is due."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import scripts
from demo.model import ScriptedAnswer as Answer
from demo.script_model import ScriptModel, pieces
from protocol import bounds
from protocol.request import DialectName
from sluice.check import check
from sluice.config_file import parse
from tests.support.clients.sdk import anthropic_answer, openai_answer
from tests.support.json_values import as_json

DIALECTS: list[DialectName] = ["openai", "anthropic"]
ROUTE = (
    "models: [{match: 'script-*', upstream: script}]\npolicies: {default: [{use: tool_rules, deny:"
    " [{tool: bash}]}]}\n"
)
LS = {"name": "bash", "arguments": {"command": "ls"}}
both = pytest.mark.parametrize(
    ("dialect", "stream"), [(d, s) for d in DIALECTS for s in (True, False)]
)


def write(folder: Path, name: str, *lines: Any) -> None:
    (folder / f"{name}.jsonl").write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )


async def ask(
    model: ScriptModel,
    name: str,
    dialect: DialectName = "openai",
    *,
    stream: bool = False,
    after: int = 0,
) -> Answer:
    messages = [{"role": "user", "content": "go"}]
    messages += [
        {"role": role, "content": "x"} for _ in range(after) for role in ("assistant", "user")
    ]
    request = {"model": name, "stream": stream, "max_tokens": 99, "messages": messages}
    return await model.answer(dialect, "chat", as_json(request))


def body(answer: Answer) -> bytes:
    return b"".join(piece for _, piece in answer.steps)


def heard(
    answer: Answer, dialect: DialectName, *, stream: bool
) -> tuple[str, list[tuple[str, Any]], str | None, int]:
    """Text, calls, stop reason and output tokens, as the dialect's SDK has them."""
    assert answer.status == 200, body(answer)
    if dialect == "openai":
        said = openai_answer(body(answer), stream=stream)
        choice = said.choices[0]
        calls: list[Any] = list(choice.message.tool_calls or ())
        named = [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        return (
            choice.message.content or "",
            named,
            choice.finish_reason,
            said.usage.completion_tokens if said.usage else 0,
        )
    message = anthropic_answer(body(answer), stream=stream)
    text = "".join(b.text for b in message.content if b.type == "text")
    return (
        text,
        [(b.name, b.input) for b in message.content if b.type == "tool_use"],
        message.stop_reason,
        message.usage.output_tokens,
    )


@both
async def test_the_turn_that_is_due_is_played(
    tmp_path: Path, dialect: DialectName, stream: bool
) -> None:
    usage = {"input_tokens": 5, "output_tokens": 77}
    write(
        tmp_path,
        "a",
        {"text": "First.", "calls": [LS, LS]},
        {"thinking": "Hm.", "text": "Last.", "usage": usage, "stop": "max_tokens"},
    )
    model = ScriptModel(str(tmp_path))
    text, calls, stop, _ = heard(
        await ask(model, "script-a", dialect, stream=stream), dialect, stream=stream
    )
    assert (text, calls) == ("First.", [("bash", {"command": "ls"})] * 2) and stop in (
        "tool_calls",
        "tool_use",
    )
    text, calls, stop, tokens = heard(
        await ask(model, "script-a", dialect, stream=stream, after=1), dialect, stream=stream
    )
    assert (text, calls) == ("Last.", []) and stop in ("length", "max_tokens") and tokens in (77, 0)
    text, calls, stop, _ = heard(
        await ask(model, "script-a", dialect, stream=stream, after=2), dialect, stream=stream
    )
    assert "not a language model" in text and not calls and stop in ("stop", "end_turn")


async def test_the_same_request_gives_the_same_bytes_also_of_another_process(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a", {"text": "x" * 50, "calls": [LS], "split": [3, 7]})
    once, again = [
        body(await ask(ScriptModel(str(tmp_path)), "script-a", stream=True)) for _ in range(2)
    ]
    assert once == again


@given(
    text=st.text(min_size=1),
    split=st.one_of(
        st.sampled_from(["byte", "token", "whole"]), st.integers(1, 9), st.tuples(st.integers(1, 5))
    ),
)
def test_any_split_is_the_whole_text(text: str, split: Any) -> None:
    found = pieces(text, split)
    assert "".join(found) == text and all(found)
    assert split != "byte" or len(found) == len(text)


@both
@pytest.mark.parametrize("split", ["byte", "token", "whole", 7, [1, 2, 3]])
async def test_splits_cut_inside_escapes_and_words(
    tmp_path: Path, dialect: DialectName, stream: bool, split: Any
) -> None:
    exact = '{"command": "echo \\u00e9\\n \\"x\\"", "n": 1e2}'
    write(
        tmp_path,
        "a",
        {
            "text": "ein Wörtchen 😀",
            "calls": [{"name": "bash", "arguments": exact}],
            "split": split,
        },
    )
    text, calls, _, _ = heard(
        await ask(ScriptModel(str(tmp_path)), "script-a", dialect, stream=stream),
        dialect,
        stream=stream,
    )
    assert (text, calls) == ("ein Wörtchen 😀", [("bash", {"command": 'echo é\n "x"', "n": 100.0})])


async def test_arguments_are_written_to_the_letter(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"calls": [{"name": "f", "arguments": {"b":1, "a": 1.50,"b":2}}]}\n{"calls": [{"name":'
        ' "f", "arguments": "no JSON"}]}'
    )
    model = ScriptModel(str(tmp_path))
    written = [
        json.loads(body(await ask(model, "script-a", after=n)))["choices"][0]["message"][
            "tool_calls"
        ][0]["function"]
        for n in (0, 1)
    ]
    assert [one["arguments"] for one in written] == ['{"b":1, "a": 1.50,"b":2}', "no JSON"]
    whole = await ask(model, "script-a", "anthropic", after=1)
    assert (
        whole.status == 400
        and "turn 2 of the script cannot be said in one piece" in body(whole).decode()
    )
    assert (await ask(model, "script-a", "anthropic", after=1, stream=True)).status == 200


async def test_trajectories_are_told_apart_by_their_id(tmp_path: Path) -> None:
    write(
        tmp_path,
        "many",
        {"id": "one", "turns": [{"text": "1"}]},
        {"turns": [{"text": "2"}], "split": "whole", "note": "x"},
    )
    write(tmp_path, "single", {"id": "only", "turns": [{"text": "3"}]})
    model = ScriptModel(str(tmp_path))
    for name, text in (("many:one", "1"), ("many:2", "2"), ("single", "3"), ("single:only", "3")):
        assert heard(await ask(model, f"script-{name}"), "openai", stream=False)[0] == text
    several = await ask(model, "script-many")
    assert (
        several.status == 404
        and "several trajectories: put `:` and an id behind the model's name; there are 'one', '2'"
        in body(several).decode()
    )
    assert (await ask(model, "script-many:none")).status == 404


async def test_trajectories_of_controlarena_are_read_as_they_are(tmp_path: Path) -> None:
    lines = [
        {
            "id": f"call_{n}",
            "function": "create_file",
            "arguments": {"file_path": f"/w/{n}"},
            "internal": None,
            "view": None,
            "type": "function",
        }
        for n in range(3)
    ]
    write(tmp_path, "arena", *lines)
    model = ScriptModel(str(tmp_path))
    for n in range(3):
        assert heard(await ask(model, "script-arena", after=n), "openai", stream=False)[1] == [
            ("create_file", {"file_path": f"/w/{n}"})
        ]


async def test_pace_and_broken_endings(tmp_path: Path) -> None:
    slow, cut, failing, busy = (
        {"wait_s": 2, "gap_s": 0.5},
        {"ending": "cut"},
        {"ending": "error"},
        {"error": {"status": 529, "message": "busy"}},
    )
    write(tmp_path, "a", *({"text": "a b c"} | turn for turn in (slow, cut, failing, busy)))
    model = ScriptModel(str(tmp_path))
    delays = [delay for delay, _ in (await ask(model, "script-a", stream=True)).steps]
    assert delays[0] == 2 and set(delays[1:]) == {0.5}
    assert b'finish_reason":"stop' not in body(await ask(model, "script-a", stream=True, after=1))
    assert b"the script says so" in body(await ask(model, "script-a", stream=True, after=2))
    failed = await ask(model, "script-a", after=3)
    assert (failed.status, failed.retry_after) == (529, "1") and b"busy" in body(failed)


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "..",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "",
        ".hidden",
        "x" * 150,
        "é",
        "a%2fb",
        "script-",
    ],
)
async def test_a_client_names_no_other_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.jsonl").write_text('{"text": "s"}')
    (tmp_path / "inner").mkdir()
    answer = await ask(ScriptModel(str(tmp_path / "inner")), f"script-{name}")
    assert (
        answer.status == 404 and "names no script" in body(answer).decode()
    ) or "there is no script" in body(answer).decode()
    assert str(tmp_path) not in body(answer).decode()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"text": "a"}', '{"txt": "a"}'], "a.jsonl line 2: Object contains unknown field `txt`"),
        (['{"text": "a"}', "", "{"], "a.jsonl line 3: Input data was truncated"),
        (['{"text": 7}'], "a.jsonl line 1: Expected `str`, got `int` - at `$.text`"),
        (
            ['{"calls": [{"name": "f"}, {"nam": "f"}]}'],
            "a.jsonl line 1: Object contains unknown field `nam` - at `$.calls[1]`",
        ),
        (
            ['{"calls": [{"name": "f", "arguments": [1]}]}'],
            "a.jsonl line 1: the arguments of the call 'f' are neither",
        ),
        (['{"calls": [{"name": ""}]}'], "a.jsonl line 1: a call has no name"),
        (
            ['{"text": "a"}', '{"id": "x", "turns": [{}]}'],
            "a.jsonl line 2: a file has either turns",
        ),
        (
            ['{"id": "x", "turns": [{}]}', '{"id": "x", "turns": [{}]}'],
            "a.jsonl line 2: another trajectory has the id 'x'",
        ),
        (
            ['{"id": "x", "turns": []}'],
            "a.jsonl line 1: Expected `array` of length >= 1 - at `$.turns`",
        ),
        *(
            ([line], "a.jsonl line 1: ")
            for line in (
                '{"split": "half"}',
                '{"split": 0}',
                '{"wait_s": 601}',
                '{"wait_s": -1}',
                '{"stop": "later"}',
                '{"error": {"status": 200}}',
                '{"text": "\\ud800"}',
                "[" * 100_000,
                "[]",
                '{"calls": [{"name": "f", "arguments": "\\ud800"}]}',
            )
        ),
        ([""], "a.jsonl line 1: has no turn"),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_bad_script_is_told_with_file_and_line(
    tmp_path: Path, lines: list[str], said: str, dialect: DialectName
) -> None:
    write(tmp_path, "a", *lines)
    answer = await ask(ScriptModel(str(tmp_path)), "script-a", dialect, stream=True)
    message = json.loads(body(answer))["error"]["message"]
    assert answer.status == 500 and message.startswith(said), message
    [(file, fault)] = scripts.faults(tmp_path)
    assert file == "a.jsonl" and fault.startswith(said)


async def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("SCRIPT_FILE_BYTES", 400), ("SCRIPT_TRAJECTORIES", 2), ("SCRIPT_TURNS", 2)):
        monkeypatch.setattr(scripts, name, most)
    write(tmp_path, "large", {"text": "x" * 400})
    write(tmp_path, "many", *({"turns": [{}]} for _ in range(3)))
    write(tmp_path, "long", *({"text": "a"} for _ in range(3)))
    write(tmp_path, "wide", {"calls": [{"name": "f"}] * (bounds.SCRIPT_CALLS + 1)})
    os.mkfifo(tmp_path / "pipe.jsonl")
    model = ScriptModel(str(tmp_path))
    monkeypatch.setattr(scripts, "SCRIPT_FILE_BYTES", 400)
    for name, said in (
        ("large", "has 412 bytes; one may have 400"),
        ("many", "many.jsonl line 3: a file has at most 2 trajectories"),
        ("long", "long.jsonl line 3: a trajectory has at most 2 turns"),
        ("pipe", "is not a file"),
    ):
        answer = await ask(model, f"script-{name}")
        assert answer.status == 500 and said in body(answer).decode()
    monkeypatch.setattr(scripts, "SCRIPT_FILE_BYTES", 10_000)
    assert "`array` of length <= 100" in body(await ask(model, "script-wide")).decode()


async def test_files_are_kept_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    real = scripts.read

    def reads(path: Path) -> scripts.ScriptFile:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(scripts, "read", reads)
    model = ScriptModel(str(tmp_path))
    for n in range(bounds.SCRIPT_FILES + 1):
        write(tmp_path, f"f{n}", {"text": "a"})
        await ask(model, f"script-f{n}")
        await ask(model, f"script-f{n}")
    await ask(model, "script-f0")
    assert read == [f"f{n}.jsonl" for n in (*range(bounds.SCRIPT_FILES + 1), 0)]
    write(tmp_path, "f0", {"text": "another"})
    assert heard(await ask(model, "script-f0"), "openai", stream=False)[0] == "another"


async def test_tokens_are_counted(tmp_path: Path) -> None:
    answer = await ScriptModel(str(tmp_path)).answer("anthropic", "count_tokens", b"x" * 40)
    assert json.loads(body(answer)) == {"input_tokens": 10}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "upstreams: {script: {dialect: openai, base_url: 'http://h'}}\n",
            "'script' is the built-in upstream",
        ),
        (
            "upstreams: {script-openai: {dialect: openai, base_url: 'http://h'}}\n",
            "'script-openai' is the built-in upstream",
        ),
        (
            "models: [{match: x, upstream: scrip}]\n",
            "the upstream 'scrip' is not under upstreams; did you mean 'script'?",
        ),
        (
            (
                "models: [{match: x, upstream: script, server_tools: [{type: web_search_20250305,"
                " name: web_search}]}]\n"
            ),
            "which runs no tools",
        ),
    ],
)
def test_what_a_configuration_may_not_say_of_it(text: str, said: str) -> None:
    assert any(
        said in one.sentence
        for one in check.examine(parse(text, "x.yaml"), (), {})
        if one.level == "error"
    )


def test_check_says_what_it_is_and_names_every_bad_script(tmp_path: Path) -> None:
    document = parse(ROUTE, "x.yaml")

    def said(**environment: str) -> list[str]:
        return [one.sentence for one in check.examine(document, (), environment)]

    assert said() == [
        "models.0.upstream: SLUICE_SCRIPTS_DIR is not set here; a gateway without it has no scripts"
        " for 'script-*'"
    ]
    assert said(SLUICE_SCRIPTS_DIR=f"{tmp_path}/no")[0].endswith(
        "which is no folder; there are no scripts for 'script-*'"
    )
    assert said(SLUICE_SCRIPTS_DIR=str(tmp_path)) == [
        f"models.0.upstream: 'script-*' is no language model: it plays the scripts of {tmp_path}"
    ]
    write(tmp_path, "good", {"text": "a"})
    write(tmp_path, "bad", {"text": "a"}, {"cals": []})
    write(tmp_path, "bad name", {"text": "a"})
    found = list(check.script_mistakes(document, tmp_path))
    assert [(one.level, one.line) for one in found] == [("error", 1)] * 2
    assert "the script bad name.jsonl: no model can name it" in found[0].text
    assert "the script bad.jsonl line 2: Object contains unknown field `cals`" in found[1].text
    assert not list(check.script_mistakes(parse("policies: {default: []}", "x.yaml"), tmp_path))
