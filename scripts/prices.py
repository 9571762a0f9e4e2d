"""Write protocol/data/prices.json from genai-prices (MIT), which is needed for this alone:
`pip install 'genai-prices==0.2.3' && python -m scripts.prices`. Nothing is fetched: the prices are
those of that release, the newest of each model that hold at any time of the day.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from genai_prices import __version__ as VERSION
from genai_prices import data, types

OUT = Path(__file__).parent.parent / "protocol" / "data" / "prices.json"
PROVIDERS = (
    "anthropic openai google aws azure mistral x-ai deepseek cohere groq cerebras moonshotai zai"
    " minimax meta perplexity together fireworks"
).split()
"""In the order in which a name is looked for: who makes a model comes before who resells it."""
KINDS = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")
CLAUSES = {
    "ClauseEquals": ("=", "equals"),
    "ClauseStartsWith": ("^", "starts_with"),
    "ClauseEndsWith": ("$", "ends_with"),
    "ClauseContains": ("*", "contains"),
    "ClauseRegex": ("~", "regex"),
}


def matches(clause: Any) -> list[list[str]]:
    """Return the names of a clause: lists of which one must fit, with all of its names; each has a
    mark of how it is compared."""
    if isinstance(clause, types.ClauseOr):
        return [names for each in clause.or_ for names in matches(each)]
    if isinstance(clause, types.ClauseAnd):
        ways = product(*map(matches, clause.and_))
        return [[name for names in way for name in names] for way in ways]
    mark, field = CLAUSES[type(clause).__name__]
    text = getattr(clause, field)
    return [[mark + (text if mark == "~" else text.lower())]]


def newest(prices: Any) -> Any:
    """Return the last of a model's prices that holds today, and not for some hours alone."""
    if not isinstance(prices, list):
        return prices
    kept = [
        p.prices
        for p in prices
        if not isinstance(p.constraint, types.TimeOfDateConstraint)
        and (p.constraint is None or p.constraint.active(datetime.now(UTC)))
    ]
    return kept[-1] if kept else None


def at(prices: Any, tokens: int) -> list[int] | None:
    """Return the four prices for a request of so many tokens, in millionths of a dollar for a
    million tokens; what has none costs as much as plain input."""
    found = []
    for kind in KINDS:
        price = getattr(prices, kind)
        if isinstance(price, types.TieredPrices):
            tiers = [tier.price for tier in price.tiers if tier.start <= tokens]
            price = tiers[-1] if tiers else price.base
        found.append(price)
    plain, out = found[0], found[3]
    if plain is None or out is None:
        return None
    return [
        int((Decimal(plain if price is None else price) * 10**6).to_integral_value("ROUND_CEILING"))
        for price in found
    ]


def starts(prices: Any) -> list[int]:
    """Return where tiers of any kind of tokens begin."""
    tiered = [getattr(prices, kind) for kind in KINDS]
    return sorted({t.start for p in tiered if isinstance(p, types.TieredPrices) for t in p.tiers})


def main() -> None:
    """Write the file."""
    providers = {provider.id: provider for provider in data.providers}
    lines = []
    for name in PROVIDERS:
        for model in providers[name].models:
            names, prices = (
                [names if len(names) > 1 else names[0] for names in matches(model.match)],
                newest(model.prices),
            )
            if prices is None or (base := at(prices, 0)) is None:
                continue
            tiers = [[start, at(prices, start)] for start in starts(prices)]
            lines.append(
                json.dumps([name, names, base, *([tiers] if tiers else [])], separators=(",", ":"))
            )
    head = {
        "source": f"genai-prices {VERSION}",
        "license": "MIT, Copyright (c) Pydantic Services Inc. 2025 to present",
    }
    body = ",\n".join(lines)
    OUT.write_text(f'{json.dumps(head)[:-1]}, "models": [\n{body}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
