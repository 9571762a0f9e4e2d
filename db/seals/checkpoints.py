"""Checkpoints: the size and root of the tree of seals at one moment, as text to be kept elsewhere.

The text is a C2SP checkpoint (tlog-checkpoint): origin, size, root, then two lines of our own, the
time and the hash of the checkpoint before; signed as a C2SP signed note with Ed25519 where there is
a key. Must not know: SQL.
"""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

_SIGNED = "\u2014 "
_ALGORITHM = b"\x01"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint. `previous` is the hex SHA-256 of the whole text of the one before, 64 zeros
    for the first."""

    origin: str
    size: int
    root: bytes
    at: str
    previous: str

    @property
    def body(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n{self.at}\n{self.previous}\n"

    def text(self, key: Ed25519PrivateKey | None) -> str:
        """The whole text, signed where there is a key."""
        if key is None:
            return self.body + "\n"
        signature = _key_id(self.origin, key.public_key()) + key.sign(self.body.encode())
        return f"{self.body}\n{_SIGNED}{self.origin} {base64.b64encode(signature).decode()}\n"


def parse(text: str) -> Checkpoint:
    """Return the checkpoint of a text. Raises ValueError on anything else."""
    body, _, _ = text.partition("\n\n")
    lines = body.split("\n")
    if len(lines) != 5 or not lines[0] or not lines[1].isdecimal():
        raise ValueError("this is not a checkpoint of sluice")
    origin, size, root, at, previous = lines
    try:
        decoded = base64.b64decode(root, validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) != 32 or len(previous) != 64:
        raise ValueError("this is not a checkpoint of sluice")
    return Checkpoint(origin, int(size), decoded, at, previous)


def is_plain(text: str) -> bool:
    """Say whether a text is a checkpoint exactly as `Checkpoint.text` writes it, with one signature
    or none."""
    made = parse(text)
    _, _, signature = text.partition("\n\n")
    if not signature:
        return text == made.text(None)
    try:
        signature_bytes = base64.b64decode(
            signature.removesuffix("\n").rpartition(" ")[2], validate=True
        )
    except binascii.Error:
        return False
    # base64 may be spelled in other ways, and a second line of signature would be read by nobody
    return (
        text
        == f"{made.body}\n{_SIGNED}{made.origin} {base64.b64encode(signature_bytes).decode()}\n"
    )


def time_of(text: str) -> datetime:
    """Return when the checkpoint of a text was made. Raises ValueError."""
    return datetime.fromisoformat(parse(text).at)


def digest(text: str) -> str:
    """Return what the next checkpoint says of this one."""
    return sha256(text.encode()).hexdigest()


def is_signed_by(text: str, key: Ed25519PublicKey) -> bool:
    """Say whether one of the text's signatures is by this key."""
    body, gap, signatures = text.partition("\n\n")
    body += "\n"
    for line in signatures.splitlines() if gap else ():
        try:
            _, _, packed = line.removeprefix(_SIGNED).rpartition(" ")
            signature_bytes = base64.b64decode(packed, validate=True)
            if signature_bytes[:4] == _key_id(body.partition("\n")[0], key):
                key.verify(signature_bytes[4:], body.encode())
                return True
        except (binascii.Error, InvalidSignature):
            continue
    return False


def load_private_key(pem: str) -> Ed25519PrivateKey:
    """Return the key of a PEM text (`openssl genpkey -algorithm ed25519`), which may lack its first
    and last line so as to fit an environment file. Raises ValueError on another."""
    whole = (
        pem
        if pem.startswith("-----")
        else f"-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n"
    )
    try:
        key = load_pem_private_key(whole.encode(), None)
    except (ValueError, TypeError):
        raise ValueError("it is not a private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("it is not an Ed25519 key")
    return key


def load_public_key(pem: str) -> Ed25519PublicKey:
    """Return the key of a PEM text (`openssl pkey -pubout`). Raises ValueError on another."""
    try:
        key = load_pem_public_key(pem.encode())
    except ValueError:
        raise ValueError("it is not a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("it is not an Ed25519 key")
    return key


def public_pem(key: Ed25519PrivateKey) -> str:
    """Return what verifiers need of a key."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _key_id(name: str, key: Ed25519PublicKey) -> bytes:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return sha256(name.encode() + b"\n" + _ALGORITHM + raw).digest()[:4]
