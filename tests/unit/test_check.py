"""What a check says of a configuration without mistakes, and what policies make of one call or text."""

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.config import Config, Key
from protocol.errors import PolicyFailed
from sluice import check
from sluice.config_file import parse
from sluice.trial import Tried, demo_judgement, try_call, try_text

UPSTREAM = "upstreams: {u: {dialect: openai, base_url: 'http://h/v1', api_key_env: MY_KEY}}\nmodels: [{match: 'gpt-*', upstream: u}]\n"
DECIDES = "policies: {default: [{use: tool_rules, deny: [{}]}]}"
RULES: list[dict[str, Any]] = [{"use": "tool_rules", "deny": [{"tool": "bash", "reason": "no_shell"}]}]
BASH = json.dumps({"command": "rm -rf /"})


def said(text: str, **environment: str) -> list[str]:
    return [f"{one.level} {one.line}: {one.sentence}" for one in check.examine(parse(text, "x.yaml"), (), environment)]


def test_a_configuration_with_nothing_to_say_of() -> None:
    assert said(UPSTREAM + "policies: {default: [{use: tool_rules, deny: [{tool: bash}]}]}", MY_KEY="k") == []


def test_missing_policies_are_said() -> None:
    [note] = said(UPSTREAM, MY_KEY="k")
    assert note.startswith("note 0: policies: none are given, so the shipped ones hold: ")


@pytest.mark.parametrize(
    ("steps", "passes"),
    [
        ("[]", True), ("[{use: noop}]", True), ("[{use: noop}, {use: 'policy.builtin.noop:Noop'}]", True), ("[{use: tool_rules}]", True),
        ("[{use: tool_rules, deny: []}]", True), ("[{use: tool_rules, allow: []}]", False),
        ("[{use: control, monitors: [{use: shell}]}]", True),
        ("[{use: control, monitors: [{use: shell}], steps: [{at: 0.5, do: allow}]}]", True),
        ("[{use: control, monitors: [{use: shell}], threshold: 0.5, observe: true}]", True),
        ("[{use: control, monitors: [{use: shell}], threshold: 0.5}]", False),
        ("[{use: control, critical: [{tool: x}]}]", False), ("[{use: preset, name: observe}]", True),
        ("[{use: tool_rules, validate_schema: true}]", False), ("[{use: noop}, {use: tool_rules, deny: [{tool: x}]}]", False),
    ],
)  # fmt: skip
def test_a_default_that_lets_everything_pass_is_said_loudly(steps: str, passes: bool) -> None:
    found = said(f"policies:\n  default: {steps}\n")
    assert [one.startswith("warning 2: policies.default: EVERYTHING PASSES: ") for one in found] == [True] * passes
    assert said(f"policies:\n  default: [{{use: tool_rules, deny: [{{tool: x}}]}}]\n  other: {steps}\n") == []


def test_a_variable_that_is_not_set_is_said_and_one_that_may_be_a_key_is_not_repeated() -> None:
    text = UPSTREAM + DECIDES
    [warning] = said(text)
    assert warning.startswith("warning 1: upstreams.u.api_key_env: the variable MY_KEY is not set here")
    for secret in ("sk-abc.def", "sk_live_abc"):
        [found] = said(text.replace("MY_KEY", secret))
        assert secret not in found and found.startswith("upstreams.u.api_key_env", found.index(":") + 2)


def test_a_key_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    text = UPSTREAM.replace("api_key_env: MY_KEY", f"api_key_file: {tmp_path}/none") + DECIDES
    assert said(text) == [f"error 1: upstreams.u.api_key_file: {tmp_path}/none cannot be read here: No such file or directory"]
    (tmp_path / "none").write_text("key")
    assert said(text) == []


def test_a_header_that_cannot_be_sent_is_a_mistake() -> None:
    found = said(UPSTREAM.replace("api_key_env: MY_KEY", "headers: {'a b': c}") + DECIDES)
    assert found == ["error 1: upstreams.u: the header 'a b' of an upstream cannot be sent"]


