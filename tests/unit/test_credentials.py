"""Secrets in texts: formats of keys, and values that look random behind a name that says so."""

import pytest

from policy.effects.credentials import MAX_SECRETS, entropy, secrets_in
from tests.support.cpu import cpu_within

# written in two pieces, so that no scanner takes this file for a leak
_AWS, _GITHUB = "AKIA" + "3Q7NZLR5T2VWXY4K", "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"key: {_AWS}", "aws"),
        (f"token = {_GITHUB}", "github"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "private_key"),
        ("-----BEGIN PRIVATE KEY-----", "private_key"),
        ("xox" + "b-2912837465-8374659201-QmZ81jsKw02LdkRp", "slack"),
        ("sk_" + "live_9aKq27LmZx81PwTb", "stripe"),
        ("sk-" + "ant-api03-" + "Zq81LmXw09KpRt27VbNc" * 4, "claude"),
        ("AIza" + "SyD9k3Lm27QxW81PzRtVbNc05HgJyUiOa4K", "google"),
        ("postgres://svc:pa55w0rd!x@db.example/app", "url_password"),
        ("api_key: 'q8Zr41mXs92LkPw0vT7y'", "named"),
        ("export FOO_SECRET=kJ82hs91jsMNs02kals", "named"),
        ("Authorization: Bearer ya8sd7f6g5h4j3k2l1zxcv", "header"),
        ('{"password": "8fKq2mZx71LpWv0T"}', "named"),
        ("Cookie: session=8fKq2mZx71LpWv0T9aJd7SgHq", "cookie"),
    ],
)
def test_a_secret_is_found_and_named(text: str, kind: str) -> None:
    assert [secret.kind for secret in secrets_in(text)] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "api_key = YOUR_API_KEY_1234_HERE",
        "password = get_password()",
        "token: ${GITHUB_TOKEN}",
        "secret_name: my-secret-name-1",
        "postgres://user:password@localhost/db",
        "postgres://postgres:postgres@db:5432/app",
        "api_key=os.environ['OPENAI_API_KEY2']",
        "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc",
        "-----BEGIN PUBLIC KEY-----",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "token_count = 1234567890123",
        "the password is long",
        "src/auth/password_reset_v2.py",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer <your token here 12>",
        "https://example.com:8080/a@b",
        "sk-learn",
        "",
    ],
)
def test_names_examples_and_hashes_are_no_secrets(text: str) -> None:
    assert secrets_in(text) == ()


def test_where_a_secret_stands_is_said_and_secrets_are_counted_once() -> None:
    text = f"a {_AWS} b token={_GITHUB}"
    assert [text[s.start : s.end] for s in secrets_in(text)] == [_AWS, _GITHUB]
    assert len(secrets_in(f"{_AWS} " * 1000)) == MAX_SECRETS


def test_entropy_is_bits_by_character() -> None:
    assert entropy("") == 0 and entropy("aaaa") == 0 and entropy("abcd") == 2


def test_no_text_takes_long() -> None:
    pieces = (
        "ey-",
        "token=",
        "a://b:",
        "x",
        "xoxb-1",
        "sk-proj-",
        "passwordpasswordsecret",
        "cookie: a=",
        "0",
        "a.b",
        "authorization: bearer ",
    )
    with cpu_within(4):
        for piece in pieces:
            secrets_in(piece * (65_536 // len(piece)) + " " + _AWS)
