"""Tokens of other systems do not come into the record."""

import json
import time

import pytest

from protocol.bytes.token_removal import NOTE, without_tokens
from tests.support.json_values import as_json

SECRET = "tok-7f3a-SECRET"


@pytest.mark.parametrize(
    "name",
    [
        "authorization_token",
        "Authorization_Token",
        "AUTHORIZATION-TOKEN",
        "authorizationToken",
        " authorization token ",
        "authorization",
        "Authorization",
        "\\u0061uthorization_token",
        "authorization\\u005ftoken",
        "auth\\u006Frization_token",
        "\\u0041uthorization",
    ],
)
@pytest.mark.parametrize(
    "value", [SECRET, f'a \\"quoted\\" {SECRET}', f"\\u0041{SECRET}", f"{SECRET}\\\\"]
)
def test_a_token_is_taken_out_however_its_name_is_spelled(name: str, value: str) -> None:
    for before, after in (
        ('{"mcp_servers": [{"', '"}], "model": "m"}'),
        ('{"a": {"b": [[{"x": 1,\n"', '" , "z": {}}]]}}'),
    ):
        body = f'{before}{name}" :\t"{value}{after}'.encode()
        said = without_tokens(body)
        assert SECRET.encode() not in said and NOTE in said
        assert json.loads(said, strict=False), "still JSON"
        assert without_tokens(said) == said


def test_what_is_no_json_is_cleaned_too() -> None:
    for body in (
        b'{"mcp_servers": [{"authorization_token": "' + SECRET.encode(),
        b'{"a": " , "authorization_token": "' + SECRET.encode() + b'"}',
        b'\xff\xfe"authorization_token":"' + SECRET.encode() + b'" trailing {{{',
        b'{"authorization_token": "' + SECRET.encode() + b"\\",
        b'{"authorization_token": "one '
        + SECRET.encode()
        + b'", "authorization_token": "two '
        + SECRET.encode()
        + b'"}',
    ):
        assert SECRET.encode() not in without_tokens(body), body


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": '{"authorization_token": "an example"}'}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": 'my "authorization": "is this" and \\"authorization\\": \\"that\\"',
                }
            ]
        },
        {
            "tools": [
                {
                    "input_schema": {
                        "properties": {
                            "authorization": {"type": "string"},
                            "authorization_tokens": "x",
                        }
                    }
                }
            ]
        },
        {"authorization": None, "authorization_token": 5, "author": "me", "authorizations": "all"},
        {"text": "\\u0061 " * 100},
    ],
)
def test_what_was_said_stays_as_it_came(body: object) -> None:
    for raw in (as_json(body), json.dumps(body, indent=2, ensure_ascii=False).encode()):
        assert without_tokens(raw) == raw


@pytest.mark.parametrize(
    "part",
    [
        b'"authorization_token":"x",',
        b'"authorization',
        b'"a',
        b'\\"authorization\\u0061',
        b'"aaaaaaaaaaaaa',
        b'"a' + b"\\u0061" * 20,
        b'" "',
    ],
)
def test_cleaning_takes_time_in_proportion(part: bytes) -> None:
    """16 MB of whatever takes the writer about a second; twice as much takes twice as long, and not
    four times."""
    times = []
    for size in (1 << 20, 1 << 21):
        body = b'{"authorization": "' + SECRET.encode() + b'"}' + part * (size // len(part))
        began = time.process_time()
        without_tokens(body)
        times.append(time.process_time() - began)
    assert times[1] < 3 * times[0] + 0.05, times
    assert times[1] < 2, times
