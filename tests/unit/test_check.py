"""What a check says of a configuration without mistakes, and what policies make of one call or
text."""

import json
from pathlib import Path

import pytest

from protocol.errors import PolicyFailed
from settings.config import Config, Key
from sluice.check import check, time_limit
from sluice.check.trial import Tried, demo_judgement, try_call, try_text
from sluice.config_file import parse
from tests.support.json_values import Json

UPSTREAM = (
    "upstreams: {u: {dialect: openai, base_url: 'http://h/v1', api_key_env: MY_KEY}}\nmodels:"
    " [{match: 'gpt-*', upstream: u}]\n"
)
DECIDES = "policies: {default: [{use: tool_rules, deny: [{}]}]}"
RULES: list[Json] = [{"use": "tool_rules", "deny": [{"tool": "bash", "reason": "no_shell"}]}]
BASH = json.dumps({"command": "rm -rf /"})


def said(text: str, **environment: str) -> list[str]:
    return [
        f"{one.level} {one.line}: {one.sentence}"
        for one in check.examine(parse(text, "x.yaml"), (), environment)
    ]


@pytest.mark.parametrize(
    ("steps", "passes"),
    [
        ("[{use: noop}]", True),
        ("[{use: noop}, {use: 'policy.builtin.noop:Noop'}]", True),
        ("[{use: tool_rules, allow: []}]", False),
        ("[{use: control, monitors: [{use: shell}], threshold: 0.5, observe: true}]", True),
        ("[{use: control, monitors: [{use: shell}], threshold: 0.5}]", False),
        ("[{use: control, critical: [{tool: x}]}]", False),
        ("[{use: preset, name: observe}]", True),
        ("[{use: tool_rules, validate_schema: true}]", False),
        ("[{use: noop}, {use: tool_rules, deny: [{tool: x}]}]", False),
    ],
)
def test_a_default_that_lets_everything_pass_is_said_loudly(steps: str, passes: bool) -> None:
    found = said(f"policies:\n  default: {steps}\n")
    assert [
        one.startswith("warning 2: policies.default: EVERYTHING PASSES: ") for one in found
    ] == [True] * passes
    assert (
        said(
            f"policies:\n  default: [{{use: tool_rules, deny: [{{tool: x}}]}}]\n  other: {steps}\n"
        )
        == []
    )


def test_a_series_that_looks_at_text_alone_is_warned_about() -> None:
    replace = "{use: text_replace, rules: [{find: a, replace: b}]}"
    [found] = said(f"policies:\n  default: [{replace}]\n")
    assert found.startswith("warning 2: policies.default: every tool call passes: ")
    for decides in ("{use: tool_rules, deny: [{tool: x}]}", "{use: noop}"):
        assert "every tool call passes" not in "".join(
            said(f"policies:\n  default: [{replace}, {decides}]\n")
        )


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("[]", "it is empty"),
        ("[{use: tool_rules}]", "tool_rules: it has no rules"),
        ("[{use: tool_rules, deny: []}]", "tool_rules: it has no rules"),
        (
            "[{use: tool_rules, allow: [{tool: read}, {tool: ['x', '*']}]}]",
            "a rule of `allow` names every call",
        ),
        ("[{use: tool_rules, allow: [{tool: '**'}]}]", "a rule of `allow` names every call"),
        ("[{use: tool_rules, allow: [{tool: {re2: '.*'}}]}]", "a rule of `allow` names every call"),
        (
            "[{use: tool_rules, allow: [{executor: [client, provider, mcp, nested]}]}]",
            "a rule of `allow` names every call",
        ),
        ("[{use: tool_judge, model: demo-judge, tools: []}]", "so no call is judged"),
        ("[{use: tool_judge, model: demo-judge, only: []}]", "so no call is judged"),
        ("[{use: control, monitors: [{use: shell}]}]", "nothing is done about its scores"),
        (
            "[{use: control, monitors: [{use: shell}], steps: [{at: 0.5, do: allow}]}]",
            "nothing is done about its scores",
        ),
    ],
)
def test_a_series_that_can_refuse_nothing_is_a_mistake_unless_it_says_noop(
    steps: str, why: str
) -> None:
    decides = "policies:\n  default: [{use: tool_rules, deny: [{tool: x}]}]\n"
    for name, line in (("other", 3), ("default", 2)):
        [found] = said(f"{decides if line == 3 else 'policies:' + chr(10)}  {name}: {steps}\n")
        assert found.startswith(
            f"error {line}: policies.{name}: the policies {name!r} block nothing, so every call"
            " would pass ("
        )
        assert why in found and found.endswith("if everything should pass, write `use: noop`")
    if steps != "[]":
        assert said(f"policies:\n  default: {steps[:-1]}, {{use: noop}}]\n")[0].startswith(
            "warning 2: policies.default: EVERYTHING PASSES"
        )
        [found] = said(f"{decides}  other: {steps[:-1]}, {{use: tool_rules, deny: [{{}}]}}]\n")
        assert (
            found.startswith("warning 3: policies.other.0: it can block nothing: ")
            and why.partition(": ")[2] in found
        )


