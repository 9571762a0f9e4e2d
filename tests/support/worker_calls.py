"""Calls as a worker has them, for tests that care about a field or two of them."""

from hashlib import sha256
from typing import Any

from policy.session.effects import CallInfo
from policy.session.session import Session
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from streams.layout import Start
from tests.support.json_values import Json
from workers.policy.call.owned import OwnedCall

CALL = "01990000-0000-7000-8000-000000000000"


def call_info(call_id: str = "c", dialect: DialectName = "openai", **changes: Any) -> CallInfo:
    """What a session knows of a call of a client of this dialect at its usual endpoint."""
    fields: Json = {
        "at": 1,
        "endpoint": CLIENTS[dialect].answers,
        "key": "k",
        "session": "",
        "nonce": "n",
        "gateway": "g",
        "policy": "p",
        "revision": "r",
        "durable": False,
        "max_arguments_bytes": 1 << 20,
    }
    return CallInfo(call_id=call_id, dialect=dialect, **fields | changes)


def start_of(body: bytes, call_id: str = CALL, **changes: Any) -> Start:
    """What a gateway says at the start of a call with this body."""
    fields: Json = {
        "at": 1,
        "gateway": "g",
        "dialect": "openai",
        "endpoint": "chat",
        "key": "k",
        "policies": ("p",),
        "policy": "",
        "session": "",
        "nonce": "n",
        "deadline": 2,
        "key_id": "k",
        "policy_sets": (),
        "body_sha256": sha256(body).digest(),
    }
    return Start(call_id=call_id, **fields | changes)


def owned(start: Start, session: Session, **changes: Any) -> OwnedCall:
    """The call as its owner has it when it was claimed."""
    fields: Json = {"policy_header": "p@r", "released": 0, "digest": "", "recorded": 0}
    return OwnedCall(start, "t", "1-0", session, **fields | changes)
