"""Rules about what a call does: deny where one effect is named, allow only where everything is."""

import json
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from policy.base import ALLOW, Allow, AskJudge, Block, Context, ToolCall, Verdict
from policy.builtin.tool_judge import ToolJudge
from policy.builtin.tool_rules import ToolRules
from policy.loading import make
from protocol.errors import PolicyFailed
from protocol.request import ChatRequest
from settings.config import PolicyStep
from sluice.check.check import examine
from sluice.config_file import parse
from tests.support.json_values import Json


def ask(rules: Json, tool: str, /, **arguments: Any) -> Verdict:
    """The verdict without its sentence, which `test_effect_sentences` is about."""
    verdict = ToolRules(**rules).on_tool_call(
        ToolCall(0, 0, "id", tool, json.dumps(arguments), arguments, None)
    )
    return msgspec.structs.replace(verdict, why="") if isinstance(verdict, Block) else verdict


def deny(condition: Json, **more: Any) -> Json:
    return {"deny": [{"name": "x", **condition}], **more}


def allow(**condition: Any) -> Json:
    return {"allow": [condition]}


BLOCKED = Block("rule", rule="x")
UNSURE = Block("unsure", rule="unsure")
NOT_ALLOWED = Block("not_allowed", rule="allow")
READS_PROJECT = {"paths": {"does": ["read"], "scope": ["project"]}}
SELECTS = {"sql": {"dialect": "any", "effects": ["read"]}}
DELETES = {"does": {"effects": ["delete"], "scope": ["home", "system", "root"]}}


@pytest.mark.parametrize(
    ("condition", "tool", "arguments", "verdict"),
    [
        (DELETES, "bash", {"command": "rm -rf /etc"}, BLOCKED),
        (DELETES, "bash", {"command": ["rm", "-rf", "/etc"]}, BLOCKED),
        (DELETES, "bash", {"command": "sudo timeout 3 r\\m -rf /etc"}, BLOCKED),
        (DELETES, "anything", {"command": "rm", "args": ["-r", "/etc"]}, BLOCKED),
        (DELETES, "bash", {"command": "rm -rf build"}, ALLOW),
        (DELETES, "bash", {"command": "echo rm -rf /etc"}, ALLOW),
        (DELETES, "delete_file", {"path": "/etc/passwd"}, BLOCKED),
        (DELETES, "delete_file", {"path": "src/a"}, ALLOW),
        (DELETES, "read_file", {"path": "/etc/passwd"}, ALLOW),
        (DELETES, "get_weather", {"city": "Paris"}, Allow(reason="unread", rule="unread")),
        (DELETES, "write_file", {"path": "clean.sh", "content": "rm -rf /etc"}, BLOCKED),
        (DELETES, "write_file", {"path": "notes.txt", "content": "rm -rf /etc"}, ALLOW),
        (DELETES, "bash", {"command": "rm -rf .", "workdir": "/etc"}, BLOCKED),
        (
            {"shell": {"effects": ["delete"], "scope": ["system"]}},
            "delete_file",
            {"path": "/etc/passwd"},
            ALLOW,
        ),
        (
            {"shell": {"commands": ["git push", "docker"]}},
            "bash",
            {"command": "cd x && git push -f"},
            BLOCKED,
        ),
        (
            {"shell": {"commands": ["git push", "docker"]}},
            "bash",
            {"command": "git status; echo git push"},
            ALLOW,
        ),
        (
            {"shell": {"commands": ["git push"]}},
            "bash",
            {"command": "git -C /x --no-pager push"},
            BLOCKED,
        ),
        ({"shell": {"commands": ["git push"]}}, "bash", {"command": "git log push"}, ALLOW),
        (
            {"network": {"sends": True}},
            "http_request",
            {"url": "https://x.example/", "json": {"a": "secret"}},
            BLOCKED,
        ),
        (
            {"shell": {"commands": ["rm"], "effects": ["delete"], "scope": ["temp"]}},
            "bash",
            {"command": "rm -rf /tmp/x"},
            BLOCKED,
        ),
        (
            {"paths": {"does": "write", "scope": ["startup"]}},
            "write_file",
            {"path": "~/.bashrc", "content": "x"},
            BLOCKED,
        ),
        (
            {"paths": {"does": ["write"], "scope": ["startup"]}},
            "read_file",
            {"path": "~/.bashrc"},
            ALLOW,
        ),
        ({"paths": {"does": "read", "argument": "other"}}, "read_file", {"path": "x"}, ALLOW),
        ({"paths": {"target": "*.env"}}, "read_file", {"path": "prod.env"}, BLOCKED),
        (
            {"network": {"scope": ["metadata"]}},
            "fetch",
            {"url": "http://169.254.169.254/latest"},
            BLOCKED,
        ),
        (
            {"network": {"scope": ["other"], "sends": True}},
            "http",
            {"url": "https://x.example", "method": "POST", "body": "x"},
            BLOCKED,
        ),
        (
            {"network": {"scope": ["other"], "sends": True}},
            "http",
            {"url": "https://x.example", "method": "GET"},
            ALLOW,
        ),
        (
            {"secrets": {}},
            "note",
            {"text": "AKIAQ3EGRIBHV5ZC6TWF and wJalrXUtnFEMI/K7MDENG/bPxRfiCYzL8w2Kq9Zx"},
            BLOCKED,
        ),
        ({"secrets": {"argument": "other"}}, "note", {"text": "AKIAQ3EGRIBHV5ZC6TWF"}, ALLOW),
        ({"secrets": {}}, "note", {"text": "nothing"}, ALLOW),
        ({"shell": {"commands": ["rm"]}}, "bash", {"command": "PATH=/x sudo /opt/RM x"}, BLOCKED),
        ({"shell": {"commands": ["rm"]}}, "bash", {"command": "X=1; exit"}, ALLOW),
    ],
)
def test_a_deny_rule_applies_where_one_effect_is_named(
    condition: Any, tool: str, arguments: Json, verdict: Verdict
) -> None:
    assert ask(deny(condition), tool, **arguments) == verdict


