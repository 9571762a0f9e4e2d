"""Coding agents as their users run them: each once, on one task, with a home of its own and no
network but loopback addresses.

They are no part of the repository: npm and pip install them into a folder that stays between runs,
`SLUICE_AGENTS_DIR`, which is `.cache/agents` unless it is set. Where that cannot be, their tests
are skipped and say why.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clients.frameworks import INSTALL
from tests.support.clients.packages import CACHE, CLIENTS
from tests.support.vendors.story import EDIT

TASK = "Run the two commands that you are given, then say that all is done."
RUN_S = 150
STOP_S = 15
"""How long an agent has for its end after SIGINT; then it is killed."""
INSTALL_S = 400
_NPM = [
    "npm",
    "install",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    "--loglevel=error",
    "--prefix",
]


@dataclass(frozen=True)
class Ran:
    """How a run ended: what it printed, and the folder in which it worked."""

    code: int
    out: str
    err: str
    folder: Path

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out[-2000:]}\n{self.err[-2000:]}"


@dataclass(frozen=True)
class Agent:
    """One agent.

    `package` is npm's, or a file of requirements in tests/clients; `clients` the dialects of
    clients that it can be set to speak. One that `edits` has no tools: it is given another task,
    and writes the file that the model's text names.
    """

    name: str
    package: str
    binary: str
    clients: tuple[str, ...]
    command: Callable[["Place"], tuple[list[str], dict[str, str]]]
    edits: bool = False


@dataclass(frozen=True)
class Place:
    """Where an agent runs and whom it asks."""

    program: str
    url: str
    key: str
    model: str
    dialect: str
    home: Path


def _codex(place: Place) -> tuple[list[str], dict[str, str]]:
    settings = place.home / ".codex"
    settings.mkdir(parents=True)
    provider = {
        "name": "Sluice",
        "base_url": f"{place.url}/v1",
        "env_key": "SLUICE_AGENT_KEY",
        "wire_api": "responses",
    }
    lines = [
        f'model = "{place.model}"',
        'model_provider = "sluice"',
        'web_search = "disabled"',
        "[model_providers.sluice]",
    ]
    lines += [*(f'{name} = "{value}"' for name, value in provider.items())]
    (settings / "config.toml").write_text("\n".join(lines) + "\n")
    command = [
        place.program,
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        TASK,
    ]
    return command, {"CODEX_HOME": str(settings), "SLUICE_AGENT_KEY": place.key}


def _claude(place: Place) -> tuple[list[str], dict[str, str]]:
    command = [place.program, "-p", TASK, "--allowedTools", "Bash", "--model", place.model]
    quiet = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    pointed = {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        "ANTHROPIC_SMALL_FAST_MODEL": place.model,
    }
    return command, pointed | quiet


def _opencode(place: Place) -> tuple[list[str], dict[str, str]]:
    packages = {
        "openai": "@ai-sdk/openai-compatible",
        "anthropic": "@ai-sdk/anthropic",
        "responses": "@ai-sdk/openai",
    }
    options = {"baseURL": f"{place.url}/v1", "apiKey": place.key}
    provider = {
        "npm": packages[place.dialect],
        "name": "Sluice",
        "options": options,
        "models": {place.model: {"name": place.model}},
    }
    named = f"sluice/{place.model}"
    settings = {
        "provider": {"sluice": provider},
        "model": named,
        "small_model": named,
        "autoupdate": False,
        "share": "disabled",
    }
    more = {"permission": {"bash": "allow", "edit": "allow"}, "enabled_providers": ["sluice"]}
    environment = {
        "OPENCODE_CONFIG_CONTENT": json.dumps({**settings, **more}),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return [place.program, "run", TASK], environment


def _script(name: str) -> Callable[[Place], tuple[list[str], dict[str, str]]]:
    def command(place: Place) -> tuple[list[str], dict[str, str]]:
        settings = json.dumps(
            {
                "url": f"{place.url}/v1",
                "key": place.key,
                "model": place.model,
                "dialect": place.dialect,
                "task": TASK,
            }
        )
        return [place.program, "-I", str(CLIENTS / name), settings], {
            "OPENAI_AGENTS_DISABLE_TRACING": "1"
        }

    return command


def _aider(place: Place) -> tuple[list[str], dict[str, str]]:
    quiet = [
        "--no-git",
        "--no-show-model-warnings",
        "--no-check-update",
        "--analytics-disable",
        "--no-show-release-notes",
        "--no-pretty",
    ]
    command = [
        place.program,
        "--model",
        f"openai/{place.model}",
        "--edit-format",
        "whole",
        "--yes-always",
        *quiet,
        "--message",
        EDIT,
    ]
    return command, {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": place.key}


def _gemini(place: Place) -> tuple[list[str], dict[str, str]]:
    settings = place.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    command = [
        place.program,
        "--model",
        place.model,
        "--skip-trust",
        "--approval-mode",
        "yolo",
        "--prompt",
        TASK,
    ]
    return command, {
        "GEMINI_API_KEY": place.key,
        "GOOGLE_GEMINI_BASE_URL": place.url,
        "GEMINI_TELEMETRY_ENABLED": "false",
    }


CODING_AGENTS = {
    a.name: a
    for a in (
        Agent("codex", "@openai/codex@0.171.0", "codex", ("responses",), _codex),
        Agent(
            "claude-code", "@anthropic-ai/claude-code@2.1.332", "claude", ("anthropic",), _claude
        ),
        Agent(
            "claude-code-2.1.197",
            "@anthropic-ai/claude-code@2.1.197",
            "claude",
            ("anthropic",),
            _claude,
        ),
        Agent(
            "opencode",
            "opencode-ai@1.18.33",
            "opencode",
            ("openai", "anthropic", "responses"),
            _opencode,
        ),
        Agent(
            "openai-agents",
            "requirements-agents.txt",
            "python",
            ("responses", "openai"),
            _script("openai_agents.py"),
        ),
        Agent(
            "pydantic-ai",
            "requirements-agents.txt",
            "python",
            ("openai", "anthropic", "responses"),
            _script("pydantic_agent.py"),
        ),
        Agent("aider", "requirements-aider.txt", "aider", ("openai",), _aider, edits=True),
        Agent("gemini-cli", "@google/gemini-cli@0.61.0", "gemini", ("gemini",), _gemini),
    )
}


def _folder() -> Path:
    chosen = os.environ.get("SLUICE_AGENTS_DIR")
    return Path(chosen) if chosen else CACHE / "agents"


def _done(*command: str, cwd: Path) -> None:
    """Run a command of an installation; skips the test where it fails."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"could not be installed in {INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"could not be installed: {done.stderr[-300:]}")


