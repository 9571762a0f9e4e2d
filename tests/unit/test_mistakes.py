"""Mistakes in a configuration: all of them at once, each with its line, its place, and words that
say what to do."""

from pathlib import Path
from typing import Any

import pytest

from sluice.check import check
from sluice.config_file import load_config, parse, parse_config
from sluice.config_mistakes import Finding, Mistakes
from sluice.errors import SettingsError

SHA = "0" * 64
MANY = """\
upstreams:
  mine: {dialect: openia, base_url: "127.0.0.1:1"}
  demo: {dialect: openai, base_url: "http://x/v1", api_key: sk-secret}
models:
  - {match: "gpt-*", upstream: mien}
  - match: x
policies:
  default:
    - {use: tool_rules, deny: [{tool: [1], argument_matches: "("}]}
    - {use: tool_judge, model: demo-judge, treshold: 0.6}
  other: {use: noop}
limits: {body_bytes: much, event_byte: 3}
keys:
  - {name: k, sha256: 'SHA', roles: [clients], policies: [defualt]}
limit: {}
shards:
""".replace("SHA", SHA)
EXPECTED = [
    (
        "line 2: upstreams.mine.dialect: must be 'openai' or 'anthropic' or 'responses' or 'gemini'"
        " or 'converse'; did you mean 'openai'?"
    ),
    (
        "line 2: upstreams.mine.base_url: has no scheme: it begins with http:// or https://, as in"
        " http://127.0.0.1:8000/v1"
    ),
    "line 3: upstreams.demo.api_key: is not known; did you mean 'api_key_env'?",
    "line 3: upstreams.demo: 'demo' is the built-in upstream: give yours another name",
    "line 5: models.0.upstream: the upstream 'mien' is not under upstreams; did you mean 'mine'?",
    "line 6: models.1: a route needs `upstream` or `targets`",
    (
        "line 9: policies.default.0.deny.0.tool.0: must be text (put it in quotes where it looks"
        " like something else) or a mapping"
    ),
    (
        "line 9: policies.default.0.deny.0.argument_matches: the pattern '(' is not valid RE2:"
        " missing )"
    ),
    "line 10: policies.default.1.treshold: is not known; did you mean 'threshold'?",
    "line 11: policies.other: must be a list",
    "line 12: limits.body_bytes: must be a whole number",
    "line 12: limits.event_byte: is not known; did you mean 'event_bytes'?",
    (
        "line 14: keys.0.roles.0: must be 'client', 'auditor', 'admin', 'monitor' or 'approver';"
        " did you mean 'client'?"
    ),
    (
        "line 14: keys.0.policies.0: the policy 'defualt' is not under policies; did you mean"
        " 'default'?"
    ),
    "line 15: limit: is not known; did you mean 'limits'?",
    "line 16: shards: is empty: put something there, or take the line out",
]


def found_in(text: str) -> list[Finding]:
    return [one for one in check.examine(parse(text, "x.yaml"), (), {}) if one.level == "error"]


def test_all_mistakes_are_said_at_once_with_line_and_place() -> None:
    with pytest.raises(SettingsError) as refused:
        check.refuse(parse(MANY, "x.yaml"), ())
    first, *lines = str(refused.value).splitlines()
    assert first == f"x.yaml: {len(EXPECTED)} mistakes"
    for line, expected in zip(lines, EXPECTED, strict=True):
        assert line.startswith(f"  {expected}")
    assert "sk-secret" not in str(refused.value)


def test_a_key_is_a_word_whatever_yaml_takes_it_for() -> None:
    steps = "    - {use: text_judge, model: demo-judge, rule: Never., on: [request]}\n"
    document = parse(f"policies:\n  default:\n{steps}", "x.yaml")
    assert document.config is not None
    assert document.config.policies["default"][0].options["on"] == ["request"]


def test_one_mistake_is_one_sentence() -> None:
    with pytest.raises(Mistakes) as refused:
        check.refuse(parse("policies:\n  default:\n    - use: tool_judge\n", "x.yaml"), ())
    assert (
        str(refused.value) == "x.yaml line 3: policies.default.0: give either `model` or `judges`"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models: {a: b}", "models: must be a list"),
        ("policies: []", "policies: must be a mapping (name: value)"),
        ("policies: {}", "policies: is empty: put something there, or take the line out"),
        (
            "policies: {default: [tool_rules]}",
            "policies.default.0: must be a mapping: `use: tool_rules`",
        ),
        ("policies: {default: ['a b']}", "policies.default.0: must be a mapping (name: value)"),
        ("limits:\n  call_s: -5", "x.yaml line 2: limits.call_s: must be more than 0 and finite"),
        ("limits: {open_calls: 0}", "limits.open_calls: must be more than 0 and finite"),
        ("limits: {idle_s: .nan}", "limits.idle_s: must be more than 0 and finite"),
        ("limits: {call_s: .inf}", "limits.call_s: must be more than 0 and finite"),
        ("limits: {memory_share: 7}", "limits.memory_share: must be at most 1"),
        (
            f"keys: [{{name: a, sha256: '{SHA}'}}, {{name: b, sha256: '{SHA}'}}]",
            "keys.1.sha256: is also that of keys.0: one key cannot",
        ),
        ("a: \0", "x.yaml line 1: holds a character that YAML does not allow (U+0000)"),
        (
            "demo: true\nx: \x1b",
            "x.yaml line 2: holds a character that YAML does not allow (U+001B)",
        ),
        (
            "policies:\n\tdefault: []",
            "x.yaml line 2: a tab stands here, and YAML indents with blanks",
        ),
        (
            "demo: true\n---\ndemo: false",
            "x.yaml line 2: a second document begins here (`---`), and a configuration is one",
        ),
        ("policies: {default: [", "x.yaml line 1: expected a value, but found the end of the file"),
        (
            "models:\n  - {match: a",
            "the end of the file (in the mapping that begins with `{` in line 2)",
        ),
        (
            "demo: a: b",
            "x.yaml line 1: a second `: ` in one line, or a line that is indented too far",
        ),
        ("? [a]\n: b", "x.yaml line 1: a key must be a name, not a list or a mapping"),
        ("policies:", "policies: is empty: put something there, or take the line out"),
        ("demo: maybe", "demo: must be true or false"),
        ("shards: 1.5", "shards: must be a whole number"),
        ("limits: {call_s: soon}", "limits.call_s: must be a number"),
        ("limits: {client_idle_s: 0}", "limits.client_idle_s: must be more than 0.0"),
        ("shards: 65", "shards: must be at most 64"),
        (
            "durability: stritc",
            "durability: must be 'default', 'relaxed' or 'strict'; did you mean 'strict'?",
        ),
        ("accept_policy_sets: [zzz]", "accept_policy_sets.0: must be 12 hex digits in quotes"),
        (
            "upstreams: {'a b': {dialect: openai, base_url: 'http://h'}}",
            (
                "upstreams.'a b': must be a name: 1 to 64 letters, digits, `.`, `_` and `-`, the"
                " first a letter or digit"
            ),
        ),
        ("zzz: 1", "zzz: is not known (known: "),
        (
            f"keys: [{{name: k, sha256: '{SHA}'}}]\npolicies: {{a: []}}",
            "keys.0.policies: is missing, so the key would use 'default', and",
        ),
        (
            "limits: {body_bytes: 1000, upload_bytes: 1999}",
            "limits: upload_bytes must be at least twice body_bytes",
        ),
    ],
)
def test_the_words_are_plain(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_config(text, "x.yaml")
    assert sentence in str(refused.value)
    assert "pydantic" not in str(refused.value) and "input should" not in str(refused.value).lower()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("api.example.com/v1", "has no scheme: it begins with http:// or https://"),
        ("localhost:8000/v1", "has no scheme"),
        ("ftp://h/v1", "has another scheme"),
        ("http://", "names no host: write http://HOST[:PORT][/PATH]"),
        ("http://h:99999/v1", "is not a URL (its port is not a number from 0 to 65535)"),
        ("http://h:http/v1", "is not a URL (its port is not a number from 0 to 65535)"),
        ("http://[h/v1", "is not a URL"),
        (
            "http://h/v1?a=b&Key=secret",
            "has a key in its query (`Key`), which logs on the way show",
        ),
        (
            "http://user:secret@h/v1#x",
            "has a `#`: an upstream's address ends with its path or a query",
        ),
        ("http://h/v1 ", "has blanks around it"),
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(url: str, sentence: str) -> None:
    [found] = found_in(f"upstreams: {{u: {{dialect: openai, base_url: '{url}'}}}}")
    assert (
        found.sentence.startswith(f"upstreams.u.base_url: {sentence}")
        and "secret" not in found.sentence
    )


@pytest.mark.parametrize(
    ("step", "place", "sentence"),
    [
        (
            "{use: tool_rule}",
            "policies.default.0",
            "nor of the form module:Class; did you mean 'tool_rules'?",
        ),
        (
            "{use: noop, x: 1}",
            "policies.default.0",
            "the option 'x' is not known: it has no options",
        ),
        ("{use: nowhere.to:Be}", "policies.default.0", "ModuleNotFoundError"),
        (
            "{use: tool_rules, deny: [{toool: bash}]}",
            "policies.default.0.deny.0.toool",
            "is not known; did you mean 'tool'?",
        ),
        (
            "{use: tool_rules, deny: [{tool: {re2: '('}}]}",
            "policies.default.0.deny.0.tool.re2",
            "is not valid RE2",
        ),
        (
            "{use: tool_rules, deny: [{tool: {re: x}}]}",
            "policies.default.0.deny.0.tool.re",
            "is not known; did you mean 're2'?",
        ),
        (
            "{use: tool_rules, deny: [{decision: replac}]}",
            "policies.default.0.deny.0.decision",
            "did you mean 'replace'?",
        ),
        ("{use: tool_rules, deny: {tool: bash}}", "policies.default.0.deny", "must be a list"),
        (
            "{use: tool_judge, model: m, threshold: 2}",
            "policies.default.0.threshold",
            "must be at most 1",
        ),
        ("{use: tool_judge, model: m, tools: 3}", "policies.default.0.tools", "must be text"),
        (
            "{use: text_replace, rules: []}",
            "policies.default.0.rules",
            "is empty: put something there, or take the line out",
        ),
    ],
)
def test_policies_are_loaded_and_the_option_at_fault_has_its_place(
    step: str, place: str, sentence: str
) -> None:
    found = found_in(f"policies:\n  default:\n    - {step}\n")
    assert any(
        one.sentence.startswith(f"{place}: ") and sentence in one.text and one.line == 3
        for one in found
    ), found


def test_a_policy_of_ones_own_is_loaded_too(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(
        "from policy.base import Policy\nclass Guard(Policy):\n    def __init__(self, folder):"
        " raise ValueError('no such\\nfolder')\n"
    )
    document = parse(
        "policies: {default: [{use: guards:Guard, folder: /x}, {use: guards:Guard, folders: 1}]}",
        "x.yaml",
    )
    first, second = check.examine(document, (str(tmp_path),))
    assert first.sentence == "policies.default.0: no such folder"
    [missing] = check.examine(
        parse("policies: {default: [{use: gards:Guard}]}", "x.yaml"), (str(tmp_path),)
    )
    assert (
        missing.text
        == f"there is no module 'gards' for 'gards:Guard' in {tmp_path} or the installed packages"
    )
    assert (
        second.sentence
        == "policies.default.1: the option 'folders' is not known: its options are folder; did you"
        " mean 'folder'?"
    )


def test_names_that_a_terminal_could_obey_are_quoted() -> None:
    [found] = found_in('"\\e[31mlimit": {}')
    assert "\x1b" not in found.within("x.yaml") and "\\x1b" in found.sentence


def test_merged_mappings_have_their_places() -> None:
    text = (
        "limits: &l {body_bytes: much}\nupstreams:\n  u:\n    <<: {dialect: openai}\n   "
        " base_url: x\n"
    )
    said: list[Any] = [(one.place, one.line) for one in found_in(text)]
    assert said == [(("limits", "body_bytes"), 1), (("upstreams", "u", "base_url"), 5)]


def test_without_policies_the_shipped_ones_hold(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text('upstreams: {u: {dialect: openai, base_url: "http://127.0.0.1:1/v1"}}\n')
    assert load_config(path).policies == load_config(None).policies
    assert [step.use for step in load_config(path).policies["default"]] == ["preset"]
