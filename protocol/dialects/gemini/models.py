"""What models behind generateContent take, as data: `data/gemini_models.json`."""

from typing import Literal

from protocol.dialects.models import BaseModelRow, ModelTable
from protocol.requests.neutral import Effort


class ModelRow(BaseModelRow, frozen=True, forbid_unknown_fields=True):
    """One row."""

    thinking: Literal["level", "budget", "none"]
    """How much the model thinks: by a word, by a number of tokens, or it does not."""
    levels: tuple[Effort, ...] = ()
    least: int = 0
    most: int = 0
    """The smallest and the largest number of tokens."""
    off: bool = False
    """May thinking be switched off?"""
    system: bool = True
    """Does it take instructions apart from the conversation?"""
    json_schema: bool = True
    """Does it take JSON Schema (parametersJsonSchema, responseJsonSchema)? Others take the older
    subset of OpenAPI."""
    signed: bool = False
    """Does it refuse calls of the current turn without the signature of their thoughts?"""
    mixed: bool = False
    """Does it take functions together with the provider's own tools, and with a form of the
    answer?"""
    result_media: bool = False
    """Does it take images inside the result of a call?"""


MODELS = ModelTable("gemini_models", ModelRow, lambda model: model.rpartition("/")[2])