def installed(agent: Agent) -> str:
    """The path of its program, installed now or before. Skips the test where it cannot be had."""
    if agent.package.endswith(".txt"):
        return _python(agent)
    if not shutil.which("npm"):
        pytest.skip(f"{agent.name} needs npm, which is not here")
    place = _folder() / agent.package.replace("/", "-").lstrip("@")
    program = place / "node_modules" / ".bin" / agent.binary
    if not (place / "whole").exists():
        place.mkdir(parents=True, exist_ok=True)
        _done(*_NPM, str(place), agent.package, cwd=place)
        name = agent.package.rpartition("@")[0]
        for script in ("install.cjs", "postinstall.mjs"):
            # these put the binary of the optional dependency where the program is, and nothing else
            if (place / "node_modules" / name / script).exists():
                _done("node", script, cwd=place / "node_modules" / name)
        (place / "whole").touch()
    return str(program)


def _python(agent: Agent) -> str:
    wanted = CLIENTS / agent.package
    place = _folder() / wanted.stem
    if not (place / "whole").exists() or (place / "whole").read_text() != wanted.read_text():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _done(sys.executable, "-m", "venv", "env", cwd=place)
        _done(
            str(place / "env" / "bin" / "python"),
            "-m",
            "pip",
            *INSTALL,
            "-r",
            str(wanted),
            cwd=place,
        )
        (place / "whole").write_text(wanted.read_text())
    return str(place / "env" / "bin" / agent.binary)


def run(
    agent: Agent,
    folder: Path,
    url: str,
    key: str,
    model: str,
    dialect: str,
    until: Callable[[], object] | None = None,
) -> Ran:
    """Run it on the task, asking `model` at `url`, in a folder and a home of its own. `until`:
    interrupt it when that returns."""
    program = installed(agent)
    home, work, scratch = folder / "home", folder / "work", folder / "scratch"
    for one in (home, work, scratch):
        one.mkdir(parents=True)
    command, own = agent.command(Place(program, url, key, model, dialect, home))
    # nothing of this machine's own settings, and whatever is not on loopback ends at a closed port
    nowhere = "http://127.0.0.1:9"
    network = {
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "http_proxy": nowhere,
        "https_proxy": nowhere,
    }
    network |= {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "TMPDIR": str(scratch),
    }
    process = subprocess.Popen(
        command,
        cwd=work,
        env={**base, **network, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a group of its own, which is what Ctrl-C reaches, also where whoever started the tests
        # ignores SIGINT
        start_new_session=True,
        preexec_fn=_heed_interrupt,
    )
    try:
        if until is not None:
            until()
            os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=RUN_S if until is None else STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Ran(process.returncode, out, err, work)


def _heed_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
