"""Coding agents: what is printed runs in a shell, and an agent's own file comes back byte for
byte."""

import json
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from typer.testing import CliRunner

from sluice import approvals_cli
from sluice.agents import agent_key
from sluice.agents.agent_file import AgentFile
from sluice.agents.agents import AGENTS, ANY, Agent, Pointed, named, of_command
from sluice.agents.connect import connect, lines, project_header
from sluice.errors import SettingsError, Unavailable
from tests.support.checks.markdown import tables
from tests.support.clients.coding_agents import CODING_AGENTS
from tests.support.repository import ROOT

TO = Pointed("http://127.0.0.1:8080", "sk-sluice-x", 'it\'s a "model"', session="run-1")
FILED = [agent for agent in AGENTS if agent.file]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "LLM_USER_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def ids(agent: Agent) -> str:
    return agent.name


def test_each_row_says_where_it_is_from_and_the_page_has_it() -> None:
    page = (ROOT / "docs" / "use" / "agents.md").read_text()
    for agent in AGENTS:
        assert agent.source and agent.read_on and f"| {agent.title} |" in page
        assert bool(agent.lacks) != bool(agent.variables or agent.setting or agent.steps)


def test_the_page_has_the_versions_that_tests_run() -> None:
    page = (ROOT / "docs" / "use" / "agents.md").read_text()
    tried = {
        version for row in tables(page, "Coding agents")[0][1:] for version in row[-1].split(", ")
    }
    assert {
        agent.package.rpartition("@")[2] for agent in CODING_AGENTS.values() if "@" in agent.package
    } <= tried


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if not agent.lacks], ids=ids)
def test_what_is_printed_runs_in_a_shell(agent: Agent, home: Path) -> None:
    names = list(agent.environment(TO, {}))
    show = "".join(f'\nprintf "%s\\0" "${name}"' for name in names)
    done = subprocess.run(
        ["sh", "-eu"],
        input=lines(agent, TO) + show,
        capture_output=True,
        text=True,
        env={"HOME": str(home)},
        check=True,
    )
    assert done.stderr == "" and done.stdout.split("\0")[:-1] == list(
        agent.environment(TO, {}).values()
    )
    if not names and agent.file:
        assert yaml.safe_load(agent.path_of_file().read_text()) == agent.settings(TO)


def test_an_agent_with_another_api_is_refused_with_the_reason() -> None:
    for name, said in (("gemini", "Gemini's own API"),):
        with pytest.raises(SettingsError, match=said) as refused:
            connect(name, [])
        assert refused.value.exit_code == 2
    with pytest.raises(SettingsError, match="did you mean 'claude'"):
        connect("cluade", [])
    with pytest.raises(SettingsError, match="one at a time"):
        connect("claude", ["write", "undo"])


def test_a_program_is_known_by_its_name() -> None:
    assert of_command("/usr/local/bin/claude") is named("claude") and of_command("python") is ANY


def test_headers_that_somebody_set_stay() -> None:
    claude = of_command("claude")
    assert (
        claude.environment(TO, {"ANTHROPIC_CUSTOM_HEADERS": "x-a: b"})["ANTHROPIC_CUSTOM_HEADERS"]
        == "x-a: b\nx-sluice-session: run-1"
    )
    assert "ANTHROPIC_CUSTOM_HEADERS" not in ANY.environment(TO, {}), (
        "its session is its own, if it has one"
    )
    assert "ANTHROPIC_CUSTOM_HEADERS" not in claude.environment(Pointed("u", "k"), {}), (
        "what is written for good has no session"
    )
    assert "ANTHROPIC_MODEL" not in claude.environment(Pointed("u", "k"), {}), (
        "it knows models by itself"
    )


def test_the_folder_of_a_run_goes_along_once() -> None:
    claude, here = of_command("claude"), Pointed("u", "k", session="s", project="/srv/my%20app")
    old = {"ANTHROPIC_CUSTOM_HEADERS": "X-Sluice-Project: /srv/old\nx-a: b"}
    assert claude.environment(here, old)["ANTHROPIC_CUSTOM_HEADERS"].split("\n") == [
        "x-a: b",
        "x-sluice-session: s",
        "x-sluice-project: /srv/my%20app",
    ]
    assert "x-sluice-project" not in str(claude.settings(here)), "nothing for good"


def test_a_folder_that_can_be_no_project_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path.resolve() / "a b,é"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert project_header() == f"{tmp_path.resolve()}/a%20b%2C%C3%A9"
    assert not capsys.readouterr().err
    monkeypatch.setenv("HOME", str(folder))
    assert project_header() == "" and "a home folder" in capsys.readouterr().err


