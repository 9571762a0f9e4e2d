"""Settings of doors: each that is wrong is said with what, where and what to do, and no secret; the
doctor's look through a door."""

import json
from pathlib import Path

import pytest

from settings.config import Config, Upstream
from sluice.check import check, upstreams
from sluice.config_file import parse
from tests.support.json_values import Json
from tests.support.upstreams.replay import replaying

VERTEX = {
    "dialect": "anthropic",
    "door": "vertex",
    "project": "p",
    "location": "global",
    "credentials_file": "/nowhere/key.json",
}
BEDROCK = {"dialect": "anthropic", "door": "bedrock", "region": "eu-central-1"}
AZURE = {"dialect": "openai", "door": "azure", "base_url": "https://r.openai.azure.com"}

KEYED = AZURE | {"api_key_env": "C"}
PAID = BEDROCK | {"api_key_env": "C"}
GEMINI = {"dialect": "gemini", "base_url": "https://generativelanguage.googleapis.com/v1beta"}


def said(settings: Json) -> list[str]:
    """What a check says of an upstream's settings."""
    found = check.examine(
        parse(
            json.dumps({"upstreams": {"u": settings}, "models": [{"match": "*", "upstream": "u"}]}),
            "x.yaml",
        ),
        (),
        {},
    )
    return [
        f"{'.'.join(map(str, one.place))}: {one.text}"
        for one in found
        if one.place[:1] == ("upstreams",)
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dialect": "openai"}, "`base_url` is missing: write where it is, as in https://HOST/v1"),
        ({"dialect": "openai", "door": "azure"}, "as in https://NAME.openai.azure.com"),
        (
            AZURE | {"region": "eu-central-1"},
            "`region` is for `door: bedrock`: take it out, or name that door",
        ),
        (
            {"dialect": "openai", "base_url": "http://h/v1", "project": "p"},
            "`project` is for `door: vertex`",
        ),
        (
            {"dialect": "openai", "base_url": "http://h/v1", "credentials_file": "/k"},
            "is for `door: vertex` or `door: bedrock`",
        ),
        (AZURE | {"deployment": "d"}, "`api_version` is missing"),
        (
            AZURE | {"dialect": "anthropic", "deployment": "d", "api_version": "1"},
            "`deployment` is for the dialect openai",
        ),
        (
            AZURE | {"tenant": "t"},
            (
                "`client_id` is missing: write the id of the application; `client_secret_env` is"
                " missing"
            ),
        ),
        (
            AZURE | {"api_key_env": "A", "tenant": "t", "client_id": "c", "client_secret_env": "S"},
            "are two ways to pay: keep one",
        ),
        (
            VERTEX | {"dialect": "openai"},
            (
                "openai is not spoken behind `door: vertex`: that is for the dialects anthropic and"
                " gemini"
            ),
        ),
        (VERTEX | {"project": None}, "`project` is missing"),
        (VERTEX | {"api_key_env": "A"}, "takes a service account in `credentials_file`"),
        (
            BEDROCK | {"dialect": "openai", "api_key_env": "A"},
            "not spoken behind `door: bedrock` with `service: bedrock`",
        ),
        (BEDROCK, "nothing says how to pay: name an API key with `api_key_env`"),
        (BEDROCK | {"access_key_env": "A"}, "`secret_key_env` is missing"),
        (
            BEDROCK | {"access_key_env": "A", "secret_key_env": "B", "api_key_env": "C"},
            "are two ways to pay",
        ),
        (BEDROCK | {"credentials_file": "/k", "api_key_env": "C"}, "are two ways to pay"),
        (
            BEDROCK | {"api_key_env": "C", "region": "Frankfurt"},
            "upstreams.u.region: must be the id of a region, as in eu-central-1",
        ),
        (BEDROCK | {"api_key_env": "C", "service": "s3"}, "upstreams.u.service"),
        (AZURE | {"door": "gcp"}, "upstreams.u.door"),
        (
            AZURE | {"tenant": "../x", "client_id": "c", "client_secret_env": "S"},
            "upstreams.u.tenant",
        ),
        (AZURE | {"key_header": "a b"}, "upstreams.u.key_header"),
        (VERTEX, "/nowhere/key.json cannot be read here: No such file"),
        (BEDROCK | {"credentials_file": "/nowhere/keys"}, "/nowhere/keys cannot be read here"),
        (
            BEDROCK | {"access_key_env": "A", "secret_key_env": "B"},
            "the variable B is not set here; a gateway without it cannot send it",
        ),
    ],
)
def test_what_is_wrong_is_said(settings: Json, sentence: str) -> None:
    assert any(sentence in one and one.startswith("upstreams.u") for one in said(settings)), said(
        settings
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (GEMINI, ""),
        (
            GEMINI | {"base_url": "https://h"},
            "base_url: has no path: the address of most providers of this dialect ends in /v1beta",
        ),
        (GEMINI | {"base_url": "https://h/v1beta/models"}, "take /models away"),
        (
            GEMINI | {"base_url": "https://h/v1beta/models/x:generateContent"},
            "take /models/x:generateContent away",
        ),
        (
            GEMINI | {"base_url": "https://eu-aiplatform.googleapis.com/v1"},
            "base_url: is an address that wants `door: vertex`",
        ),
        (AZURE | {"door": "plain"}, "base_url: is an address that wants `door: azure`"),
        (KEYED, ""),
        (KEYED | {"base_url": "https://r.openai.azure.com/openai/v1"}, ""),
        (AZURE, "door: nothing lets requests in: name the key with `api_key_env`"),
        (
            KEYED
            | {
                "base_url": "https://r.services.ai.azure.com/models",
                "api_version": "2024-05-01-preview",
            },
            "",
        ),
        (
            KEYED | {"base_url": "https://r.openai.azure.com/openai/v1/chat/completions"},
            "take /chat/completions away",
        ),
        (KEYED | {"base_url": "https://r.openai.azure.com/openai"}, "or write /openai/v1"),
        (
            KEYED | {"base_url": "https://r.openai.azure.com/openai/deployments/d"},
            "add `api_version`",
        ),
        (
            KEYED
            | {
                "base_url": "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21"
            },
            "",
        ),
        (
            KEYED
            | {
                "base_url": "https://r/openai/deployments/d",
                "deployment": "d",
                "api_version": "1",
            },
            "`deployment` adds one more",
        ),
        (
            KEYED | {"api_version": "2024-10-21"},
            "api_version: is for addresses with a deployment, which is missing: add `deployment`",
        ),
        (KEYED | {"api_version": "preview"}, ""),
        (PAID | {"base_url": "https://h/model"}, "base_url: holds /model, which is added to it"),
        (PAID | {"base_url": "https://h"}, ""),
        (
            PAID | {"base_url": "https://h/anthropic", "service": "bedrock-mantle"},
            "take /anthropic away",
        ),
        (
            PAID | {"api_key_env": None, "api_key_file": "/dev/null"},
            "api_key_file: /dev/null is empty: put the secret into it",
        ),
    ],
)
def test_what_will_not_work_is_said(settings: Json, sentence: str) -> None:
    found = [one for one in said(settings) if "is not set here" not in one]
    assert len(found) == bool(sentence) and all(sentence in one for one in found), found


