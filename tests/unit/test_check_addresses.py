"""`sluice check` of where upstreams are: an address at which nothing answers is an error, one that
lacks a path usual for it a warning."""

import pytest

from settings.config import Config
from sluice.check.address_check import address_mistakes, address_warnings


@pytest.mark.parametrize(
    ("dialect", "base_url", "level", "says"),
    [
        (
            "openai",
            "https://h/v1/v1",
            "error",
            "has /v1 twice where requests are sent, to /v1/v1/chat/completions",
        ),
        ("responses", "https://h/v1/v1/", "error", "has /v1 twice"),
        ("gemini", "https://h/v1beta/v1beta", "error", "has /v1beta twice"),
        ("anthropic", "https://h/v1/v1", "error", "take /v1 away"),
        ("anthropic", "https://h/v1", "warning", "take /v1 away"),
        ("openai", "https://h/api/v1/chat/completions", "error", "take /chat/completions away"),
        (
            "openai",
            "https://api.openai.com",
            "error",
            "requests to this provider go to https://api.openai.com/v1",
        ),
        ("responses", "https://api.openai.com/", "error", "has no path"),
        ("openai", "https://openrouter.ai", "error", "/api/v1"),
        ("openai", "http://[::1]:8000", "warning", "ends in /v1: add it"),
        ("responses", "http://h", "warning", "ends in /v1: add it"),
        ("openai", "https://api.deepseek.com", "", ""),
        ("openai", "http://h:1/v1", "", ""),
        ("anthropic", "https://h", "", ""),
        ("openai", "https://h/v1/x/v1", "", ""),
        ("openai", "https://h/v1v1", "", ""),
    ],
)
def test_an_address_without_its_path_or_with_it_twice_is_said(
    dialect: str, base_url: str, level: str, says: str
) -> None:
    config = Config.model_validate({"upstreams": {"u": {"dialect": dialect, "base_url": base_url}}})
    found = [*address_mistakes(config), *address_warnings(config)]
    assert [(one.level, one.place) for one in found] == [
        (level, ("upstreams", "u", "base_url"))
    ] * bool(level)
    assert all(says in one.text for one in found), found