def test_what_cannot_be_decided_has_a_reason_of_its_own() -> None:
    dark = {"command": '$(cat x) "$y"'}
    assert ask(deny(DELETES), "bash", **dark) == UNSURE
    assert ask(deny(DELETES, unsure="allow"), "bash", **dark) == ALLOW
    assert ask(
        deny({"shell": {"effects": ["delete"], "unsure": True}}, unsure="allow"), "bash", **dark
    ) == Block("unsure", rule="x")
    assert ask(deny({"shell": {"unsure": True}}, unsure="allow"), "bash", command="ls") == ALLOW
    # a rule about other tools, or about other things, leaves it open
    assert ask(deny({"tool": "python", **DELETES}), "bash", **dark) == ALLOW
    assert ask(deny({"argument_matches": "rm"}), "bash", **dark) == ALLOW


def test_hosts_and_folders_of_the_operator_count() -> None:
    rules = deny({"network": {"scope": ["other"]}}, hosts=["*.example.org"])
    assert ask(rules, "fetch", url="https://api.example.org/x") == ALLOW
    assert ask(rules, "fetch", url="https://api.example.com/x") == BLOCKED
    assert (
        ask(deny(DELETES, project="/home/me/app"), "bash", command="rm -rf /home/me/app/out")
        == ALLOW
    )
    assert (
        ask(deny(DELETES, project="/home/me/app"), "bash", command="rm -rf /home/me/other")
        == BLOCKED
    )


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "is_allowed"),
    [
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "ls -la && git status"},
            True,
        ),
        ({"shell": {"commands": ["ls", "git status"]}}, "bash", {"command": "ls; git push"}, False),
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "ls $(curl x.example)"},
            False,
        ),
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "ls > /etc/passwd"},
            False,
        ),
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "ls 2>/dev/null"},
            True,
        ),
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "PATH=/tmp/x ls"},
            False,
        ),
        (
            {"shell": {"commands": ["ls", "git status"]}},
            "bash",
            {"command": "LD_PRELOAD=/tmp/x.so; ls"},
            False,
        ),
        ({"shell": {"commands": ["ls", "git status"]}}, "bash", {"command": "$x"}, False),
        ({"shell": {"commands": ["ls", "git status"]}}, "bash", {"command": ""}, False),
        (
            {"shell": {"commands": ["cat"], "effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "cat src/a"},
            True,
        ),
        (
            {"shell": {"commands": ["cat"], "effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "cat /etc/shadow"},
            False,
        ),
        (
            {"shell": {"effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "cat src/a | head -3"},
            True,
        ),
        (
            {"shell": {"effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "cat src/a | nobody-knows-me"},
            False,
        ),
        (
            {"shell": {"effects": ["read"], "scope": ["project"]}},
            "read_file",
            {"path": "src/a"},
            False,
        ),
        (
            {"paths": {"does": ["read", "write"], "scope": ["project"]}},
            "write_file",
            {"path": "src/a", "content": "x"},
            True,
        ),
        (
            {"paths": {"does": ["read", "write"], "scope": ["project"]}},
            "write_file",
            {"path": "../a", "content": "x"},
            False,
        ),
        (
            {"paths": {"does": ["read"], "scope": ["project"]}},
            "read_files",
            {"paths": ["a", "/etc/passwd"]},
            False,
        ),
        ({"network": {"scope": ["loopback"]}}, "fetch", {"url": "http://localhost:8080/"}, True),
        ({"network": {"scope": ["loopback"]}}, "fetch", {"url": "http://x.example/"}, False),
        (
            {"network": {"scope": ["loopback"]}},
            "fetch",
            {"url": "http://localhost/", "file": "/etc/passwd"},
            False,
        ),
        (
            {"paths": {"does": "read"}, "network": {}},
            "upload",
            {"url": "http://localhost/", "file": "/etc/passwd"},
            True,
        ),
        # a program that has no effects here is no program that does nothing
        (READS_PROJECT, "bash", {"command": "docker run -v /:/x alpine"}, False),
        (READS_PROJECT, "bash", {"command": "true"}, False),
        (
            {"network": {"scope": ["loopback"]}},
            "bash",
            {"command": "gcc -o /etc/passwd a.c"},
            False,
        ),
        (
            {"shell": {"effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "cat src/a; chattr +i src/a"},
            False,
        ),
        (
            {"does": {"effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "sort --files0-from=list src/a"},
            False,
        ),
        (
            {"does": {"effects": ["read"], "scope": ["project"]}},
            "bash",
            {"command": "bash -c 'sort -n src/a | uniq -c; exit'"},
            True,
        ),
        # a name is the program of that name, and vouches for nothing that it runs under
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": "/tmp/ls"}, False),
        ({"shell": {"commands": ["head"]}}, "bash", {"command": "HEAD http://x.example"}, False),
        ({"shell": {"commands": ["./gradlew test"]}}, "bash", {"command": "./gradlew test"}, True),
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": "sudo ls"}, False),
        ({"shell": {"commands": ["sudo", "ls"]}}, "bash", {"command": "sudo ls"}, True),
        (
            {"shell": {"commands": ["ls"]}},
            "bash",
            {"command": "timeout 3 nice bash -lc 'ls; exit 1'"},
            True,
        ),
        (
            {"shell": {"commands": ["sort"], "effects": ["read"]}},
            "bash",
            {"command": "sort --compress-program=/tmp/x a"},
            False,
        ),
        # what no condition speaks of is not allowed
        (
            {"shell": {"commands": ["ls"]}},
            "bash",
            {"command": "ls", "description": "Look around.", "timeout": 9},
            True,
        ),
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": "ls", "cmd": "id"}, False),
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": "ls", "then": "rm -rf /"}, False),
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": "ls", "": "rm -rf /"}, False),
        ({"shell": {"commands": ["ls"]}}, "bash", {"command": ["ls", ["rm"]]}, False),
        (
            {"shell": {"commands": ["ls"]}},
            "bash",
            {"command": "ls", "session": {"x": "rm -rf /"}},
            False,
        ),
        (READS_PROJECT, "read_file", {"path": "a", "sql": "drop table t"}, False),
        (READS_PROJECT, "read_file", {"path": "a", "cwd": "/etc"}, False),
        (
            READS_PROJECT,
            "send_file",
            {"path": "a", "to": "somebody@x.example", "body": "text of a mail"},
            False,
        ),
        (READS_PROJECT, "grep", {"path": "src", "pattern": "rm -rf /", "glob": "*.py"}, True),
        (
            {"paths": {"scope": ["project"]}},
            "edit_file",
            {"path": "a", "edits": [{"old_text": "x y", "new_text": "y z"}]},
            True,
        ),
        (
            {"network": {"scope": ["loopback"]}},
            "fetch",
            {"url": "http://localhost/", "headers": {"a": "b c"}, "prompt": "New?"},
            True,
        ),
        (
            {"argument": "command", "argument_matches": "ls"},
            "bash",
            {"command": "ls", "cmd": "id"},
            False,
        ),
        (SELECTS, "query", {"sql": "select 1", "database": "main", "limit": 5}, True),
        (SELECTS, "query", {"sql": "select 1", "command": "rm -rf /home"}, False),
        (SELECTS, "query", {"sql": "select 1", "payload": '{"command": "id"}'}, False),
        (SELECTS, "query", {"sql": "select 1", "note": "drop it all"}, False),
        (SELECTS, "query", {"sql": "select 1", "path": "/etc/passwd"}, False),
        (
            SELECTS | {"schema": {"properties": {"note": {"type": "string"}}}},
            "query",
            {"sql": "select 1", "note": "a b"},
            True,
        ),
        (SELECTS, "query", {"sql": "select 1; /*!50000 drop table t */"}, False),
        (SELECTS, "query", {"sql": "/*M! drop table t */; select 1"}, False),
    ],
)
def test_an_allow_rule_vouches_only_where_everything_is_named(
    rule: Any, tool: str, arguments: Json, is_allowed: bool
) -> None:
    assert ask(allow(**rule), tool, **arguments) == (ALLOW if is_allowed else NOT_ALLOWED)


def test_a_rule_about_sql_needs_no_argument() -> None:
    rules = allow(sql={"dialect": "postgres", "kinds": ["select"]})
    assert (
        ask(rules, "query", sql="select 1")
        == ALLOW
        == ask(rules, "mcp__db__execute", query="select 1")
    )
    assert (
        ask(rules, "query", sql="delete from t") == NOT_ALLOWED == ask(rules, "read_file", path="x")
    )
    rules = deny({"sql": {"dialect": "postgres", "kinds": ["delete"]}})
    assert ask(rules, "query", sql="delete from t") == BLOCKED == ask(rules, "query", sql="no sql")
    assert ask(rules, "query", sql="select 1") == ALLOW == ask(rules, "read_file", path="x")


def test_a_misspelt_word_has_its_file_line_and_the_nearest_right_one() -> None:
    head = "policies:\n  default:\n    - use: tool_rules\n      deny:\n"
    text = head + "        - shell: {effects: [delet], scope: [projekt]}\n          name: x\n"
    assert [
        one.within("f.yaml").partition(": must be ")[0] + one.text[one.text.rfind(";") :]
        for one in examine(parse(text, "f.yaml"), ())
    ] == [
        "f.yaml line 5: policies.default.0.deny.0.shell.effects.0; did you mean 'delete'?",
        "f.yaml line 5: policies.default.0.deny.0.shell.scope.0; did you mean 'project'?",
    ]
    text = text.replace("effects: [delet], scope: [projekt]", "effect: [delete]")
    (one,) = examine(parse(text, "f.yaml"), ())
    assert (
        one.within("f.yaml")
        == "f.yaml line 5: policies.default.0.deny.0.shell.effect: is not known; did you mean"
        " 'effects'?"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (allow(secrets={}), "they are for rules of `deny`"),
        (allow(shell={"unsure": True}), "they are for rules of `deny`"),
        (deny({"paths": {"does": "network"}}), "`does` of `paths` is read, write or delete"),
        (deny({"shell": {"effects": []}}), "is empty"),
        # a scope that such a thing cannot have, and a kind of secret that there is not, would never
        # be found
        (deny({"network": {"scope": ["home"]}}), "'unknown', 'metadata'"),
        (deny({"paths": {"scope": ["listed"]}}), "'project', 'temp'"),
        (
            deny({"secrets": {"kinds": ["githb"]}}),
            "'githb' is no kind of secret; did you mean 'github'?",
        ),
        (
            deny({"secrets": {"kinds": {"re2": "x+"}}}),
            "is no kind of secret .there are private_key",
        ),
        ({"unsure": "no"}, "'block', 'ask' or 'allow'"),
        (deny({"sql": {"dialect": "postgres"}}), "give `kinds`, `effects` or both"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Json, said: str) -> None:
    with pytest.raises((ValidationError, PolicyFailed), match=said):
        make(PolicyStep.model_validate({"use": "tool_rules", **options}))


def test_texts_that_only_look_like_a_command_are_read_as_a_lenient_reader_would() -> None:
    assert ask(deny(DELETES), "bash", command="\uff52\uff4d -rf /etc") == BLOCKED
    assert ask(deny(DELETES), "bash", command="r\u200bm -rf /etc") == BLOCKED


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "is_asked"),
    [
        ({"shell": {"effects": ["delete"]}}, "bash", {"command": "rm x"}, True),
        ({"shell": {"effects": ["delete"]}}, "bash", {"command": "$(cat plan) x"}, True),
        ({"shell": {"effects": ["delete"]}}, "bash", {"command": "ls"}, False),
        (
            {"paths": {"scope": ["credentials"]}},
            "read_files",
            {"paths": [*(f"a{n}.txt" for n in range(64)), "~/.ssh/id_rsa"]},
            True,
        ),
    ],
)
def test_a_judge_is_asked_about_what_cannot_be_known(
    rule: Any, tool: str, arguments: Json, is_asked: bool
) -> None:
    context = Context("c", "n", "k", "", ChatRequest(dialect="openai", model="m"))
    made = ToolJudge(model="demo-judge", view="call", only=[rule]).for_call(context)
    said = made.on_tool_call(
        ToolCall(0, 0, "i", tool, json.dumps(arguments), arguments, None, nonce="of-the-question")
    )
    assert isinstance(said, AskJudge if is_asked else Allow)
