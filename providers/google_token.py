"""Access tokens of Google for a service account: an assertion that its key signs (RS256) is
exchanged for one.

Where the assertion goes is fixed, whatever the key's file says: a file must not choose who gets it.
No other kind of credentials is taken.
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from protocol.errors import UpstreamTokenMissing
from providers import tokens
from providers.http1 import Pool
from providers.tokens import Token
from settings.upstreams import Upstream

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

TOKEN_URL = "https://oauth2.googleapis.com/token"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_KIND = "service_account"
_LIFE_S = 3600
_MOST_BYTES = 64 * 1024


class Account(msgspec.Struct, frozen=True):
    """A service account's key, as its file holds it."""

    type: str = ""
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""

    def __repr__(self) -> str:
        return "Account(...)"


def read_account(path: str, *, is_whole: bool = True) -> Account:
    """Return the account in a file. With `is_whole` its key is looked at too, which takes up to 0.3
    s. Raises OSError, and ValueError with a sentence that shows nothing of it."""
    with Path(path).open("rb") as file:
        text = file.read(_MOST_BYTES)
    try:
        account = msgspec.json.decode(text, type=Account)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError("is no key of a service account: it is not JSON of that form") from None
    if account.type != _KIND:
        kind = (
            f"the kind {account.type!r}"
            if account.type.isidentifier() and len(account.type) <= 40
            else "no kind"
        )
        raise ValueError(
            f"holds credentials of {kind}; what is taken is the key of a service account ({_KIND}),"
            " as JSON"
        )
    if not account.client_email or not account.private_key:
        raise ValueError("is no key of a service account: client_email or private_key is missing")
    if is_whole:
        _signer(account, is_checked=False)
    return account


def _signer(account: Account, *, is_checked: bool) -> "RSAPrivateKey":
    # loaded where it is used alone
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(
            account.private_key.encode(), None, unsafe_skip_rsa_key_validation=is_checked
        )
    except Exception:  # noqa: BLE001 - whatever the library says of a key may show some of it
        raise ValueError("holds a private_key that cannot be read") from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("holds a private_key that is none of RSA")
    return key


def assertion(account: Account, now: int) -> str:
    """Return the signed statement that is exchanged for a token; `now` is Unix seconds. Takes
    milliseconds. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    header = {"alg": "RS256", "typ": "JWT"} | (
        {"kid": account.private_key_id} if account.private_key_id else {}
    )
    claims = {
        "iss": account.client_email,
        "scope": _SCOPE,
        "aud": TOKEN_URL,
        "iat": now,
        "exp": now + _LIFE_S,
    }
    text = b".".join(_url64(msgspec.json.encode(part)) for part in (header, claims))
    return (
        text + b"." + _url64(_signer(account, is_checked=True).sign(text, PKCS1v15(), SHA256()))
    ).decode()


def _url64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


async def ask(pool: Pool, path: str, upstream: Upstream) -> Token:
    """Get a token for the account in a file, which is read each time, by the upstream's proxy.
    Raises UpstreamTokenMissing."""

    def signed() -> str:
        return assertion(read_account(path, is_whole=False), int(time.time()))

    try:
        # a thread: the file may lie far away, and the signature takes milliseconds
        text = await asyncio.to_thread(signed)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UpstreamTokenMissing(f"no access token can be asked for: {path} {reason}") from None
    form = {"grant_type": _GRANT, "assertion": text}
    return await tokens.exchange(pool, TOKEN_URL, form, upstream)
