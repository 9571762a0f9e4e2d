"""What is taken for a secret or for personal data, in whole texts and in texts that come in pieces."""

import itertools
import json
import random
import string
import time
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.redaction.numbers import numbers
from policy.redaction.search import PIECE_CHARS, decided_to, finds, search
from policy.redaction.secret_rules import MIN_SECRET_CHARS

_RANDOM = random.Random(7)


def _letters(count: int, of: str = string.ascii_letters + string.digits) -> str:
    return "".join(_RANDOM.choice(of) for _ in range(count))


_PEM = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *(_letters(64) for _ in range(12)),
        "-----END RSA PRIVATE KEY-----",
    ]
)
VALUES = {
    "github-pat": ("secret", f"ghp_{_letters(36)}"),
    "aws-access-token": ("secret", f"AKIA{_letters(16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}"),
    "slack-bot-token": ("secret", f"xoxb-123456789012-210987654321-{_letters(24)}"),
    "gitlab-pat": ("secret", f"glpat-{_letters(20)}"),
    "jwt": (
        "secret",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6Ik0ifQ."
        + _letters(43),
    ),
    "private-key": ("secret", _PEM),
    "key-in-yaml": ("secret", _PEM.replace("\n", "\n    ")),
    "key-in-json": ("secret", _PEM.replace("\n", r"\n")),
    "key-cut": ("secret", _PEM[:370]),
    "email": ("email", "ada.lovelace+x@analytical-engine.co.uk"),
    "email-in-url": ("email", "ada.lovelace%40analytical-engine.co.uk"),
    "card": ("card", "4111 1111 1111 1111"),
    "card-plain": ("card", "5555555555554444"),
    "card-amex": ("card", "3782-822463-10005"),
    "iban": ("iban", "DE89 3704 0044 0532 0130 00"),
    "iban-letters": ("iban", "GB82 WEST 1234 5698 7654 32"),
    "phone": ("phone", "+49 (0)30 1234567"),
    "phone-us": ("phone", "(415) 555-2671"),
}
NAMES = sorted(VALUES)


def streamed(pieces: list[str]) -> list[tuple[int, int, str]]:
    """What is found where text comes in pieces: the end of what is decided moves as a policy's."""
    text, position, spans = "", 0, []
    for number, piece in enumerate([*pieces, ""]):
        text += piece
        while True:
            final = number == len(pieces)
            stop = len(text) if final else decided_to(text, position)
            new = finds(text, position, stop)
            spans += [(f.start, f.end, f.kind) for f in new]
            after = max([stop, *(f.end for f in new)])
            if final or after == position:
                break
            position = after
    return spans


@pytest.mark.parametrize("name", NAMES)
def test_each_value_is_found_alone_and_among_words(name: str) -> None:
    kind, value = VALUES[name]
    for text in (value, f"it is {value} .", f'{{"a":"{value}"}}', f"x={value}\nnext", f"({value})"):
        assert [(f.kind, text[f.start : f.end]) for f in search(text)] == [(kind, value)], text


@pytest.mark.parametrize("name", NAMES)
def test_each_value_is_found_cut_at_every_character(name: str) -> None:
    kind, value = VALUES[name]
    text = f"see {value} and more words here"
    expected = [(4, 4 + len(value), kind)]
    for cut in range(len(text) + 1):
        assert streamed([text[:cut], text[cut:]]) == expected, cut
    assert streamed(list(text)) == expected


_WORDS = st.lists(
    st.one_of(
        st.sampled_from([value for _, value in VALUES.values()]),
        st.sampled_from(
            [" ", "\n", "the", "In 2024 ", "A B C ", "zendesk_key = ", "-----BEGIN ", '"', "@", "é"]
        ),
        st.text("aB9 .-/@_=\u200b\uff11\ud800\u4e2d\\n", max_size=12),
        st.integers(100, 300).map(lambda n: "ab1-" * n),
        st.sampled_from([f"{'x' * n}ghp_{'a1B2c3D4e5' * 4}" for n in (60, 100, 130, 2040, 4090)]),
    ),
    max_size=9,
)


@given(_WORDS, st.lists(st.integers(0, 5_000), max_size=9))
def test_what_is_found_does_not_depend_on_the_cut(words: list[str], places: list[int]) -> None:
    text = "".join(words)
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = [(f.start, f.end, f.kind) for f in finds(text, 0, len(text))]
    assert streamed(pieces) == whole
    assert [(f.start, f.end, f.kind) for f in search(text)] == whole


def test_the_forms_that_people_read_alike_are_found() -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in "4111 1111 1111 1111")
    assert [f.kind for f in search(f"card {wide}!")] == ["card"]
    secret = VALUES["github-pat"][1]
    joined = "\u200d".join(secret)
    [find] = search(f"token: {joined} ")
    assert (find.kind, find.value, find.end - find.start) == ("secret", secret, len(joined))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"key-cut", "key-in-json"}))
@pytest.mark.parametrize("before", [r"\n", r"\t", r"\r\n", r"{\"a\":\"", r"\\n"])
def test_escapes_are_no_letters_of_a_value(name: str, before: str) -> None:
    """A tool's result is often JSON, with a file's lines in one of its strings."""
    kind, value = VALUES[name]
    text = f'"{before}{value}{before}next"'
    assert [(f.kind, text[f.start : f.end]) for f in search(text)] == [(kind, value)]
    assert streamed(list(text)) == [(1 + len(before), 1 + len(before) + len(value), kind)]


