"""Objects of JSON and their bytes."""

import json
from typing import Any

Json = dict[str, Any]
"""An object of JSON: of a request, an answer, a configuration, a record."""


def as_json(value: object) -> bytes:
    """The value as it is sent."""
    return json.dumps(value).encode()