def test_a_model_that_is_not_behind_a_door_is_said() -> None:
    routes = [
        {"upstream": "u", "names": ["eu.anthropic.claude-x", "arn:aws:x"]},
        {"upstream": "u", "names": ["amazon.nova"]},
    ]
    found = check.examine(
        parse(json.dumps({"upstreams": {"u": PAID}, "models": routes}), "x.yaml"), (), {"C": "x"}
    )
    [one] = [one for one in found if one.place[:1] == ("models",)]
    assert one.place == ("models", 1, "names") and one.text.startswith(
        "'amazon.nova' is not behind `door: bedrock` with `dialect: anthropic`"
    )


def test_what_stands_in_a_file_of_secrets_is_checked_and_not_said(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text('{"type": "authorized_user", "refresh_token": "SECRET"}')
    [found] = said(VERTEX | {"credentials_file": str(file)})
    assert (
        found.startswith("upstreams.u.credentials_file: ")
        and "'authorized_user'; what is taken is the key of a service account" in found
    )
    file.write_text("[default]\naws_access_key_id = SECRET\n")
    [other] = said(BEDROCK | {"credentials_file": str(file)})
    assert (
        "has no aws_access_key_id and aws_secret_access_key under [default]" in other
        and "SECRET" not in found + other
    )
    [found, *_] = said(BEDROCK | {"access_key_env": "its-key/it+self", "secret_key_env": "PATH"})
    assert "must be the name of an environment variable" in found and "its-key" not in found


def test_what_is_right_is_not_said_to_be_wrong(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    assert said(BEDROCK | {"credentials_file": str(file)}) == []
    assert [
        one
        for one in said(BEDROCK | {"service": "bedrock-mantle", "api_key_env": "C"})
        if "is not set here" not in one
    ] == []
    assert Upstream.model_validate(BEDROCK | {"api_key_env": "C"}).counts is False
    assert (
        Upstream.model_validate(BEDROCK | {"api_key_env": "C", "service": "bedrock-mantle"}).counts
        is True
    )


def test_the_doctor_says_whether_there_is_what_lets_requests_in(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with replaying() as server:
        there = Upstream.model_validate(
            BEDROCK | {"base_url": server.url, "credentials_file": str(file)}
        )
        [(_, state, sentence)] = upstreams.check_upstreams(Config(upstreams={"u": there}))
        assert (
            state == "failed"
            and f"reached, but no request can be signed: {file}: No such file" in sentence
        )
        file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
        [(_, state, sentence)] = upstreams.check_upstreams(Config(upstreams={"u": there}))
        assert state == "ok" and "reached, and there is what lets requests in" in sentence
