"""Values of one kind among others."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def of_kind(values: Iterable[object], kind: type[T]) -> list[T]:
    """Those that are of this class, in their order."""
    return [value for value in values if isinstance(value, kind)]
