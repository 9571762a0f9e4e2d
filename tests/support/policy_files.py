"""A policy in a file of its own."""

from typing import Any

from settings.config import Config
from tests.support.json_values import Json


def config(**changes: Any) -> Config:
    values: Json = {
        "upstreams": {
            "o": {"dialect": "openai", "base_url": "http://a/v1"},
            "a": {"dialect": "anthropic", "base_url": "http://b"},
        },
        "models": [{"match": "gpt-*", "upstream": "o"}, {"match": "*", "upstream": "a"}],
    }
    return Config.model_validate(values | changes)


DECIDES: dict[str, Json] = {
    "unknown": {"unknown": ["block foo"]},
    "text_calls": {"text_calls": "pass"},
    "private_urls": {"private_urls": "pass"},
    "durability": {"durability": "relaxed"},
    "betas": {"betas": ["x-2026"]},
    "exact_keys": {"exact_keys": ["bash"]},
    "exact_integers": {"exact_integers": ["bash"]},
    "the built-in models": {"demo": True},
    "event_bytes": {"limits": {"event_bytes": 100}},
    "the order of routes": {
        "models": [{"match": "*", "upstream": "a"}, {"match": "gpt-*", "upstream": "o"}]
    },
    "a route's server tools": {
        "models": [
            {"match": "gpt-*", "upstream": "o"},
            {
                "match": "*",
                "upstream": "a",
                "server_tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
        ]
    },
    "native_tools": {
        "upstreams": {
            "o": {"dialect": "openai", "base_url": "http://a/v1", "native_tools": False},
            "a": {"dialect": "anthropic", "base_url": "http://b"},
        }
    },
}
ELSEWHERE: dict[str, Json] = {
    "where an upstream is": {
        "upstreams": {
            "o": {
                "dialect": "openai",
                "base_url": "http://c/v1",
                "api_key_env": "X",
                "headers": {"a": "b"},
            },
            "a": {"dialect": "anthropic", "base_url": "http://b"},
        }
    },
    "keys": {"keys": [{"name": "dev", "sha256": "0" * 64}]},
    "timers and capacities": {
        "limits": {"call_s": 5, "open_calls": 7, "judge_s": 9, "commit_s": 1, "output_bytes": 10}
    },
    "shards": {"shards": 4},
    "another series": {"policies": {"default": [{"use": "noop"}], "more": [{"use": "uppercase"}]}},
}
