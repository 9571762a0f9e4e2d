"""A denied call, native in both first dialects."""

import json

from tests.support.json_values import Json

DANGER = "wipe-the-disk"
INPUT = {"command": DANGER}
CALL = json.dumps({"name": "bash", "arguments": INPUT})


def anthropic(*events: Json) -> list[bytes]:
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
