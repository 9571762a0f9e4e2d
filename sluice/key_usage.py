"""What `sluice keys create` prints for a new key: how to use it, in lines that work as pasted."""

import json
from collections.abc import Sequence
from shlex import quote

from protocol.dialects.table import CLIENTS
from settings.config import Config


def base_urls(url: str) -> dict[str, str]:
    """Return what clients of each dialect take as their base URL."""
    return {client.name: url + client.client_base for client in CLIENTS.values()}


def usage(url: str, key: str, roles: Sequence[str], config: Config | None) -> str:
    """Return lines on how to use a key; `key` may be a shell variable that holds it."""
    urls, head = base_urls(url), f'-H "authorization: Bearer {key}"'
    lines = []
    if "client" in roles:
        body = {"model": _model(config), "messages": [{"role": "user", "content": "hello"}]}
        lines += [
            (
                f"Base URL:  {urls['openai']} for OpenAI's clients (Chat Completions and"
                f" Responses), {urls['anthropic']} for Anthropic's"
            ),
            "Header:    authorization: Bearer KEY, or x-api-key: KEY",
            (
                f"Try it:    curl -s {urls['openai']}/chat/completions {head} -H 'content-type:"
                f" application/json' -d {quote(json.dumps(body))}"
            ),
        ]
    if "auditor" in roles:
        lines.append(f"Record:    curl -s {url}/audit/calls {head}")
    if "monitor" in roles:
        lines.append(f"Figures:   curl -s {url}/metrics {head}")
    return "\n".join(lines)


def _model(config: Config | None) -> str:
    """A model that the configuration has, if it names one."""
    if config is None:
        return "MODEL"
    return next(iter(config.listed_models), "MODEL")