def test_a_preset_whose_judge_answers_its_own_rules_alone_can_block() -> None:
    preset = "{use: preset, name: coding-agent, unsure: ask, judge: demo-judge}"
    assert said(f"policies:\n  default: [{preset}]\n") == []


@pytest.mark.parametrize(
    ("step", "place", "why"),
    [
        (
            "use: control, monitors: [{use: shell, at: 0.2}], threshold: 0.5",
            "monitors.0.at",
            "so it never measures",
        ),
        (
            (
                "use: control, monitors: [{use: model, model: demo-judge, at: 0.2}, {use: paths,"
                " at: 0.1}, {use: shell}], threshold: 0.5"
            ),
            "monitors.1.at",
            "so it never measures",
        ),
        (
            (
                "use: control, monitors: [{use: shell}], combine: logit, weights: {shell: 1},"
                " intercept: -2, threshold: 0.5"
            ),
            "threshold",
            "no score reaches it: all monitors together come to 0.2689 at most",
        ),
        (
            "use: control, monitors: [{use: shell}], threshold: 0.5, audit: {rate: 0}",
            "audit",
            "chooses no decision",
        ),
        ("use: tool_rules, deny: [{tool: []}]", "deny.0", "so the rule is about no call"),
        (
            "use: tool_rules, deny: [{executor: client, server: x}]",
            "deny.0",
            "the rule is about no call",
        ),
        (
            "use: tool_rules, deny: [{sql: {dialect: any, kinds: []}}]",
            "deny.0",
            "so the rule finds none",
        ),
        (
            "use: tool_rules, deny: [{does: {effects: [network], scope: [project]}}]",
            "deny.0.does",
            "nothing is asked over a network",
        ),
        (
            "use: tool_rules, deny: [{shell: {effects: [write], scope: [loopback]}}]",
            "deny.0.shell",
            "no file is in the scope 'loopback'",
        ),
        ("use: text_replace, rules: [{find: a, replace: a}]", "rules.0", "so nothing changes"),
    ],
)
def test_an_option_under_which_nothing_could_happen_is_a_mistake(
    step: str, place: str, why: str
) -> None:
    found = said(
        f"policies:\n  default:\n    - {{use: tool_rules, deny: [{{}}]}}\n    - {{{step}}}\n"
    )
    assert [
        (one.partition(": policies.default.1.")[2].partition(":")[0], why in one)
        for one in found[:1]
    ] == [(place, True)]
    assert found[0].startswith("error 4: ")


OWN = """
from policy.base import ALLOW, Block, Policy
class Base(Policy):
    async def on_request(self, request):
        return None
class Mine(Base):
    def on_toolcall(self, call):
        return Block("x")
    on_text = None
    @staticmethod
    def on_other(block):
        return ALLOW
    def on_judgement(self, call):
        return ALLOW
    onTextEnd = lambda self, block: ""
    on_tool_call = property(lambda self: lambda call: ALLOW)
    def for_call(self, context, more=1):
        return super().for_call(context)
class Idle(Policy):
    def tool_call(self, call):
        return Block("x")
class Raises(Policy):
    def on_tool_call(self, call):
        return self.nothing
class Endless(Policy):
    def on_tool_call(self, call):
        while True:
            pass
class Broken(Policy):
    def __init__(self):
        {}["x"]
"""


