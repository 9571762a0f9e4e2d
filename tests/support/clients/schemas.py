"""Schemas that unfold."""

from tests.support.json_values import Json

Schema = Json


def doubled(levels: int) -> Schema:
    """2^levels steps in 60 bytes a level."""
    definitions: Schema = {
        f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": definitions | {f"a{levels}": {"type": "object"}}}
