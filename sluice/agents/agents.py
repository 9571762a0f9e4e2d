"""Coding agents, and how each is pointed at a gateway: data from the documentation of each, with
the date on which it was read.

In texts, {url}, {key} and {model} stand for the gateway's address, the API key and the model.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
READ_ON = "2026-11-23"


@dataclass(frozen=True, slots=True)
class Pointed:
    """What an agent is pointed at. `model` is empty where it may request the models that it
    knows."""

    url: str
    key: str
    model: str = ""
    session: str = ""
    key_name: str = ""
    project: str = ""
    """The folder that it runs in, as a header has it; empty: none is named."""

    def fill(self, value: Any) -> Any:
        """Put address, key and model into every text of a setting, names too."""
        match value:
            case str():
                for name in ("url", "key", "model"):
                    value = value.replace(f"{{{name}}}", getattr(self, name))
                return value
            case Mapping():
                return {self.fill(name): self.fill(element) for name, element in value.items()}
            case list():
                return [self.fill(element) for element in value]
            case _:
                return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent. Without `variables`, `setting` and `steps` it cannot be pointed here, and `lacks`
    says why."""

    name: str
    title: str
    commands: tuple[str, ...] = ()
    """Names of its program."""
    path: str = CHAT
    """Where its requests go."""
    source: str
    """Title of the page of its documentation that says so."""
    read_on: str = READ_ON
    variables: tuple[str, ...] = ()
    """NAME=VALUE, for its environment."""
    variables_of_model: tuple[str, ...] = ()
    """The same, only where a model must be configured."""
    headers: str = ""
    """The variable that takes headers, one a line: a run's session, and its folder."""
    unset: tuple[str, ...] = ()
    """Variables that would win or get in the way."""
    asks_for: str = ""
    """A model that it requests by default; where the gateway has it, none need be configured."""
    file: str = ""
    """Its own file, in the home folder; YAML, or JSON by its suffix."""
    home: tuple[str, str] = ("", "")
    """The variable that moves the folder of that file, and the path of the file within."""
    setting: Any = None
    """What stands in that file; in JSON it is merged into what is there, in YAML put behind it."""
    setting_variable: str = ""
    """The variable that takes the same as JSON."""
    setting_of_model: Any = None
    """Also put into it where a model must be configured."""
    steps: tuple[str, ...] = ()
    """What a person does in its window."""
    note: str = ""
    """Said with the lines."""
    lacks: str = ""

    def environment(self, to: Pointed, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return its variables, for one run where `to` has a session. `inherited` is the current
        environment."""
        lines = [
            *self.variables,
            *(self.variables_of_model if to.model else ()),
        ]
        variables = {}
        for line in lines:
            name, _, value = line.partition("=")
            variables[name] = to.fill(value)
        if self.headers and (to.session or to.project):
            ours = {"x-sluice-session": to.session, "x-sluice-project": to.project}
            # those that are there stay, but for ours: a request has each once
            kept = [
                line
                for line in inherited.get(self.headers, "").splitlines()
                if not ours.get(line.partition(":")[0].strip().lower())
            ]
            kept += [f"{name}: {value}" for name, value in ours.items() if value]
            variables[self.headers] = "\n".join(kept)
        if self.setting_variable:
            variables[self.setting_variable] = json.dumps(self.settings(to))
        return variables

    def settings(self, to: Pointed) -> Any:
        """Return what stands in its own file."""
        filled = to.fill(self.setting)
        return (
            merged(filled, to.fill(self.setting_of_model))
            if to.model and self.setting_of_model
            else filled
        )

    def path_of_file(self) -> Path:
        """Where its own file is on this machine."""
        name, within = self.home
        if name and (folder := os.environ.get(name)):
            return Path(folder).expanduser() / within
        return Path.home() / self.file


def merged(old: Any, new: Any) -> Any:
    """Return `old` with what `new` has: mappings go into each other, anything else is replaced."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        **old,
        **{name: merged(old[name], value) if name in old else value for name, value in new.items()},
    }


