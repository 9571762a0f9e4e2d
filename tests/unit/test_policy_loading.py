import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from policy.base import ALLOW, Context, OtherBlock, Policy, TextBlock, ToolCall
from policy.loading import imported_by, imported_by_ours, load
from protocol.errors import PolicyFailed
from protocol.events import BlockKind
from protocol.request import ChatRequest
from settings.config import Config, PolicyStep
from settings.runtime import Runtime
from tests.support.json_values import Json
from tests.support.policy_files import DECIDES, ELSEWHERE, config
from workers.policy.loaded import LoadedPolicies

CONTEXT = Context("call", "nonce", "key", "", ChatRequest(dialect="openai", model="demo"))
MINE = """
from dataclasses import dataclass
from policy.base import Policy

@dataclass
class Mine(Policy):
    word: "str" = "x"

    def __post_init__(self):
        if not self.word:
            raise ValueError("word: must not be empty")

class Needs(Policy):
    def __init__(self, folder):
        pass

class Other:
    pass
"""


def steps(*uses: Json) -> list[PolicyStep]:
    return [PolicyStep.model_validate(use) for use in uses]


def revision(*uses: Json, search_path: tuple[str, ...] = (), version: str = "1") -> str:
    return load(steps(*uses), search_path=search_path, session_version=version)[1]


def mine(tmp_path: Path, text: str = MINE) -> tuple[str, ...]:
    (tmp_path / "inner").mkdir(exist_ok=True)
    (tmp_path / "inner" / "mine.py").write_text(text, encoding="utf-8")
    return (str(tmp_path / "elsewhere"), str(tmp_path))


def test_policies_that_ask_come_last_and_the_rest_keep_their_order() -> None:
    series = steps(
        {"use": "tool_judge", "model": "demo-judge"},
        {"use": "uppercase"},
        {"use": "noop"},
        {"use": "tool_rules"},
    )
    assert [p.name for p in load(series, session_version="1")[0]] == [
        "uppercase",
        "noop",
        "tool_rules",
        "tool_judge",
    ]


def test_the_revision_is_stable_and_follows_options_and_session() -> None:
    base = revision({"use": "tool_judge", "model": "demo-judge"})
    assert base == revision({"use": "tool_judge", "model": "demo-judge"})
    assert len(base) == 12
    assert int(base, 16) >= 0
    others = {
        revision({"use": "tool_judge", "model": "demo-judge", "threshold": 0.7}),
        revision({"use": "tool_judge", "model": "demo-judge"}, version="2"),
        revision({"use": "tool_judge", "model": "demo-judge"}, {"use": "noop"}),
        revision(),
    }
    assert len(others | {base}) == 5


def test_a_users_file_is_loaded_without_touching_the_path(tmp_path: Path) -> None:
    path = list(sys.path)
    [policy], _ = load(
        steps({"use": "inner.mine:Mine", "word": "y"}),
        search_path=mine(tmp_path),
        session_version="1",
    )
    assert isinstance(policy, Policy)
    assert vars(policy)["word"] == "y"
    assert sys.path == path
    [other], _ = load(
        steps({"use": "inner.mine.Mine"}), search_path=mine(tmp_path), session_version="1"
    )
    assert type(other) is type(policy)


def test_a_changed_file_is_another_revision(tmp_path: Path) -> None:
    first = revision({"use": "inner.mine:Mine"}, search_path=mine(tmp_path))
    assert first == revision({"use": "inner.mine:Mine"}, search_path=mine(tmp_path))
    assert first != revision(
        {"use": "inner.mine:Mine"}, search_path=mine(tmp_path, MINE + "\n# changed\n")
    )


def test_the_revision_covers_the_modules_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    first = revision({"use": "tool_rules"})
    read = Path.read_bytes
    for changed in ("tool_rules.py", "base.py", "arguments.py", "patterns.py", "sql.py"):
        monkeypatch.setattr(
            Path,
            "read_bytes",
            lambda self, c=changed: read(self) + (b"\n" if self.name == c else b""),
        )
        assert revision({"use": "tool_rules"}) != first
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda self: read(self) + (b"\n" if self.name == "text_replace.py" else b""),
    )
    assert revision({"use": "tool_rules"}) == first


def test_an_installed_module_is_found() -> None:
    [policy], _ = load(steps({"use": "policy.builtin.noop:Noop"}), session_version="1")
    assert policy.name == "noop"


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        ({"use": "nope"}, "'nope' is neither built in"),
        ({"use": "a b:C"}, "neither built in"),
        ({"use": "../etc:C"}, "neither built in"),
        ({"use": "missing.module:Class"}, "ModuleNotFoundError"),
        ({"use": "inner.mine:Missing"}, "Missing is not a class derived"),
        ({"use": "inner.mine:Other"}, "Other is not a class derived"),
        (
            {"use": "inner.mine:Mine", "words": 1},
            "the option 'words' is not known: its options are word; did you mean 'word'?",
        ),
        ({"use": "inner.mine:Mine", "word": ""}, "word: must not be empty"),
        ({"use": "noop", "x": 1}, "the option 'x' is not known: it has no options"),
        (
            {"use": "inner.mine:Needs"},
            "'inner.mine:Needs' cannot be loaded: the option 'folder' is missing",
        ),
        ({"use": "tool_rule"}, "nor of the form module:Class; did you mean 'tool_rules'?"),
        (
            {"use": "tool_judge"},
            "'tool_judge' cannot be loaded: options: give either `model` or `judges`",
        ),
        ({"use": "tool_judge", "model": "m", "threshold": 2}, "threshold: "),
        (
            {"use": "tool_rules", "deny": [{"argument_matches": "("}]},
            "deny.0.argument_matches: the pattern",
        ),
        ({"use": "text_replace", "rules": []}, "rules: "),
    ],
)
def test_what_cannot_be_loaded_is_named_in_one_sentence(
    tmp_path: Path, use: Json, complaint: str
) -> None:
    with pytest.raises(PolicyFailed) as caught:
        load(steps(use), search_path=mine(tmp_path), session_version="1")
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["raise RuntimeError('at import')", "def broken(:"])
def test_a_file_that_does_not_import_is_named_and_forgotten(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyFailed, match=r"inner\.mine:Mine"):
        load(
            steps({"use": "inner.mine:Mine"}), search_path=mine(tmp_path, text), session_version="1"
        )
    assert not [
        name
        for name in sys.modules
        if name.startswith("sluice_policy_mine") and not hasattr(sys.modules[name], "Mine")
    ]


