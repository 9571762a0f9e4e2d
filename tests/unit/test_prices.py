"""What answers cost, by the prices that ship and by those of a configuration."""

import pytest
from pydantic import ValidationError

from protocol.events import Usage
from protocol.usage.prices import MAX_TOKENS, PriceTable, Rates, TokenPrices, dollars, total
from settings.budgets import MOST, Budget

TABLE = PriceTable({"mine": TokenPrices(Rates(1, 1, 1, 1))})


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("gpt-4o", Usage(1_000, 100), 3_500_000),
        ("gpt-4o-2024-08-06", Usage(500, 100, cache_read_tokens=500), 2_875_000),
        ("claude-sonnet-4-5", Usage(10, 10, cache_write_tokens=100), 555_000),
        # a tier's rates are those of the whole request
        ("claude-sonnet-4-5", Usage(150_000, 1, cache_read_tokens=50_000), 930_022_500),
        ("claude-sonnet-4-5", Usage(149_999, 1, cache_read_tokens=50_000), 465_012_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Usage(1, 0), 3_000),
        ("gemini-2.5-pro", Usage(1, 1), 11_250),
        # fractions of a nano-dollar are rounded up
        ("mine", Usage(1, 0), 1),
    ],
)
def test_answers_cost_what_providers_say(model: str, usage: Usage, cost: int) -> None:
    price = TABLE.of(model)
    assert price is not None and price.cost(usage) == cost


def test_nobody_knows_what_other_models_cost() -> None:
    assert TABLE.of("demo") is None and TABLE.of("my-gpt-4o") is None


def test_usage_beyond_sense_is_bounded() -> None:
    price = TABLE.of("gpt-4o")
    assert price is not None
    for strange in (Usage(-5, -(2**60)), Usage()):
        assert price.cost(strange) == total(strange) == 0
    assert total(Usage(2**60, 2**70)) == 2 * MAX_TOKENS
    assert price.cost(Usage(2**60, 2**60)) < 2**53


def test_people_read_dollars() -> None:
    assert [dollars(n) for n in (0, 1, 1_500_000, 2_500_000_000)] == [
        "$0.00",
        "$0.000000001",
        "$0.0015",
        "$2.50",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens_day", 0),
        ("tokens_day", MOST + 1),
        ("tokens_day", 1.5),
        ("usd_day", "-1"),
        ("usd_day", "nan"),
        ("usd_day", "1e30"),
        ("usd_day", "0.0000000001"),
        ("requests_minute", 0),
    ],
)
def test_budgets_that_cannot_be(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Budget.model_validate({name: value})
