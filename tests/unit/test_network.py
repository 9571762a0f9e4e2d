"""Which kind of host an address names, however it is spelled."""

import pytest

from policy.effects.network import MAX_URLS, host_of, host_scope, hosts_in
from tests.support.cpu import cpu_within


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("http://169.254.169.254/latest", "metadata"),
        ("http://2852039166/", "metadata"),
        ("http://0xA9FEA9FE/", "metadata"),
        ("http://0251.0376.0251.0376/", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "metadata"),
        ("http://[::ffff:a9fe:a9fe]/", "metadata"),
        ("http://x@169.254.169.254/", "metadata"),
        ("http://169.254.169.254.nip.io/", "metadata"),
        ("http://a9fea9fe.nip.io", "metadata"),
        ("http://metadata.google.internal./x", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("http://169。254。169。254/", "metadata"),
        ("http://0251.254.169.254/", "metadata"),
        ("http://[::ffff:0:a9fe:a9fe]/", "metadata"),
        ("http://169.254.169.254%2flatest", "metadata"),
        ("http://010.20.30.40/", "private"),
        ("http://%31%36%39.254.169.254/", "metadata"),
        ("http://example.com%2f@169.254.169.254", "metadata"),
        ("[fd00:ec2::254]:80", "metadata"),
        ("http://localhost:8080/metadata/version", "loopback"),
        ("127.1", "loopback"),
        ("http://0/", "loopback"),
        ("[::1]:80", "loopback"),
        ("::1", "loopback"),
        ("app.localhost", "loopback"),
        ("http://LOCALHOST./", "loopback"),
        ("app.lvh.me", "loopback"),
        ("host.docker.internal", "loopback"),
        ("user@10.0.0.3", "private"),
        ("192.168.1.4:22", "private"),
        ("dev-box:/srv", "private"),
        ("db.internal", "private"),
        ("[fe80::1%eth0]", "private"),
        ("fd12::1", "private"),
        ("https://registry.npmjs.org/left-pad", "listed"),
        ("git@github.com:a/b", "listed"),
        ("https://github.com.evil.example/", "other"),
        ("203.0.113.5", "other"),
        ("drop@203.0.113.8", "other"),
        ("https://user:pw@evil.example:8443/x?y", "other"),
        ("http://crates.io@evil.example/", "other"),
        ("http://evil.example\\@localhost/", "other"),
        ("http://ｅvil.example/", "other"),
        ("", "unknown"),
        ("http://", "unknown"),
        ("a!c.example", "unknown"),
        ("$HOST", "unknown"),
        ("2001:db8::1", "other"),
    ],
)
def test_a_host_is_what_a_program_would_reach(text: str, scope: str) -> None:
    assert host_scope(text) == scope


def test_listed_hosts_are_named_whole_or_by_their_end() -> None:
    assert host_scope("https://api.corp.example/x", ("*.corp.example",)) == "listed"
    assert host_scope("corp.example", ("*.corp.example",)) == "other"
    assert host_scope("https://crates.io", ()) == "other"
    assert host_scope("ssh://203.0.113.9:22", ("203.0.113.0/24", "no/network")) == "listed"
    assert host_scope("169.254.169.254", ("169.254.0.0/16",)) == "metadata"
    assert host_of("ssh://git@GitHub.com:22/a") == "github.com"


def test_urls_are_found_in_text() -> None:
    found = hosts_in(
        "see https://a.example/x?y=1, //cdn.example.com/x, http:\\\\169.254.169.254\\x,"
        " file:///etc/passwd and 1//2"
    )
    assert [(host.host, host.scope, host.has_data) for host in found] == [
        ("a.example", "other", True),
        ("cdn.example.com", "other", False),
        ("169.254.169.254", "metadata", False),
    ]
    assert len(hosts_in("http://a.example " * 1000)) == MAX_URLS


def test_no_text_takes_long() -> None:
    with cpu_within(0.5):
        for text in (
            "http://" * 10_000,
            "a" * 65_536,
            "a.b-" * 16_000,
            "//a" * 20_000,
            "http://" + "a." * 30_000,
            "1." * 30_000,
            "@:" * 30_000,
        ):
            hosts_in(text)
            host_scope(text)
