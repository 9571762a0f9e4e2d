"""docs/run/configuration.md and docs/run/policy-options.md have every key that the configuration takes,
and links between pages lead somewhere."""

import importlib
import itertools
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from policy.loading import BUILT_IN
from scripts.configuration import OPTIONS_PAGE, PAGE, SECTIONS, keys, options_page, page
from scripts.pages import DOCS
from settings.config import Config
from settings.limits import Limits

README = DOCS.parent / "README.md"
_ANCHOR = re.compile(r"[^a-z0-9_ -]")


def sections(page: Path) -> dict[str, list[str]]:
    """The keys of each table on a page, by its heading."""
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        part.partition("\n")[0]: re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in parts
    }


def test_the_pages_are_what_the_models_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
    assert OPTIONS_PAGE.read_text(encoding="utf-8") == options_page()


def test_every_key_of_the_file_is_there() -> None:
    found = sections(PAGE)
    assert found["Top level"] == list(Config.model_fields)
    assert found["limits"] == list(Limits.model_fields)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_of_a_built_in_policy_is_there(name: str) -> None:
    module, _, policy = BUILT_IN[name].partition(":")
    options = getattr(importlib.import_module(module), f"{policy}Options", None)
    found = sections(OPTIONS_PAGE)
    if options is None:
        assert name not in found and f"`{name}`" in PAGE.read_text(encoding="utf-8")
        return
    others = [found[SECTIONS[kind]] for kind in options.__bases__ if kind in SECTIONS]
    assert {*found[name], *itertools.chain(*others)} == set(options.model_fields)


class Bare(BaseModel):
    said: int = 0
    """It is said what this is."""
    bare: int = 0


def test_a_key_without_a_docstring_is_named() -> None:
    with pytest.raises(ValueError, match=r"Bare\.bare has no docstring"):
        list(keys(Bare))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {_ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "source",
    [README, *sorted(p for p in DOCS.rglob("*.md") if p.parent.name != "data")],
    ids=lambda path: str(path.name),
)
def test_links_between_pages_lead_somewhere(source: Path) -> None:
    broken = []
    for target, anchor in re.findall(
        r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", source.read_text(encoding="utf-8")
    ):
        place = (source.parent / target).resolve() if target else source
        if not place.exists() or (
            anchor and place.suffix == ".md" and anchor not in anchors(place)
        ):
            broken.append(f"{target}#{anchor}")
    assert broken == []