AGENTS: Sequence[Agent] = (
    Agent(
        name="claude",
        title="Claude Code",
        commands=("claude",),
        path=MESSAGES,
        source="Claude Code: LLM gateway configuration; Settings",
        variables=(
            "ANTHROPIC_BASE_URL={url}",
            "ANTHROPIC_AUTH_TOKEN={key}",
            "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY=1",
        ),
        variables_of_model=("ANTHROPIC_MODEL={model}", "ANTHROPIC_DEFAULT_HAIKU_MODEL={model}"),
        headers="ANTHROPIC_CUSTOM_HEADERS",
        # a key and a token at once are a conflict
        unset=("ANTHROPIC_API_KEY",),
        asks_for="claude-sonnet-4-5",
        file=".claude/settings.json",
        home=("CLAUDE_CONFIG_DIR", "settings.json"),
        setting={
            "env": {
                "ANTHROPIC_BASE_URL": "{url}",
                "ANTHROPIC_AUTH_TOKEN": "{key}",
                "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
            }
        },
        setting_of_model={
            "env": {"ANTHROPIC_MODEL": "{model}", "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}"}
        },
    ),
    Agent(
        name="codex",
        title="Codex CLI",
        commands=("codex",),
        path=RESPONSES,
        source="Codex: Configuration reference (model_providers, wire_api)",
        steps=(
            "In ~/.codex/config.toml (or $CODEX_HOME/config.toml):",
            'model = "{model}"',
            'model_provider = "sluice"',
            'web_search = "disabled"',
            "[model_providers.sluice]",
            'name = "Sluice"',
            'base_url = "{url}/v1"',
            'wire_api = "responses"',
            'env_key = "SLUICE_KEY"',
            "and for its shell: export SLUICE_KEY={key}",
        ),
        note=(
            "leave web_search out of the file where the key may search the web (`server_tools:"
            " [web_search]`)"
        ),
    ),
    Agent(
        name="aider",
        title="aider",
        commands=("aider",),
        source="aider: OpenAI compatible APIs; YAML config file",
        variables=("OPENAI_API_BASE={url}/v1", "OPENAI_API_KEY={key}"),
        variables_of_model=("AIDER_MODEL=openai/{model}",),
        file=".aider.conf.yml",
        setting={"openai-api-base": "{url}/v1", "openai-api-key": "{key}"},
        setting_of_model={"model": "openai/{model}"},
    ),
    Agent(
        name="opencode",
        title="opencode",
        commands=("opencode",),
        source="opencode: Providers; Config",
        setting_variable="OPENCODE_CONFIG_CONTENT",
        file=".config/opencode/opencode.json",
        home=("XDG_CONFIG_HOME", "opencode/opencode.json"),
        setting={
            "provider": {
                "sluice": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Sluice",
                    "options": {"baseURL": "{url}/v1", "apiKey": "{key}"},
                    "models": {"{model}": {"name": "{model}"}},
                }
            },
            "model": "sluice/{model}",
            "small_model": "sluice/{model}",
        },
    ),
    Agent(
        name="goose",
        title="Goose",
        commands=("goose",),
        source="goose: Environment variables; Configure LLM provider",
        variables=(
            "GOOSE_PROVIDER=openai",
            "OPENAI_HOST={url}",
            "OPENAI_BASE_PATH=v1/chat/completions",
            "OPENAI_API_KEY={key}",
        ),
        variables_of_model=("GOOSE_MODEL={model}",),
        file=".config/goose/config.yaml",
        home=("XDG_CONFIG_HOME", "goose/config.yaml"),
        setting={
            "GOOSE_PROVIDER": "openai",
            "OPENAI_HOST": "{url}",
            "OPENAI_BASE_PATH": "v1/chat/completions",
        },
        setting_of_model={"GOOSE_MODEL": "{model}"},
        note=(
            "Goose reads no key from its file: set OPENAI_API_KEY, or let `goose configure` keep it"
        ),
    ),
    Agent(
        name="cline",
        title="Cline",
        source="Cline: OpenAI Compatible",
        steps=(
            "In Cline's panel, Settings, API Configuration:",
            "API Provider: OpenAI Compatible",
            "Base URL: {url}/v1",
            "API Key: {key}",
            "Model ID: {model}",
        ),
    ),
    Agent(
        name="gemini",
        title="Gemini CLI",
        commands=("gemini",),
        source="Gemini CLI: Configuration (GOOGLE_GEMINI_BASE_URL)",
        lacks=(
            "it speaks Gemini's own API alone, which Sluice speaks to providers and not to clients"
        ),
    ),
    Agent(
        name="llm",
        title="llm",
        commands=("llm",),
        source="LLM: Other models (OpenAI-compatible models)",
        file=".config/io.datasette.llm/extra-openai-models.yaml",
        home=("LLM_USER_PATH", "extra-openai-models.yaml"),
        setting=[
            {
                "model_id": "sluice-{model}",
                "model_name": "{model}",
                "api_base": "{url}/v1",
                "supports_tools": True,
                # a key by its name would be in another file
                "headers": {"Authorization": "Bearer {key}"},
            }
        ],
        note="then: llm -m sluice-{model} 'hello'",
    ),
)

ANY = Agent(
    name="any",
    title="any program that uses an SDK of OpenAI or Anthropic",
    source="OpenAI and Anthropic: SDKs, environment variables",
    variables=(
        "OPENAI_BASE_URL={url}/v1",
        "OPENAI_API_BASE={url}/v1",
        "OPENAI_API_KEY={key}",
        "ANTHROPIC_BASE_URL={url}",
        "ANTHROPIC_AUTH_TOKEN={key}",
    ),
    unset=("ANTHROPIC_API_KEY",),
)
"""For `sluice run` of a program that stands in no row."""


def of_command(program: str) -> Agent:
    """Return the agent whose program that is, by its name."""
    name = Path(program).name
    return next((agent for agent in AGENTS if name in agent.commands), ANY)


def named(name: str) -> Agent | None:
    """Return the agent of that name, or of that program's name."""
    return next((agent for agent in AGENTS if name.lower() in (agent.name, *agent.commands)), None)