def test_a_refusal_of_the_policys_own_keeps_its_sentence(tmp_path: Path) -> None:
    text = MINE.replace('ValueError("word', 'PolicyFailed("word').replace(
        "from policy.base", "from protocol.errors import PolicyFailed\nfrom policy.base"
    )
    with pytest.raises(PolicyFailed, match="word: must not be empty"):
        load(
            steps({"use": "inner.mine:Mine", "word": ""}),
            search_path=mine(tmp_path, text),
            session_version="1",
        )


def test_noop_allows_everything() -> None:
    [noop] = load(steps({"use": "noop"}), session_version="1")[0]
    noop = noop.for_call(CONTEXT)
    text = TextBlock(0, BlockKind.TEXT)
    assert (noop.on_text("a", text), noop.on_text_end(text), noop.on_request(CONTEXT.request)) == (
        "a",
        "",
        None,
    )
    assert noop.on_tool_call(ToolCall(0, 0, "id", "bash", "{}", {}, None)) == ALLOW
    assert noop.on_other(OtherBlock(0, "redacted_thinking", {})) == ALLOW


def test_uppercase_changes_text_and_leaves_reasoning() -> None:
    [policy] = load(steps({"use": "uppercase"}), session_version="1")[0]
    assert policy.on_text("straße", TextBlock(0, BlockKind.TEXT)) == "STRASSE"
    assert policy.on_text("thinking", TextBlock(0, BlockKind.THINKING)) == "thinking"


# --- what the revision covers, and what it does not ---


def revision_with(settings: Config) -> str:
    return load(steps({"use": "tool_rules"}), session_version="1", config=settings)[1]


@pytest.mark.parametrize("change", DECIDES)
def test_the_revision_covers_what_sessions_read_of_the_configuration(change: str) -> None:
    assert revision_with(config(**DECIDES[change])) != revision_with(config())


@pytest.mark.parametrize("change", ELSEWHERE)
def test_the_revision_covers_nothing_that_decides_nothing(change: str) -> None:
    assert revision_with(config(**ELSEWHERE[change])) == revision_with(config())


@pytest.mark.parametrize("name", ["msgspec", "jiter", "jsonschema-rs", "google-re2", "sqlglot"])
def test_the_revision_covers_what_parses_and_matches(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, known = revision_with(config()), metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda asked: "0.0.1" if asked == name else known(asked)
    )
    assert revision_with(config()) != first


def test_the_revision_covers_unicode_and_the_minor_version_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = revision_with(config())
    monkeypatch.setattr("unicodedata.unidata_version", "1.0.0")
    second = revision_with(config())
    monkeypatch.setattr("sys.version_info", (3, 99, 0))
    assert len({first, second, revision_with(config())}) == 3
    monkeypatch.undo()
    monkeypatch.setattr("sys.version_info", (*sys.version_info[:2], 99))
    assert revision_with(config()) == first


def test_workers_give_the_configuration_to_the_revision() -> None:
    made = [
        LoadedPolicies(Runtime(config=config(text_calls=calls), redis_url="", database_url=""))
        for calls in ("decide", "pass")
    ]
    [before, after] = [policies.series["default"][1] for policies in made]
    assert before != after


def test_a_parser_that_another_one_broke_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = iter([SystemError("AST constructor recursion depth mismatch")])
    parse = ast.parse

    def once_broken(source: bytes) -> ast.AST:
        if (error := next(broken, None)) is not None:
            raise error
        return parse(source)

    monkeypatch.setattr(ast, "parse", once_broken)
    assert imported_by(b"import colorsys_of_this_test") == {"colorsys_of_this_test"}


@pytest.mark.slow
def test_the_imports_of_our_policies_are_found_as_a_parser_finds_them() -> None:
    folder = Path(__file__).parents[2] / "policy"
    for module in folder.rglob("*.py"):
        source = module.read_bytes()
        own, parsed = (
            {name for name in found(source) if name.startswith("policy.")}
            for found in (imported_by_ours, imported_by)
        )
        assert own == parsed, module


def test_a_revision_does_not_depend_on_what_was_imported_before() -> None:
    script = (
        "import importlib, pkgutil, policy\n"
        "from policy.loading import load\n"
        "from settings.config import PolicyStep\n"
        "step = PolicyStep.model_validate({'use': 'preset', 'name': 'coding-agent'})\n"
        "print(load([step], session_version='1')[1])\n"
        "for module in pkgutil.walk_packages(policy.__path__, 'policy.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(load([step], session_version='1')[1])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    before, after = said.stdout.split()
    assert before == after
