"""A provider of OpenID Connect whose tokens a test may change before, or as, they are signed.

It keeps to the rules for codes: each is good once, for the verifier of whoever asked.
"""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jwk, jwt

from tests.support.json_values import Json

CLIENT, SECRET = "sluice", "a secret: of the client"


class LyingProvider:
    """Listens from the first to the last; `change` and `sign` make the next tokens."""

    def __init__(self) -> None:
        self.key: jwk.Key = jwk.generate_key("RSA", 2048, {"kid": "first", "use": "sig"})
        self.published: list[Any] = [self.key.as_dict(private=False)]
        self.discovery = dict[str, Any]()
        """What its discovery document says instead."""
        self.userinfo = dict[str, Any]()
        self.bodies = dict[str, tuple[int, bytes]]()
        """Other answers, by path."""
        self.asked = list[str]()
        self.codes = dict[str, Json]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self.behave()

    def behave(self) -> None:
        """Lie no more."""
        self.change: Callable[[Json], Json] = lambda claims: claims
        self.sign: Callable[[Json], str] = self.signed
        self.discovery, self.userinfo, self.bodies = {}, {}, {}

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def signed(self, claims: Json, key: jwk.Key | None = None, alg: str = "RS256") -> str:
        """A token with a signature, by default a right one."""
        key = key or self.key
        return jwt.encode({"alg": alg, "kid": key.kid or "first"}, claims, key, algorithms=[alg])

    def code(self, asked: dict[str, str], subject: str = "ann") -> str:
        """A code for whoever asked so."""
        code = uuid.uuid4().hex
        self.codes[code] = {**asked, "sub": subject}
        return code

    def claims(self, subject: str, **more: Any) -> Json:
        """Claims of a token that is right."""
        now = int(time.time())
        return {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": subject,
            "iat": now,
            "exp": now + 300,
        } | more

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, Json]:
        """The answer of the token endpoint."""
        client = base64.b64encode(b"sluice:a+secret%3A+of+the+client").decode()
        assert authorization == f"Basic {client}" and form["grant_type"] == "authorization_code"
        asked = self.codes.pop(form["code"], None)
        hashed = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = _part(hashed)
        if asked is None or (challenge, form["redirect_uri"]) != (
            asked["code_challenge"],
            asked["redirect_uri"],
        ):
            return 400, {"error": "invalid_grant"}
        subject = asked["sub"]
        about = {"name": f"The person {subject}", "groups": ["readers"], "sid": f"sid-{subject}"}
        claims = self.change(self.claims(subject, nonce=asked["nonce"], **about))
        return 200, {"id_token": self.sign(claims), "access_token": "t", "token_type": "Bearer"}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """The answer to a request."""
        self.asked.append(path)
        if path in self.bodies:
            return self.bodies[path]
        status, value = 404, Json()
        if path == "/.well-known/openid-configuration":
            names = {"token": "token_endpoint", "authorize": "authorization_endpoint"}
            names |= {"jwks": "jwks_uri", "me": "userinfo_endpoint"}
            places = {name: f"{self.issuer}/{place}" for place, name in names.items()}
            status, value = 200, {"issuer": self.issuer, **places, **self.discovery}
        elif path == "/jwks":
            status, value = 200, {"keys": self.published}
        elif path == "/token":
            status, value = self.token(form, authorization)
        elif path == "/me":
            assert authorization == "Bearer t"
            status, value = 200, self.userinfo
        return status, json.dumps(value).encode()


def forged(claims: Json, alg: str, secret: bytes = b"") -> str:
    """A token as no library makes it: with no signature, or one with a secret."""
    head = {"alg": alg, "kid": "first"}
    text = ".".join(_part(json.dumps(part).encode()) for part in (head, claims))
    signature = hmac.digest(secret, text.encode(), "sha256") if secret else b""
    return f"{text}.{_part(signature)}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _handler(provider: LyingProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            status, body = provider.answer(path, form, self.headers.get("authorization", ""))
            self.send_response(status)
            if status == 302:
                self.send_header("location", body.decode())
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
