"""What `sluice up` shows when everything is ready: lines that work as pasted, and only what the
policies really do."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings.config import Config

_BASH_TOOL = {
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}
_BASH: dict[str, Any] = {
    "model": "demo",
    "messages": [{"role": "user", "content": "delete everything with rm -rf"}],
    "tools": [{"type": "function", "function": _BASH_TOOL}],
}
_WEATHER: dict[str, Any] = {
    "model": "demo",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "what is the weather in Paris"}],
    "tools": [
        {
            "name": "get_weather",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ],
}


def curl_line(url: str, key: str) -> str:
    """A dangerous tool call, in the OpenAI dialect."""
    head = f"-H 'Authorization: Bearer {key}' -H 'Content-Type: application/json'"
    return f"curl -s -w '\\n' {url}/v1/chat/completions {head} -d '{json.dumps(_BASH)}'"


def python_line(url: str, key: str) -> str:
    """A harmless tool call, in the Anthropic dialect, with nothing but Python."""
    return (
        "python3 -c 'import json, urllib.request as r; print(r.urlopen(r.Request("
        f'"{url}/v1/messages", json.dumps({json.dumps(_WEATHER)}).encode(), '
        f'{{"x-api-key": "{key}", "content-type": "application/json"}})).read().decode())\''
    )


@dataclass(frozen=True, slots=True)
class Shows:
    """What the policies make of the two calls: the sentence before each line. `warning`: a
    prominent warning, or empty."""

    bash: str
    weather: str
    warning: str = ""


def shown_calls(config: Config, series: str, search_path: Sequence[str] = ()) -> dict[str, Any]:
    """Try the calls of both lines on the policies `series`; return the fields of `Shows`. Raises
    PolicyFailed."""
    from sluice.check import check, policy_check, trial

    shown: dict[str, Any] = {}
    for name, tool, arguments, message in (
        ("bash", "bash", {"command": "rm -rf /"}, _BASH["messages"]),
        ("weather", "get_weather", {"city": "Paris"}, _WEATHER["messages"]),
    ):
        tried = trial.try_call(
            config,
            series,
            tool,
            json.dumps(arguments),
            search_path=search_path,
            ask=trial.demo_judgement,
            messages=message,
        )
        is_lost = tried.outcome == "ask" and not check.can_judge(config, tried.judge)
        shown[name] = (
            f"{_WANTS[name]}; {_NOBODY.format(tried.judge) if is_lost else _says(tried, series)}:"
        )
    if policy_check.passes_everything(config.policies[series], search_path):
        shown["warning"] = f"NOTHING IS CONTROLLED: the policy {series!r} lets everything pass"
    return shown


_NOBODY = "it is blocked, as no route leads the judge {!r} to an upstream"
_WANTS = {
    "bash": "A model that wants to delete everything",
    "weather": "One that asks for the weather",
}


def _says(tried: Any, series: str) -> str:
    match tried.outcome:
        case "allow":
            return f"the policy {series!r} lets it through"
        case "block":
            return "the policy stops it"
        case "defer":
            return f"the policy {series!r} lets another model make the rest of the turn"
        case "replace":
            return f"the policy {series!r} changes what it asks for"
        case "held":
            return f"the policy {series!r} asks people about it"
        case _:
            return f"the judge {tried.judge!r} is asked about it"


def greeting(
    url: str,
    key: str,
    data_dir: Path,
    *,
    shows: Shows | None = None,
    has_demo: bool = True,
    has_pages: bool = True,
) -> str:
    """Return the whole text; what can be tried with the demo model only where it answers, and where
    is known what comes of it."""
    lines = ["", f"Sluice is ready: {url}   key: {key}   (Ctrl-C stops it)", ""]
    if shows is not None and shows.warning:
        lines += [shows.warning, ""]
    if shows is not None and has_demo:
        lines += [shows.bash, curl_line(url, key), "", shows.weather, python_line(url, key), ""]
    lines += [
        f'OpenAI SDK:     OpenAI(base_url="{url}/v1", api_key="{key}")',
        f'Anthropic SDK:  Anthropic(base_url="{url}", api_key="{key}")',
        (
            f"Coding agents:  SLUICE_DATA_DIR={shlex.quote(str(data_dir))} .venv/bin/sluice run --"
            " claude"
        ),
        *([f"For people:     {url}/debug   (log in with the key)"] if has_pages else []),
        (
            f"The record:     SLUICE_DATA_DIR={shlex.quote(str(data_dir))} .venv/bin/sluice audit"
            " tool-calls"
        ),
        "",
    ]
    return "\n".join(lines)