def before(agent: Agent) -> list[bytes | None]:
    """What may be in an agent's file."""
    if agent.file.endswith(".json"):
        return [
            None,
            b"",
            b"{}",
            b'{"theme":"dark","env":{"ANTHROPIC_API_KEY":"sk-a","A":"\\u00e9"}}\r\n',
            b'{ "model" : "x" }',
        ]
    if isinstance(agent.setting, list):
        return [
            None,
            b"",
            b"# mine\n",
            b"- model_id: a\n  model_name: b",
            b"- model_id: a\r\n  model_name: b\r\n",
        ]
    return [None, b"", b"# mine", b"a: 1\nb:\n  - c", b"a: 1\r\n\r\n"]


@pytest.mark.parametrize("agent", FILED, ids=ids)
def test_undo_leaves_the_file_as_it_was(agent: Agent, home: Path) -> None:
    path = agent.path_of_file()
    for was in before(agent):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if was is not None:
            path.write_bytes(was)
            path.chmod(0o644)
        file = AgentFile(agent.name, path)
        for to in (TO, Pointed("http://other", "sk-other", "m")):
            file.write(file.text(agent.settings(to), drops=agent.unset))
            text = path.read_text()
            assert to.key in text or agent.name == "goose"
            assert path.stat().st_mode & 0o077 == 0, "it holds a key"
            held = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
            assert "sk-a" not in text or not agent.unset
            assert held == agent.settings(to) or was not in (
                None,
                b"",
                b"{}",
                b"# mine",
                b"# mine\n",
            )
        assert file.undo() and not file.undo()
        assert (path.read_bytes() if path.exists() else None) == was
        assert was is None or path.stat().st_mode & 0o777 == 0o644
        assert sorted(one.name for one in path.parent.iterdir() if one.is_file()) == (
            [] if was is None else [path.name]
        )


@pytest.mark.parametrize("agent", FILED, ids=ids)
def test_a_file_that_others_changed_since_is_left_alone(agent: Agent) -> None:
    path = agent.path_of_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    file = AgentFile(agent.name, path)
    file.write(file.text(agent.settings(TO)))
    path.write_bytes(theirs := path.read_bytes() + b"\n")
    for do in (file.undo, lambda: file.text(agent.settings(TO)), lambda: file.write(b"x")):
        with pytest.raises(SettingsError, match="changed since"):
            do()
    assert path.read_bytes() == theirs


def test_a_link_is_followed_and_stays(home: Path) -> None:
    agent = of_command("claude")
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "settings.json").write_text("{}")
    path = agent.path_of_file()
    path.parent.mkdir()
    path.symlink_to(home / "dotfiles" / "settings.json")
    file = AgentFile(agent.name, path)
    file.write(file.text(agent.settings(TO)))
    assert path.is_symlink() and "sk-sluice-x" in (home / "dotfiles" / "settings.json").read_text()
    assert file.undo() and path.is_symlink() and path.read_text() == "{}"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("claude", b"// mine\n{}", "JSON without comments"),
        ("claude", b"[]", "no object"),
        ("claude", b"\xff", "JSON"),
        ("aider", b"openai-api-base: x\n", "sets openai-api-base already"),
        ("aider", b"- a\n", "nothing can stand behind"),
        ("aider", b"a: [", "not YAML"),
        ("llm", b"[]\n", "behind|not YAML"),
        ("llm", b"  - model_id: a\n", "behind|not YAML"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_alone(name: str, content: bytes, said: str) -> None:
    agent = named(name)
    assert agent is not None
    path = agent.path_of_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=said):
        AgentFile(name, path).text(agent.settings(TO))
    assert path.read_bytes() == content


def test_a_write_that_was_cut_off_is_undone() -> None:
    agent = of_command("claude")
    path = agent.path_of_file()
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    file = AgentFile(agent.name, path)
    file.write(file.text(agent.settings(TO)))
    path.write_text("{}")  # as when the machine stopped before the file itself was replaced
    assert (
        file.undo()
        and path.read_text() == "{}"
        and not file.note.exists()
        and not file.backup.exists()
    )


def test_the_record_may_take_longer_than_a_look_whether_a_gateway_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"items": []}')

        def log_message(self, *_: object) -> None:
            pass

    # no answer is so fast
    monkeypatch.setattr(agent_key, "WAIT_S", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(Unavailable, match="no gateway answers"):
            agent_key.ask(url, "/audit/approvals")
        monkeypatch.setenv("SLUICE_URL", url)
        monkeypatch.setenv("SLUICE_KEY", "k")
        listed = CliRunner().invoke(approvals_cli.app, ["list", "--json"])
        assert (listed.exit_code, json.loads(listed.stdout)) == (0, {"items": []})
        server.shutdown()