@pytest.mark.parametrize("behind", [" 12/25", " 12/25 123", " 123", "/12/25", " exp 12/25"])
@pytest.mark.parametrize("name", ["card", "card-plain", "card-amex"])
def test_a_card_is_found_before_its_date_and_code(name: str, behind: str) -> None:
    value = VALUES[name][1]
    text = f"card {value}{behind} of Ada"
    assert [(f.kind, text[f.start : f.end]) for f in search(text)] == [("card", value)]


def test_a_secret_before_a_host_is_a_secret() -> None:
    secret = VALUES["github-pat"][1]
    for url in (f"https://{secret}@github.com/a", f"https://x-access-token:{secret}@github.com/a"):
        assert [(f.kind, f.value) for f in search(f"git clone {url}")] == [("secret", secret)]


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "41111111111111110",
        "DE89 3704 0044 0532 0130 01",
        "1700000000 1700000000123",
        "550e8400-e29b-41d4-a716-446655440000",
        "d41d8cd98f00b204e9800998ecf8427e da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "git@github.com:a/b.git someone@example.com logo@2x.png @app.route user@localhost",
        "AKIAIOSFODNN7EXAMPLE zendesk_key = ${ZENDESK_KEY}",
        "-----BEGIN PRIVATE KEY----- is the first line of a key",
        "192.168.100.200:8080 3.14159265358979 1,234,567,890 2024-01-02 10:11:12",
        "they ask task s.find(x) sk_learn easy.way",
        "a/%40types%2Fnode/x.js logo%402x.png someone%40example.com printf %40s.%s",
        "+2024-11-30: the first\n+2024-11-30 10:11 a line that a diff adds",
        "+48.858370 +002.294481 +3.14159265",
        "user@1000.service getty@tty1.service icon@2x.webp x@self.weight",
        "chacha20-poly1305@openssh.com,curve25519-sha256@libssh.org",
        r'"import app\n@app.route(\"/\")\ndef f():\n\t@functools.cache\n"',
    ],
)
def test_what_only_looks_like_it_is_none(text: str) -> None:
    assert search(text) == []


def test_a_name_before_its_value_counts_across_chunks() -> None:
    value = _letters(40, string.ascii_lowercase + string.digits)
    text = f"zendesk_secret_key = '{value}'\n"
    start = text.index(value)
    assert streamed(list(text)) == [(start, start + 40, "secret")]


def test_a_megabyte_without_white_space_takes_linear_time() -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        search(text)
        return time.process_time() - began

    block = _letters(4_000) + "@" + "4111111111111111" + VALUES["github-pat"][1]
    small, large = block * 12, block * 240
    assert seconds(large) < 60 * max(seconds(small), 0.005)
    assert len(search(large)) >= 240
    assert seconds("1234567" + "\\" * 200_000) < 2


def test_a_long_line_is_not_looked_at_word_by_word() -> None:
    """What is in a line of a megabyte is looked for where it may be."""
    words, found = "ab cd, " * 60_000, f" {VALUES['email'][1]} "
    began = time.process_time()
    assert [f.kind for f in search(f"{words}{found}{words}")] == ["email"]
    # 0.02 s; word by word 5 s
    assert time.process_time() - began < 1


def test_a_long_run_waits_no_longer_than_a_piece() -> None:
    text = "q" * 100_000
    assert len(text) - decided_to_the_end(text) < PIECE_CHARS
    prose = "-----BEGIN PRIVATE KEY----- is how a key begins, and this is prose. " * 9
    assert len(prose) - decided_to_the_end(prose) < 10


def decided_to_the_end(text: str) -> int:
    position = 0
    while True:
        stop = decided_to(text, position)
        after = max([stop, *(f.end for f in finds(text, position, stop))])
        if after == position:
            return position
        position = after


def test_numbers_are_told_apart() -> None:
    assert [*numbers("DE89370400440532013000")] == [(0, 22, "iban")]
    assert [*numbers("call 4111111111111111")] == [(5, 21, "card")]
    assert [*numbers("0000 0000 0000 0000")] == []


def test_the_pack_has_its_notice_and_its_rules_compile() -> None:
    pack = json.loads(resources.files("policy").joinpath("data", "secret_rules.json").read_text())
    assert "MIT License" in pack["notice"]
    assert "Zachary Rice" in pack["notice"]
    assert len(pack["rules"]) > 200
    # no rule may be for a shorter secret than texts are looked at for
    assert MIN_SECRET_CHARS == 12


@pytest.mark.parametrize(
    "text",
    ["AWS_SECRET_ACCESS_KEY={}\n", "aws_secret_access_key = {}", '{{"SecretAccessKey": "{}"}}'],
)
def test_the_secret_half_of_a_key_of_aws_is_known_by_its_name(text: str) -> None:
    key = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYzzzzzzzKEY"
    assert [find.value for find in search(text.format(key))] == [key]
    assert search(key) == [] == search("aws_secret_access_key = ${AWS_SECRET_ACCESS_KEY}")