def own(tmp_path: Path, kind: str) -> list[str]:
    (tmp_path / "own.py").write_text(OWN)
    document = parse(f"policies:\n  default:\n    - use: own:{kind}\n", "x.yaml")
    return [
        f"{one.level} {one.line}: {one.sentence}"
        for one in check.examine(document, (str(tmp_path),), {})
    ]


def test_hooks_that_nothing_would_call_are_named_with_file_and_line(tmp_path: Path) -> None:
    [found] = own(tmp_path, "Mine")
    assert found.startswith("error 3: policies.default.0: ")
    file = tmp_path / "own.py"
    wanted = {
        7: "on_toolcall is no hook, so nothing would ever call it; did you mean 'on_tool_call'?",
        9: "on_text is a NoneType and no method: write `def on_text(self, text, block)`",
        11: "on_other is a staticmethod and no method",
        13: "on_judgement does not take the arguments that hooks get",
        15: "onTextEnd is no hook, so nothing would ever call it; did you mean 'on_text_end'?",
        16: "on_tool_call is a property and no method",
        4: "on_request waits or yields",
    }
    assert found.count("own.py line") == len(wanted)
    for line, why in wanted.items():
        assert f"{file} line {line}: {why}" in found
    [found] = own(tmp_path, "Idle")
    assert (
        "own.py" not in found
        and "Idle: its class has none of the hooks that decide: write one of on_request, on_text,"
        in found
    )
    [found] = own(tmp_path, "Broken")
    assert found == f"error 3: policies.default.0: {file} line 31: 'x'"


def test_a_hook_that_raises_is_named_with_file_and_line_and_one_without_an_end_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert own(tmp_path, "Raises") == []
    config = Config.model_validate(
        {"policies": {"default": [{"use": "own:Raises"}], "ends": [{"use": "own:Endless"}]}}
    )
    tried = try_call(config, "default", "bash", BASH, search_path=[str(tmp_path)])
    at = f"{tmp_path / 'own.py'} line 24"
    assert (tried.outcome, tried.reason, tried.fault) == (
        "block",
        "fault",
        f"on_tool_call of Raises: AttributeError at {at}",
    )
    assert [vars(one)["at"] for one in caplog.records if one.getMessage() == "policy fault"] == [at]
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.3)
    with pytest.raises(
        PolicyFailed, match=rf"does not end: after 0.3 s it was in {tmp_path}/own.py line 2[78]"
    ):
        try_call(config, "ends", "bash", BASH, search_path=[str(tmp_path)])


def test_a_variable_that_is_not_set_is_said_and_one_that_may_be_a_key_is_not_repeated() -> None:
    text = UPSTREAM + DECIDES
    [warning] = said(text)
    assert warning.startswith(
        "warning 1: upstreams.u.api_key_env: the variable MY_KEY is not set here"
    )
    for secret in ("sk-abc.def", "sk_live_abc"):
        [found] = said(text.replace("MY_KEY", secret))
        assert secret not in found and found.startswith(
            "upstreams.u.api_key_env", found.index(":") + 2
        )


def test_a_key_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    text = UPSTREAM.replace("api_key_env: MY_KEY", f"api_key_file: {tmp_path}/none") + DECIDES
    assert said(text) == [
        f"error 1: upstreams.u.api_key_file: {tmp_path}/none cannot be read here: No such file or"
        " directory"
    ]
    (tmp_path / "none").write_text("key")
    assert said(text) == []


def test_secrets_of_logins_and_notices_that_are_not_there_are_said(tmp_path: Path) -> None:
    text = (
        "pages: {url: 'https://s.example'}\n"
        "login: {oidc: {issuer: 'https://i.example', client_id: s, roles: {r: [auditor]}, SECRET}}\n"
        "approvals: {public_url: 'https://s.example', notify: [{name: ops, url: 'http://h/', "
        f"secret_env: HOOK}}]}}\n{DECIDES}"
    )
    by_name = text.replace("SECRET", "client_secret_env: ID_SECRET")
    assert said(by_name) == [
        "warning 2: login.oidc.client_secret_env: the variable ID_SECRET is not set here; without"
        " it nobody can log in at the provider",
        "warning 3: approvals.notify.0.secret_env: the variable HOOK is not set here; without it"
        " none is sent",
    ]
    assert said(by_name, ID_SECRET="a", HOOK="b") == []
    assert "sk-abc.def" not in " ".join(said(by_name.replace("HOOK", "sk-abc.def")))
    file = tmp_path / "secret"
    by_file = text.replace("SECRET", f"client_secret_file: {file}")
    for content, fault in ((None, "cannot be read here: No such file"), ("\n", "is empty; ")):
        if content is not None:
            file.write_text(content)
        [found] = said(by_file, HOOK="b")
        assert found.startswith(f"warning 2: login.oidc.client_secret_file: {file} {fault}")
    file.write_text("s")
    assert said(by_file, HOOK="b") == []


