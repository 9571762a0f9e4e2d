"""What the arguments of a tool call are taken for: shell text, paths, addresses, SQL, by the words
in names."""

import json
from typing import Any

import pytest

from policy.base import ToolCall
from policy.effects.surface import MAX_PARTS, surface_of
from policy.effects.surface_parts import PathUse, ShellText, SqlText, Surface, UrlUse
from tests.support.cpu import cpu_within
from tests.support.json_values import Json


def surface(name: str, /, **arguments: Any) -> Surface:
    return surface_of(ToolCall(0, 0, "id", name, json.dumps(arguments), arguments, None))


@pytest.mark.parametrize(
    ("name", "arguments", "texts"),
    [
        ("bash", {"command": "ls"}, ["ls"]),
        ("Bash", {"command": "ls", "description": "rm -rf /"}, ["ls"]),
        ("runShellCommand", {"command": ["bash", "-lc", "rm -rf /"]}, ["'bash' '-lc' 'rm -rf /'"]),
        ("container.exec", {"cmd": ["ls", "it's"]}, ["'ls' 'it'\\''s'"]),
        ("nobody_knows_me", {"command": "ls"}, ["ls"]),
        ("nobody_knows_me", {"command": "rm", "args": ["-rf", "/"]}, ["rm '-rf' '/'"]),
        ("spawn", {"program": "rm", "argv": ["-rf", "/"]}, ["rm '-rf' '/'"]),
        ("shell", {"commands": ["ls", "pwd"]}, ["ls", "pwd", "ls\npwd"]),
        ("tmux_send_keys", {"keys": "ls\n"}, ["ls\n"]),
        ("functions.bash", {"cmd": "ls"}, ["ls"]),
        ("batch", {"calls": [{"command": "ls"}, {"command": "pwd"}]}, ["ls", "pwd"]),
        ("call_tool", {"name": "bash", "arguments": '{"command": "ls"}'}, ["ls"]),
        ("bash", {"command": "ls", "env": {"A": "b c", "not a name": "x"}}, ["export A='b c'; ls"]),
        ("bash", {"command": "bash", "stdin": "ls"}, ["bash <<< 'ls'"]),
        ("python", {"code": "print(1)"}, ["python3 -c 'print(1)'"]),
        ("execute", {"code": "x", "language": "javascript"}, ["node -e 'x'"]),
        ("execute", {"code": "ls", "language": "bash"}, ["ls"]),
        ("jupyter_cell", {"source": "x"}, ["python3 -c 'x'"]),
        ("str_replace_based_edit_tool", {"command": "view", "path": "x"}, []),
        ("run_query", {"command": "select 1"}, []),
        ("get_weather", {"city": "rm -rf /"}, []),
    ],
)
def test_texts_for_a_shell(name: str, arguments: Json, texts: list[str]) -> None:
    assert [found.text for found in surface(name, **arguments).shell] == texts


def test_a_command_has_the_folder_in_which_it_runs() -> None:
    assert surface("bash", command="rm -rf .", workdir="/etc").shell == (
        ShellText("rm -rf .", "command", "/etc"),
    )


