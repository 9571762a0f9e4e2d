"""Names for types that many tests write."""

from typing import Any

Json = dict[str, Any]
"""An object of JSON: of a request, an answer, a configuration, a record."""