@pytest.mark.parametrize(("model", "warned"), [("gpt-4o", False), ("demo-judge", False), ("claude", True), ("demo", True)])
def test_a_judge_that_nothing_routes_is_said(model: str, warned: bool) -> None:
    found = said(UPSTREAM + f"demo: true\npolicies:\n  default:\n    - {{use: tool_judge, model: {model}}}\n", MY_KEY="k")
    sentence = f"warning 6: policies.default.0.model: no route under models leads the judge model {model!r} to an upstream"
    assert [one.startswith(sentence) for one in found] == [True] * warned
    monitors = f"[{{use: provenance}}, {{use: model, model: {model}}}]"
    found = said(
        UPSTREAM + f"demo: true\npolicies:\n  default:\n    - {{use: control, threshold: 0.5, monitors: {monitors}}}\n", MY_KEY="k"
    )
    sentence = sentence.replace("default.0.model", "default.0.monitors.1.model")
    assert [one.startswith(sentence) for one in found] == [True] * warned


@pytest.mark.parametrize(
    ("dialect", "path", "ending"),
    [
        ("openai", "/v1/chat/completions", "/chat/completions"), ("openai", "/v1", ""), ("openai", "", ""),
        ("openai", "/v1/models/", "/models"),
        ("anthropic", "/v1", "/v1"), ("anthropic", "/v1/messages", "/v1/messages"), ("anthropic", "", ""), ("anthropic", "/proxy", ""),
    ],
)  # fmt: skip
def test_an_address_that_has_what_is_added_to_it_is_said(dialect: str, path: str, ending: str) -> None:
    found = said(UPSTREAM.replace("openai", dialect).replace("/v1", path) + DECIDES, MY_KEY="k")
    assert [one.startswith(f"warning 1: upstreams.u.base_url: ends in {ending}, and /") for one in found] == [True] * bool(ending)


def test_keys_of_one_name_are_said() -> None:
    keys = "\n".join(f"  - {{name: k, sha256: '{digit * 64}'}}" for digit in "12")
    assert said(f"{DECIDES}\nkeys:\n{keys}") == [
        "warning 4: keys.1.name: keys.0 has the same name; the record tells them apart by id alone"
    ]


def test_routes_and_upstreams_that_are_never_used_are_said() -> None:
    text = """\
upstreams: {u: {dialect: openai, base_url: 'http://h/v1'}, v: {dialect: openai, base_url: 'http://h/v1'}}
models:
  - {match: a, upstream: u}
  - {match: a, upstream: u}
  - {names: [c], upstream: u}
  - {names: [d], match: a, upstream: u}
  - {match: "*", upstream: u}
  - {match: b, upstream: u}
policies: {default: [{use: tool_rules, deny: [{}]}]}
"""
    assert said(text) == [
        "warning 1: upstreams.v: no route under models leads here",
        "warning 4: models.1: is never used: models.0 takes these models first",
        "warning 8: models.5: is never used: models.4 takes these models first",
    ]


def test_keys_with_policies_that_there_are_not_are_said() -> None:
    names: list[tuple[str, ...]] = [("default",), ("defualt",), ("default", "other", "more")]
    keys = [Key(name=f"k{n}", sha256="0" * 64, policies=policies) for n, policies in enumerate(names)]
    assert check.unknown_policies(Config(), keys) == [
        "the key 'k1' names 'defualt', not among the policies (default, demo, noop): its default, so requests without "
        "x-sluice-policy are refused",
        "the key 'k2' names 'other', 'more', not among the policies (default, demo, noop)",
    ]


def config(*steps: dict[str, Any]) -> Config:
    return Config.model_validate({"policies": {"default": steps}, "upstreams": {"u": {"dialect": "openai", "base_url": "http://h"}}})


@pytest.mark.parametrize(
    ("steps", "outcome", "policy", "reason"),
    [
        ([], "allow", "", ""),
        (RULES, "block", "tool_rules", "no_shell"),
        ([{"use": "tool_rules", "deny": [{"decision": "replace", "arguments": {"a": 1}}]}], "replace", "tool_rules", "rule"),
        ([{"use": "tool_rules", "allow": []}], "block", "tool_rules", "not_allowed"),
        ([{"use": "tool_judge", "model": "m"}, *RULES], "block", "tool_rules", "no_shell"),
    ],
)
def test_a_call_is_tried_on_the_real_session(steps: list[dict[str, Any]], outcome: str, policy: str, reason: str) -> None:
    tried = try_call(config(*steps), "default", "bash", BASH)
    assert (tried.outcome, tried.policy, tried.reason) == (outcome, policy, reason)
    assert tried.arguments == {"allow": BASH, "replace": '{"a": 1}'}.get(outcome, "")
    assert ("bash" in tried.text) == (outcome == "block")


def test_a_judge_is_not_asked_unless_one_is_brought() -> None:
    judged = config({"use": "tool_judge", "model": "demo-judge"})
    assert try_call(judged, "default", "bash", BASH) == Tried("ask", judge="demo-judge")
    stopped = try_call(judged, "default", "bash", BASH, ask=demo_judgement)
    assert (stopped.outcome, stopped.policy, stopped.judge) == ("block", "tool_judge", "demo-judge")
    assert try_call(judged, "default", "bash", '{"command": "ls"}', ask=demo_judgement).outcome == "allow"
    other = config({"use": "tool_judge", "model": "m"})
    assert try_call(other, "default", "bash", BASH, ask=demo_judgement) == Tried("ask", judge="m")


DEFERS = """from policy.base import Defer, Policy

class Hands(Policy):
    def __init__(self, rules):
        self.defers_to = tuple(rule["model"] for rule in rules)

    def on_tool_call(self, call):
        return Defer(self.defers_to[0], "critical")
"""


def test_a_model_to_defer_to_that_no_route_takes_is_a_mistake_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "hands.py").write_text(DEFERS)
    text = UPSTREAM + "policies:\n  default:\n    - use: hands:Hands\n      rules:\n        - {model: gpt-4}\n        - model: trusted\n"
    [found] = [one for one in check.examine(parse(text, "x.yaml"), (str(tmp_path),), {"MY_KEY": "k"}) if one.level == "error"]
    assert (found.line, found.place) == (8, ("policies", "default", 0, "rules", 1, "model"))
    assert found.text == "no route under models takes the model 'trusted', to which tool calls are deferred"
    right = parse(text.replace("trusted", "gpt-5"), "x.yaml")
    assert not [one for one in check.examine(right, (str(tmp_path),), {"MY_KEY": "k"}) if one.level == "error"]
    with pytest.raises(PolicyFailed, match="'hands:Hands' cannot be loaded: no route under models takes the model 'nobody'"):
        try_call(config({"use": "hands:Hands", "rules": [{"model": "nobody"}]}), "default", "bash", BASH, search_path=(str(tmp_path),))


def test_a_call_that_would_be_deferred_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "hands.py").write_text(DEFERS)
    tried = try_call(config({"use": "hands:Hands", "rules": [{"model": "demo"}]}), "default", "bash", BASH, search_path=(str(tmp_path),))
    assert (tried.outcome, tried.policy, tried.reason) == ("defer", "Hands", "critical")


def test_a_request_that_a_policy_blocks_is_blocked(tmp_path: Path) -> None:
    (tmp_path / "closed.py").write_text(
        "from policy.base import Block, Policy\n\n"
        "class Closed(Policy):\n    def on_request(self, request): return Block('closed', 'We are closed.')\n"
    )
    tried = try_call(config({"use": "closed:Closed"}), "default", "bash", BASH, search_path=(str(tmp_path),))
    assert (tried.outcome, tried.text) == ("block", "We are closed.")


def test_a_text_is_tried() -> None:
    assert try_text(config(*RULES), "default", "hello") == Tried("allow", "hello")
    assert try_text(config({"use": "uppercase"}), "default", "hello") == Tried("replace", "HELLO")
    tried = try_text(config(*RULES), "default", f'<tool_call>{{"name": "bash", "arguments": {BASH}}}</tool_call>')
    assert (tried.outcome, tried.reason) == ("block", "no_shell") and "rm -rf" not in tried.text