@pytest.mark.parametrize(
    ("name", "arguments", "uses"),
    [
        ("read_file", {"path": "a"}, [("a", "read")]),
        ("Read", {"file_path": "/etc/x"}, [("/etc/x", "read")]),
        ("write_file", {"path": "a", "content": "x"}, [("a", "write")]),
        ("edit", {"filePath": "a", "newString": "x"}, [("a", "write")]),
        (
            "str_replace_based_edit_tool",
            {"command": "create", "path": "a", "file_text": "x"},
            [("a", "write")],
        ),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, [("a", "read")]),
        ("delete_file", {"path": "a"}, [("a", "delete")]),
        ("move_file", {"source": "a", "destination": "b"}, [("a", "delete"), ("b", "write")]),
        ("copy_file", {"source": "a", "destination": "b"}, [("a", "read"), ("b", "write")]),
        ("read_multiple_files", {"paths": ["a", "b"]}, [("a", "read"), ("b", "read")]),
        ("multi_edit", {"edits": [{"path": "a", "new_string": "x"}]}, [("a", "write")]),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** End Patch"},
            [("a", "write"), ("b", "delete")],
        ),
        (
            "patch",
            {"diff": "--- a/x\n+++ b/x\n@@\n-1\n+2\n--- a/y\n+++ /dev/null\n"},
            [("x", "write"), ("y", "delete")],
        ),
        ("unknown", {"target": "/etc/passwd"}, [("/etc/passwd", "read")]),
        ("send_mail", {"to": "a@b.c", "body": "x"}, []),
        ("get_weather", {"location": "Paris"}, []),
    ],
)
def test_paths_and_what_is_done_there(
    name: str, arguments: Json, uses: list[tuple[str, str]]
) -> None:
    assert [(use.path, use.does) for use in surface(name, **arguments).paths] == uses


def test_what_a_tool_fetches_it_writes() -> None:
    assert (
        surface("download_file", url="https://a.example/x", destination="/etc/x").paths[0].does
        == "write"
    )
    assert surface("curl", url="https://a.example/x", output="./x.json").paths[0].does == "write"
    assert surface("read_file", path="/etc/x").paths[0].does == "read"


def test_what_is_written_goes_with_its_path() -> None:
    assert surface("write_file", path="a", content="x").paths == (
        PathUse("a", "write", "path", "x"),
    )
    assert surface("apply_patch", input="*** Update File: a\n@@\n-old\n+new\n").paths == (
        PathUse("a", "write", "input", "new"),
    )
    assert surface("delete_directory", path="a", recursive=True).paths == (
        PathUse("a", "delete", "path", wide=True),
    )


def test_addresses_and_what_is_sent_there() -> None:
    assert surface("http_request", method="GET", url="https://x.example/").urls == (
        UrlUse("https://x.example/", "url"),
    )
    assert surface("http_request", method="POST", url="https://x.example/", body="b").urls == (
        UrlUse("https://x.example/", "url", True, "b"),
    )
    assert [use.url for use in surface("open", page="http://x.example").urls] == [
        "http://x.example"
    ]
    assert surface("send_mail", to="a@b.c", body="see http://x.example").urls == ()
    assert [use.url for use in surface("connect", host="10.0.0.1").urls] == ["10.0.0.1"]


def test_sql_is_known_by_its_argument_its_tool_or_its_first_word() -> None:
    assert surface("run", sql="x").sql == (SqlText("x", "sql"),)
    assert surface("mcp__postgres__execute", query="x").sql == (SqlText("x", "query"),)
    assert [found.text for found in surface("run_query", query="-- a\n delete from t").sql] == [
        "-- a\n delete from t"
    ]
    assert (
        surface("run_query", query="weather in Paris").sql
        == ()
        == surface("search", query="delete from t").sql
    )


def test_a_call_with_more_than_is_looked_at_is_not_whole() -> None:
    assert not surface(
        "bash", commands=["ls"] * 2 + [str(n) for n in range(MAX_PARTS + 1)]
    ).is_whole
    deep: Any = {"command": "ls"}
    for _ in range(20):
        deep = {"x": deep}
    assert not surface("x", **deep).is_whole
    assert surface("bash", command="ls").is_whole


@pytest.mark.slow
def test_the_time_is_linear() -> None:
    for arguments in (
        {"items": [{"path": f"a{n}", "content": "x"} for n in range(20_000)]},
        {"patch": "+++ x\n--- y\n" * 50_000},
        {"command": "a" * 1_000_000},
        {"url": "x:" * 200_000},
        {"query": "/*" * 100_000},
        {"path": ["../" * 1_000] * 1_000},
    ):
        for name in ("apply_patch", "run_query", "bash"):
            with cpu_within(1.0):
                surface(name, **arguments)
