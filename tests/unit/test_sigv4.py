"""Signatures of AWS against those of botocore, on random requests."""

import random
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from providers.sigv4 import AwsKey, Scope, signed

AT = datetime(2026, 11, 28, 4, 31, tzinfo=UTC)
LETTERS = "abcXYZ019-._~:/@ +%&=?#[]'\"äß"
BODIES = (b"", b"{}", b'{"a": "\xc3\xa4"}', bytes(range(256)))


def drawn(random_: random.Random, most: int = 12) -> str:
    return "".join(random_.choices(LETTERS, k=random_.randint(1, most)))


def test_a_thousand_requests_are_signed_as_botocore_signs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_args, **_kwargs: AT)
    seed = random.randrange(10**9)
    print("seed", seed)
    random_ = random.Random(seed)
    for _ in range(1000):
        key = AwsKey(
            drawn(random_), drawn(random_, 40), random_.choice(("", quote(drawn(random_, 300))))
        )
        scope = Scope(
            random_.choice(("eu-central-1", "us-gov-west-1")),
            random_.choice(("bedrock", "bedrock-mantle")),
        )
        path = (
            "/"
            + "/".join(quote(drawn(random_), safe="") for _ in range(random_.randint(1, 4)))
            + random_.choice(("", "", "/"))
        )
        query = "&".join(
            f"{quote(drawn(random_), safe='')}={quote(drawn(random_), safe='')}"
            for _ in range(random_.randint(0, 3))
        )
        host = random_.choice(("h.example.com", "127.0.0.1:8080"))
        headers = {
            "content-type": random_.choice(("application/json", "text/plain;  charset=utf-8"))
        }
        target, body = f"{path}?{query}" if query else path, random_.choice(BODIES)
        ours = signed(
            key,
            scope,
            at=AT.strftime("%Y%m%dT%H%M%SZ"),
            host=host,
            target=target,
            headers=headers,
            body=body,
        )
        # the header with the body's digest is signed as one that botocore finds
        request = AWSRequest("POST", f"http://{host}{target}", headers=headers, data=body)
        request.headers["x-amz-content-sha256"] = ours["x-amz-content-sha256"]
        auth.SigV4Auth(
            Credentials(key.id, key.secret, key.token or None), scope.service, scope.region
        ).add_auth(request)
        assert ours["authorization"] == request.headers["Authorization"], (seed, target)
        assert (
            ours["x-amz-date"] == request.headers["X-Amz-Date"]
            and ours.get("x-amz-security-token", "") == key.token
        )


def test_a_key_shows_nothing_of_itself() -> None:
    assert repr(AwsKey("id-of-it", "its-secret", "its-token")) == "AwsKey(...)"
