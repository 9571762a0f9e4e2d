"""GET /v1/models and /v1/models/{id}: what may be asked for, in the shapes of both vendors at
once.

Neither SDK minds the other's fields. A list names only what the configuration names: patterns are
no models, and no upstream is asked.
"""

from typing import Any

import msgspec

from protocol.bounds import MAX_MODEL_CHARS
from protocol.errors import NotFound
from settings.config import Config

MODELS = "/v1/models"


def models(config: Config, path: str) -> bytes:
    """Return the body for `path`: the list, or one model, which may also be one that a pattern
    takes. Raises NotFound."""
    if path == MODELS:
        return msgspec.json.encode(_list(config))
    name = path.removeprefix(f"{MODELS}/")
    if not 0 < len(name) <= MAX_MODEL_CHARS or config.route(name) is None:
        raise NotFound(config.unknown_model(name), code="model_not_found", param="model")
    return msgspec.json.encode(_model(config, name))


def _list(config: Config) -> dict[str, Any]:
    data = [_model(config, name) for name in config.listed_models]
    ends = (
        {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
        if data
        else {"first_id": None, "last_id": None}
    )
    return {"object": "list", "data": data, "has_more": False, **ends}


def _model(config: Config, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": config.route(name) or "",
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }
