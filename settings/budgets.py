"""What keys and teams may use, and what models cost. Pure."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from protocol.bounds import MAX_REQUESTS_MINUTE
from protocol.usage.prices import NANO, Rates, TokenPrices

MOST = 2**53 - 1
"""The largest limit, in tokens or nano-dollars: Redis' scripts count exactly up to it."""
RIGHT_TOKENS = f"is 1 to {MOST} whole tokens"
RIGHT_USD = f"is US dollars, as in 2.50: from 0.000000001 to {MOST // NANO}"


def _decimal(value: object) -> Decimal:
    try:
        # of a number its shortest text, not its binary digits
        number = Decimal(str(value)) if not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError("write a decimal number, as in 2.50")
    return number


def _usd(value: object) -> str:
    number = _decimal(value)
    if not 1 <= number * NANO <= MOST or number * NANO % 1:
        raise ValueError(f"it {RIGHT_USD}")
    return f"{number.normalize():f}"


def _rate(value: object) -> Decimal:
    number = _decimal(value)
    if not 0 <= number <= 10**6:
        raise ValueError("the price of a million tokens is 0 to 1000000 dollars")
    return number


Tokens = Annotated[int, Field(ge=1, le=MOST, strict=True)]
Requests = Annotated[int, Field(ge=1, le=MAX_REQUESTS_MINUTE)]
Usd = Annotated[str, BeforeValidator(_usd)]
Rate = Annotated[Decimal, BeforeValidator(_rate)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Strict):
    """What all keys of a team may use together (docs/run/budgets.md). Days and months are UTC's.
    Unset: as much as they like."""

    requests_minute: Requests | None = None
    """Requests that may begin within any 60 seconds."""
    tokens_minute: Tokens | None = None
    """Tokens in each minute of the clock."""
    tokens_day: Tokens | None = None
    """Tokens in a day."""
    tokens_month: Tokens | None = None
    """Tokens in a month."""
    usd_day: Usd | None = None
    """US dollars in a day, as in `2.50`."""
    usd_month: Usd | None = None
    """US dollars in a month."""


class ModelPrice(_Strict):
    """What a model costs, in place of what Sluice knows: US dollars for a million tokens."""

    input: Rate
    """Input that no cache holds."""
    output: Rate
    """Output, thinking too."""
    cache_read: Rate | None = None
    """Input read from a cache. Unset: as `input`."""
    cache_write: Rate | None = None
    """Input written to a cache. Unset: as `input`."""

    @property
    def price(self) -> TokenPrices:
        """The same as costs are computed with; fractions of a millionth of a dollar are rounded
        up."""
        read, write = (self.input if p is None else p for p in (self.cache_read, self.cache_write))
        return TokenPrices(
            Rates(*(-int(-p * 10**6 // 1) for p in (self.input, read, write, self.output)))
        )


WINDOWS = ("minute", "day", "month", "session")
LIMITS = {
    "tokens_minute": ("minute", False),
    "tokens_day": ("day", False),
    "tokens_month": ("month", False),
    "usd_day": ("day", True),
    "usd_month": ("month", True),
    "session_tokens": ("session", False),
    "session_usd": ("session", True),
}
"""The limits of what an answer takes, by name: in which window, and whether it is money."""


def limits_of(subject: BaseModel) -> dict[str, int]:
    """Return the limits of a key or a team that are set, by name: tokens, or nano-dollars."""
    found = {name: getattr(subject, name, None) for name in LIMITS}
    return {
        name: int(Decimal(value) * NANO) if LIMITS[name][1] else int(value)
        for name, value in found.items()
        if value is not None
    }