def test_a_wrong_word_for_what_follows_a_block_is_a_mistake() -> None:
    text = "policies: {default: [{use: noop, on_block: windows}, {use: tool_rules, denny: []}]}"
    wrong, unknown = said(text)
    assert wrong.startswith("error 1: policies.default.0.on_block: must be 'stop', 'continue', ")
    assert unknown.startswith("error 1: policies.default.1.denny: is not known")
    for steps in ("[7]", "[{use: 7}]", "[{1: 2, use: noop}]", "[{use: noop, on_block: []}]"):
        assert said(f"policies: {{default: {steps}}}")[0].startswith("error 1: policies.default.0")


def test_placeholders_are_tried_without_their_key() -> None:
    steps = [{"use": "redact", "request": "mask_restore"}, *RULES]
    config = Config.model_validate({"policies": {"default": steps}})
    assert try_text(config, "default", "mail ann@acme.org").outcome == "replace"
    assert try_call(config, "default", "bash", BASH).outcome == "block"


def test_placeholders_without_their_key_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "policies:\n  p: [{use: redact, request: mask_restore}, {use: tool_rules, deny: [{}]}]\n"
    [found] = said(text)
    assert found.startswith("warning 2: policies.p.0: mask_restore needs a key, and neither")
    monkeypatch.setenv("SLUICE_REDACT_KEY", "k" * 32)
    assert said(text) == [] == said(text.replace("mask_restore", "mask"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pages: {url: 'https://s.example/'}", "must be an address without a path: https://HOST"),
        ("login: {oidc: {issuer: 'https://i.example?a'}}", "must be the provider's issuer, https"),
        ("approvals: {public_url: 's.example'}", "must be an address that does not end in a slash"),
    ],
)
def test_an_address_of_another_form_is_said_in_words(text: str, found: str) -> None:
    assert any(found in one for one in said(f"{text}\n{DECIDES}"))


def test_a_header_that_cannot_be_sent_is_a_mistake() -> None:
    found = said(UPSTREAM.replace("api_key_env: MY_KEY", "headers: {'a b': c}") + DECIDES)
    assert found == ["error 1: upstreams.u: the header 'a b' of an upstream cannot be sent"]


@pytest.mark.parametrize(
    ("model", "warned"),
    [("gpt-4o", False), ("demo-judge", False), ("claude", True), ("demo", True)],
)
def test_a_judge_that_nothing_routes_is_said(model: str, warned: bool) -> None:
    found = said(
        UPSTREAM
        + f"demo: true\npolicies:\n  default:\n    - {{use: tool_judge, model: {model}}}\n",
        MY_KEY="k",
    )
    sentence = (
        "warning 6: policies.default.0.model: no route under models leads the judge model"
        f" {model!r} to an upstream"
    )
    assert [one.startswith(sentence) for one in found] == [True] * warned
    monitors = f"[{{use: provenance}}, {{use: model, model: {model}}}]"
    found = said(
        UPSTREAM
        + "demo: true\npolicies:\n  default:\n    - {use: control, threshold: 0.5, monitors:"
        f" {monitors}}}\n",
        MY_KEY="k",
    )
    sentence = sentence.replace("default.0.model", "default.0.monitors.1.model")
    assert [one.startswith(sentence) for one in found] == [True] * warned


