"""What `sluice up` shows when everything is ready: lines that work as pasted."""

import json
import shlex
from pathlib import Path
from textwrap import dedent

_BASH_TOOL = {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
_BASH = {
    "model": "demo",
    "messages": [{"role": "user", "content": "delete everything with rm -rf"}],
    "tools": [{"type": "function", "function": _BASH_TOOL}],
}
_WEATHER = {
    "model": "demo",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "what is the weather in Paris"}],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
}


def curl_line(url: str, key: str) -> str:
    """A dangerous tool call, in the OpenAI dialect."""
    return (
        f"curl -s {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{json.dumps(_BASH)}'"
    )


def python_line(url: str, key: str) -> str:
    """A harmless tool call, in the Anthropic dialect, with nothing but Python."""
    return (
        "python3 -c 'import json, urllib.request as r; print(r.urlopen(r.Request("
        f'"{url}/v1/messages", json.dumps({json.dumps(_WEATHER)}).encode(), '
        f'{{"x-api-key": "{key}", "content-type": "application/json"}})).read().decode())\''
    )


def greeting(url: str, key: str, data_dir: Path, *, has_demo: bool = True) -> str:
    """Return the whole text; what can be tried with the demo model only where it answers."""
    tries = """
        A model that wants to delete everything; the policy stops it:
        {curl}

        One that asks for the weather; it goes through:
        {python}
"""
    text = dedent(f"""\

        Sluice is ready: {{url}}   key: {{key}}   (Ctrl-C stops it)
{tries if has_demo else ""}
        OpenAI SDK:     OpenAI(base_url="{{url}}/v1", api_key="{{key}}")
        Anthropic SDK:  Anthropic(base_url="{{url}}", api_key="{{key}}")
        Coding agents:  ANTHROPIC_BASE_URL={{url}} ANTHROPIC_API_KEY={{key}}
        The record:     SLUICE_DATA_DIR={{data_dir}} .venv/bin/sluice audit tool-calls
        """)
    return text.format(url=url, key=key, data_dir=shlex.quote(str(data_dir)), curl=curl_line(url, key), python=python_line(url, key))
