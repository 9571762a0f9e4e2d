"""The presets that ship: each loads, says what it is, and its options are checked with their
place."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from policy import preset_files
from policy.base import ALLOW, Allow, ToolCall
from policy.effects.shell.commands.effects_of import HANDLERS
from policy.effects.shell.commands.file_commands import table
from policy.effects.shell.commands.file_table import DOES_NOTHING
from policy.loading import load
from protocol.errors import PolicyFailed
from settings.config import Config, PolicyStep
from sluice.check.check import examine
from sluice.config_file import parse
from tests.support.json_values import Json

NAMES = (
    "coding-agent",
    "coding-agent-judged",
    "observe",
    "strict",
    "database-readonly",
    "database-write",
    "office",
    "cloud",
)
NEEDED = {"coding-agent-judged": {"judge": "demo-judge"}}


def step(name: str, **options: object) -> PolicyStep:
    return PolicyStep.model_validate({"use": "preset", "name": name, **options})


def revision(name: str, **options: object) -> str:
    return load(
        [step(name, **(NEEDED.get(name, {}) | options))], session_version="1", config=Config()
    )[1]


@pytest.mark.parametrize("name", preset_files.names())
def test_each_preset_loads_and_says_what_it_is(name: str) -> None:
    found = preset_files.preset(name)
    assert (
        found.about
        and found.version >= 1
        and all(option.about for option in found.options.values())
    )
    policies, _ = load([step(name, **NEEDED.get(name, {}))], session_version="1")
    assert all(policy.is_noop for policy in policies) == (name == "observe")


@pytest.mark.parametrize("name", preset_files.names())
def test_what_a_preset_expands_to_is_plain_configuration_that_can_be_copied(name: str) -> None:
    series = [
        one.model_dump() for one in preset_files.expanded([step(name, **NEEDED.get(name, {}))])
    ]
    text = json.dumps({"policies": {"default": series}})
    assert "$" not in text.replace("$$", "") and '"when"' not in text and '"case"' not in text
    document = parse(text, "copied.yaml")
    assert [one for one in examine(document, ()) if one.level == "error"] == []


def test_all_presets_that_were_promised_are_there() -> None:
    assert set(NAMES) <= set(preset_files.names())


def test_the_options_and_the_content_of_a_preset_are_in_the_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = revision("coding-agent")
    assert base == revision("coding-agent")
    assert (
        revision("coding-agent", project="/srv/app")
        != base
        != revision("coding-agent", unsure="allow")
    )
    whole = preset_files.preset("coding-agent")
    monkeypatch.setattr(
        preset_files, "preset", lambda name: whole.model_copy(update={"version": whole.version + 1})
    )
    assert revision("coding-agent") != base


def mistakes(text: str) -> list[str]:
    return [
        one.within("f.yaml") for one in examine(parse(text, "f.yaml"), ()) if one.level == "error"
    ]


def test_a_mistake_in_the_options_of_a_preset_has_its_file_line_and_place() -> None:
    head = "policies:\n  default:\n    - use: preset\n      name: "
    assert mistakes(head + "codng-agent\n") == [
        "f.yaml line 4: policies.default.0.name: there is no preset 'codng-agent'; did you mean"
        " 'coding-agent'?"
    ]
    assert mistakes(head + "coding-agent\n      projct: /x\n") == [
        "f.yaml line 5: policies.default.0.projct: is not known; did you mean 'project'?"
    ]
    assert mistakes(head + "coding-agent\n      unsure: blok\n") == [
        "f.yaml line 5: policies.default.0.unsure: must be 'block', 'ask' or 'allow'; did you mean"
        " 'block'?"
    ]
    assert mistakes(head + "coding-agent\n      hosts: example.org\n") == [
        "f.yaml line 5: policies.default.0.hosts: must be a list"
    ]
    assert mistakes(head + "coding-agent-judged\n") == [
        "f.yaml line 3: policies.default.0.judge: is missing"
    ]
    assert mistakes("policies:\n  default:\n    - use: preset\n")[0].startswith(
        "f.yaml line 3: policies.default.0: the option 'name' is missing: a preset is one of "
    )


def test_a_series_with_a_preset_that_is_wrong_does_not_load() -> None:
    with pytest.raises(PolicyFailed, match="there is no preset 'nothing'"):
        load([step("nothing")], session_version="1")
    with pytest.raises(PolicyFailed, match="the preset 'coding-agent' cannot be loaded: unsure: "):
        load([step("coding-agent", unsure="no")], session_version="1")


def test_parts_of_a_preset_depend_on_its_options() -> None:
    made = preset_files.Preset.model_validate(
        {
            "name": "x",
            "version": 1,
            "about": "x",
            "options": {
                "how": {"about": "x", "one_of": ["a", "b"], "default": "a"},
                "what": {"about": "x", "type": "list", "default": []},
            },
            "policies": [
                {"use": "noop", "when": {"how": "b"}},
                {
                    "use": "tool_rules",
                    "hosts": "$what",
                    "unsure": {"case": "$how", "a": "block", "b": "allow"},
                    "literal": "$other",
                },
            ],
        }
    )
    assert made.series({}) == [
        {"use": "tool_rules", "hosts": [], "unsure": "block", "literal": "$other"}
    ]
    assert made.series({"how": "b", "what": ["x"]}) == [
        {"use": "noop"},
        {"use": "tool_rules", "hosts": ["x"], "unsure": "allow", "literal": "$other"},
    ]
    with pytest.raises(ValidationError):
        made.series({"how": "c"})


@pytest.mark.slow
def test_what_no_rule_of_strict_names_does_not_pass_whatever_it_is_called() -> None:
    commands = frozenset(
        command.split()[0] for command in preset_files.preset("strict").options["commands"].default
    )
    folders = [Path(name) for name in ("/usr/bin", "/usr/sbin") if Path(name).is_dir()]
    names = (
        {*table(), *HANDLERS, *(path.name for folder in folders for path in folder.iterdir())}
        - commands
        - DOES_NOTHING
        - {"xargs"}
    )
    policies, _ = load([step("strict")], session_version="1", config=Config())
    assert len(names) > 600
    for name in sorted(names):
        for words in (" -o /etc/passwd src/a", " run x"):
            arguments = {"command": name + words}
            call = ToolCall(0, 0, "i", "bash", json.dumps(arguments), arguments, None)
            assert any(policy.on_tool_call(call) != ALLOW for policy in policies), arguments


def is_stopped(name: str, tool: str, arguments: Json, **options: object) -> bool:
    policies, _ = load([step(name, **options)], session_version="1", config=Config())
    call = ToolCall(0, 0, "i", tool, json.dumps(arguments), arguments, None)
    return not all(isinstance(policy.on_tool_call(call), Allow) for policy in policies)


PLACES: dict[str, object] = {
    "project": "/srv/app",
    "home": "/home/u",
    "hosts": ["docs.example.org"],
}
OUTSIDE = """
git show --output=../../x.txt
git -C /etc status
git -c core.pager=./x diff
go build -o /usr/local/bin/ls .
gofmt -w /etc/x
cargo build --target-dir=/home/u
cargo build --target-dir /home/u
pytest -o cache_dir=/home/u/x
pytest --cov-report=html:/home/u/x
ruff check --output-file=/home/u/x
sort --compr /tmp/x f
sort --compress-program=./x f
go test -exec ./x ./...
make DESTDIR=/home/u install
npm run build -- --outDir=/home/u
npx other
for PATH in ./x; do ls; done
select PATH in a; do ls; done
for ((PATH=1;PATH<2;PATH++)); do ls; done
printf -v PATH %s ./x; git status
printf -v "$(cat n)" %s ./x; ls
((PATH=1)); ls
((a=1,PATH=2)); ls
echo $((PATH+=1)); ls
read PATH <<< ./x; ls
read -a PATH < x; ls
echo ${GIT_DIR:=./x}; git status
echo ${EDITOR=./x}; git commit
ls {PATH}>x; ls
export PATH=./x; ls
export $(cat .env); ls
declare -n r=PATH; r=./x; ls
HOME=./x git diff
XDG_CONFIG_HOME=./x git diff
RUSTC_WRAPPER=./x cargo build
GOFLAGS=-toolexec=./x go build
RIPGREP_CONFIG_PATH=./x rg x
GIT_TRACE=/home/u/x git status
PYTEST_ADDOPTS=--junitxml=/home/u/x pytest
npm_config_script_shell=./x npm test
http_proxy=http://x.example git status
GIT_PAGER=./x git diff
"""
WITHIN = """
git diff --output=notes.txt
git --no-pager diff
git -C . status
git log --oneline -5 origin/main
git commit -m "fix /etc/hosts parsing"
go build -o bin/app .
go test ./...
cargo test
gofmt -w .
pytest --basetemp=/tmp/x -k "a and b" tests/x.py::test_y
make -C src test
npm test
npm run build
npx tsc --noEmit
npx eslint src
set -e; pytest
export CI=1; pytest
LC_ALL=C PAGER=cat git diff
cat x | while IFS= read -r line; do echo "$line"; done
for f in a b; do echo $((i++)) $f; done
sleep 1; command -v rg; type ls; which python
find . -name '*.py' -exec grep -l y {} +
grep -r --line-number x .
rg --hidden x .
cp a .
sed -n '/foo/p' src/x
sort --reverse --key=2 x
"""


@pytest.mark.parametrize("command", OUTSIDE.strip().splitlines())
def test_strict_vouches_for_no_option_and_no_variable_that_leads_outside(command: str) -> None:
    assert is_stopped("strict", "bash", {"command": command}, **PLACES)


@pytest.mark.parametrize("command", WITHIN.strip().splitlines())
def test_strict_lets_everyday_work_in_the_project_pass(command: str) -> None:
    assert not is_stopped("strict", "bash", {"command": command}, **PLACES)


URL = "https://docs.example.org/3/"
FROM_TOOLS: list[tuple[str, str, Json, bool]] = [
    ("strict", "http_request", {"url": URL, "body": "secret"}, True),
    ("strict", "http_request", {"url": URL, "method": "GET", "body": "secret"}, True),
    ("strict", "http_request", {"url": URL, "json": {"secret": 1}}, True),
    ("strict", "http_request", {"url": URL, "method": "PURGE"}, True),
    ("strict", "http_request", {"url": URL, "type": "POST"}, True),
    ("strict", "http_request", {"url": URL, "method": "OPTIONS"}, False),
    ("strict", "fetch", {"url": URL, "prompt": "What is new?"}, False),
    ("strict", "bash", {"command": "git", "args": ["status", ["; docker run x"]]}, True),
    ("strict", "run", {"program": "ls", "parameters": ["-la", ["push"]]}, True),
    ("strict", "run", {"program": "ls", "args": ["-la", {"x": "push"}]}, True),
    ("strict", "run", {"program": "ls", "args": ["-la"]}, False),
    ("strict", "exec_command", {"cmd": "ls", "shell": "/tmp/x"}, True),
    ("strict", "exec_command", {"shell": "bash"}, True),
    (
        "strict",
        "exec_command",
        {"cmd": "ls", "shell": "bash", "login": True, "workdir": "/srv/app"},
        False,
    ),
    (
        "strict",
        "replace",
        {"file_path": "a", "old_string": "a", "new_string": "b", "instruction": "Change it."},
        False,
    ),
    ("strict", "list_files", {"path": ".", "recursive": "true"}, False),
    ("strict", "search_files", {"path": "src", "regex": "a b", "file_pattern": "*.py"}, False),
    ("strict", "execute_command", {"command": "ls", "requires_approval": "false"}, False),
    (
        "strict",
        "edit_file",
        {"target_file": "a.py", "instructions": "I will.", "code_edit": "x = 1"},
        False,
    ),
    (
        "strict",
        "NotebookEdit",
        {"notebook_path": "a.ipynb", "new_source": "x", "cell_id": "a", "edit_mode": "replace"},
        False,
    ),
    (
        "strict",
        "Grep",
        {"pattern": "a b", "path": "src", "-C": "3", "output_mode": "content"},
        False,
    ),
    (
        "database-readonly",
        "query",
        {"query": "select * from t where a=$1", "parameters": ["John Smith"]},
        False,
    ),
    (
        "database-readonly",
        "query",
        {"query": "select * from t where a=:n", "params": {"n": "John Smith"}},
        False,
    ),
    (
        "database-readonly",
        "query",
        {"query": "delete from t where a=$1", "parameters": ["John Smith"]},
        True,
    ),
    (
        "database-readonly",
        "query",
        {"query": "select 1", "parameters": [["; delete from t"]]},
        True,
    ),
    (
        "database-readonly",
        "mcp__supabase__execute_sql",
        {"project_id": "abc", "query": "select 1"},
        False,
    ),
    (
        "database-readonly",
        "bigquery_query",
        {"projectId": "abc", "location": "US", "dataset": "d", "query": "select 1"},
        False,
    ),
    ("database-readonly", "query", {"cluster": "a", "table": "b", "query": "select 1"}, False),
]


@pytest.mark.parametrize(("name", "tool", "arguments", "stopped"), FROM_TOOLS)
def test_arguments_of_real_tools_are_read_whole(
    name: str, tool: str, arguments: Json, stopped: bool
) -> None:
    assert is_stopped(name, tool, arguments, **(PLACES if name == "strict" else {})) == stopped


def test_more_paths_in_options_than_are_looked_at_are_not_vouched_for() -> None:
    for count, stopped in ((100, False), (300, True)):
        paths = ":".join(f"/tmp/{number}" for number in range(count))
        assert (
            is_stopped("strict", "bash", {"command": f"pytest --cov-report={paths}"}, **PLACES)
            == stopped
        )