@pytest.mark.parametrize(
    ("dialect", "path", "ending"),
    [
        ("openai", "/v1/chat/completions", "error /chat/completions"),
        ("openai", "/v1", ""),
        ("openai", "/v1/models/", "warning /models"),
        ("anthropic", "/v1", "warning /v1"),
        ("anthropic", "/v1/messages", "error /v1/messages"),
        ("anthropic", "", ""),
        ("anthropic", "/proxy", ""),
    ],
)
def test_an_address_that_has_what_is_added_to_it_is_said(
    dialect: str, path: str, ending: str
) -> None:
    found = said(UPSTREAM.replace("openai", dialect).replace("/v1", path) + DECIDES, MY_KEY="k")
    says = f"{' 1: upstreams.u.base_url: ends in '.join(ending.split())}, and /"
    assert [one.startswith(says) for one in found] == [True] * bool(ending)


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
    keys = [
        Key(name=f"k{n}", sha256="0" * 64, policies=policies) for n, policies in enumerate(names)
    ]
    assert check.unknown_policies(Config(), keys) == [
        (
            "the key 'k1' names 'defualt', not among the policies (default, demo, people, noop): its"
            " default, so requests without x-sluice-policy are refused"
        ),
        "the key 'k2' names 'other', 'more', not among the policies (default, demo, people, noop)",
    ]


def config(*steps: Json) -> Config:
    return Config.model_validate(
        {
            "policies": {"default": steps},
            "upstreams": {"u": {"dialect": "openai", "base_url": "http://h"}},
        }
    )


def test_a_judge_is_not_asked_unless_one_is_brought() -> None:
    judged = config({"use": "tool_judge", "model": "demo-judge"})
    assert try_call(judged, "default", "bash", BASH) == Tried("ask", judge="demo-judge")
    stopped = try_call(judged, "default", "bash", BASH, ask=demo_judgement)
    assert (stopped.outcome, stopped.policy, stopped.judge) == ("block", "tool_judge", "demo-judge")
    assert (
        try_call(judged, "default", "bash", '{"command": "ls"}', ask=demo_judgement).outcome
        == "allow"
    )
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
    text = (
        UPSTREAM
        + "policies:\n  default:\n    - use: hands:Hands\n      rules:\n        - {model: gpt-4}\n "
        "       - model: trusted\n"
    )
    [found] = [
        one
        for one in check.examine(parse(text, "x.yaml"), (str(tmp_path),), {"MY_KEY": "k"})
        if one.level == "error"
    ]
    assert (found.line, found.place) == (8, ("policies", "default", 0, "rules", 1, "model"))
    assert (
        found.text
        == "no route under models takes the model 'trusted', to which tool calls are deferred"
    )
    right = parse(text.replace("trusted", "gpt-5"), "x.yaml")
    assert not [
        one
        for one in check.examine(right, (str(tmp_path),), {"MY_KEY": "k"})
        if one.level == "error"
    ]
    with pytest.raises(
        PolicyFailed,
        match="'hands:Hands' cannot be loaded: no route under models takes the model 'nobody'",
    ):
        try_call(
            config({"use": "hands:Hands", "rules": [{"model": "nobody"}]}),
            "default",
            "bash",
            BASH,
            search_path=(str(tmp_path),),
        )


def test_a_call_that_would_be_deferred_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "hands.py").write_text(DEFERS)
    tried = try_call(
        config({"use": "hands:Hands", "rules": [{"model": "demo"}]}),
        "default",
        "bash",
        BASH,
        search_path=(str(tmp_path),),
    )
    assert (tried.outcome, tried.policy, tried.reason) == ("defer", "Hands", "critical")


def test_a_request_that_a_policy_blocks_is_blocked(tmp_path: Path) -> None:
    (tmp_path / "closed.py").write_text(
        "from policy.base import Block, Policy\n\nclass Closed(Policy):\n    def on_request(self,"
        " request): return Block('closed', 'We are closed.')\n"
    )
    tried = try_call(
        config({"use": "closed:Closed"}), "default", "bash", BASH, search_path=(str(tmp_path),)
    )
    assert (tried.outcome, tried.text) == ("block", "We are closed.")


def test_a_text_is_tried() -> None:
    assert try_text(config(*RULES), "default", "hello") == Tried("allow", "hello")
    assert try_text(config({"use": "uppercase"}), "default", "hello") == Tried("replace", "HELLO")
    tried = try_text(
        config(*RULES), "default", f'<tool_call>{{"name": "bash", "arguments": {BASH}}}</tool_call>'
    )
    assert (tried.outcome, tried.reason) == ("block", "no_shell") and "rm -rf" not in tried.text
