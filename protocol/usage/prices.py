"""What models cost: the prices of `data/prices.json` (`scripts/prices.py`), which a configuration
can replace. Money is whole nano-dollars (billionths of a US dollar) everywhere.
"""

import functools
import importlib.resources
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from protocol.events import Usage
from protocol.request import ChatRequest

NANO = 10**9
"""Nano-dollars of a dollar."""
MAX_TOKENS = 10**9
"""What one answer is charged at most of each kind of tokens, whatever its upstream counts."""
UNBOUNDED_OUTPUT = 4096
"""What is reserved for an answer whose request sets no bound."""
_PER = 1000


class Rates(NamedTuple):
    """Prices of a million tokens, in millionths of a dollar."""

    plain: int
    """Input that no cache holds."""
    cache_read: int
    cache_write: int
    output: int


class TokenPrices(NamedTuple):
    """What a model costs; from so many input tokens on, those of the cache included, a tier's rates
    are those of the whole request."""

    base: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()

    def cost(self, usage: Usage) -> int:
        """Return the nano-dollars of an answer, rounded up; what was not counted costs nothing."""
        counted = [
            bounded(count)
            for count in (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.output_tokens,
            )
        ]
        rates = self.base
        if self.tiers:
            asked = sum(counted[:3])
            rates = next((its for start, its in reversed(self.tiers) if asked >= start), rates)
        return -(-sum(map(int.__mul__, counted, rates)) // _PER)

    @property
    def most(self) -> tuple[int, int]:
        """The highest rates of an input and of an output token."""
        all_rates = [self.base, *(rates for _, rates in self.tiers)]
        return max(max(r[:3]) for r in all_rates), max(r.output for r in all_rates)


def dollars(nano: int) -> str:
    """Return nano-dollars for people, as in `$0.0015`."""
    cents = f"{nano // NANO}.{nano % NANO:09d}".rstrip("0")
    whole, _, part = cents.partition(".")
    return f"${whole}.{part:0<2}"


def bounded(count: int | None) -> int:
    """Return a count of tokens as it is charged: upstreams may count below 0, or beyond sense."""
    return min(max(count or 0, 0), MAX_TOKENS)


def total(usage: Usage) -> int:
    """Return the tokens of an answer that a budget counts: all kinds. Thinking is output."""
    return (
        bounded(usage.input_tokens)
        + bounded(usage.cache_read_tokens)
        + bounded(usage.cache_write_tokens)
        + bounded(usage.output_tokens)
    )


def most_output(request: ChatRequest) -> int:
    """Return how many tokens an answer may have: dialects refuse requests for several choices."""
    return bounded(UNBOUNDED_OUTPUT if request.max_tokens is None else request.max_tokens)


class PriceTable:
    """The prices of one configuration. `own`: those that it names itself, by model."""

    def __init__(self, own: Mapping[str, TokenPrices]) -> None:
        self._own = own

    def of(self, model: str) -> TokenPrices | None:
        """Return what a model costs, None if nobody knows."""
        return self._own.get(model) or _shipped(model)


_Names = list[str | list[str]]
"""One of these must fit; of a list, all. The first character says how a name is compared."""
_MATCHES: Mapping[str, Callable[[str, str], object]] = {
    "=": str.__eq__,
    "^": str.startswith,
    "$": str.endswith,
    "*": str.__contains__,
    "~": lambda name, pattern: re.search(pattern, name),
}


@functools.cache
def _models() -> list[tuple[_Names, TokenPrices]]:
    path = importlib.resources.files("protocol").joinpath("data", "prices.json")
    rows = msgspec.json.decode(path.read_bytes())["models"]
    return [
        (
            names,
            TokenPrices(
                Rates(*base), tuple((start, Rates(*rates)) for start, rates in (more or [[]])[0])
            ),
        )
        for _, names, base, *more in rows
    ]


@functools.lru_cache(maxsize=512)
def _shipped(model: str) -> TokenPrices | None:
    name = model.lower()
    return next(
        (price for names, price in _models() if any(_fits(name, each) for each in names)),
        None,
    )


def _fits(name: str, wanted: str | list[str]) -> bool:
    if isinstance(wanted, list):
        return all(_fits(name, each) for each in wanted)
    return bool(_MATCHES[wanted[0]](name, wanted[1:]))
