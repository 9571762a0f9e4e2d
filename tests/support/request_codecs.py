"""Requests read as a client's dialect reads them, and written as they go upstream."""

import json

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.request import ChatRequest, DialectName
from protocol.target import Target, Translated
from tests.support.json_values import Json


def read_request(client: DialectName, body: Json) -> ChatRequest:
    """The request that a client of this dialect sent with this body."""
    return CLIENTS[client].decode_request(json.dumps(body).encode())


def written_body(request: ChatRequest, target: Target, *, changed: bool = True) -> Json:
    """The body that is sent for it."""
    return sent_body(codecs.encode_request(request, target, changed=changed))


def sent_body(translated: Translated) -> Json:
    """The body that is sent, which must not be the client's own."""
    body: Json = json.loads(translated.body or b"")
    return body
