"""docs/use/tools.md says what is: every family, and configurations that are read."""

import re
from pathlib import Path

import pytest

from protocol.server_tools.data import open_families, table
from settings.config import Config
from sluice.settings import parse_config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "use" / "tools.md").read_text(encoding="utf-8")


def test_every_family_is_explained_and_none_that_is_not_there() -> None:
    section = PAGE.split("## Server tools are off")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(table().families)
    assert [
        name
        for name in open_families()
        if f"| `{name}` | " in section and "every key has it" in section
    ] == ["context_management"]


@pytest.mark.parametrize(
    "text", re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
def test_every_configuration_on_the_page_is_read(text: str) -> None:
    assert (
        parse_config(text.replace('sha256: "..."', f'sha256: "{"0" * 64}"'), "tools.md") != Config()
    )


@pytest.mark.parametrize("page", ["run/policies.md", "run/operations.md", "../README.md"])
def test_other_pages_lead_there(page: str) -> None:
    assert "tools.md)" in (DOCS / page).read_text(encoding="utf-8")
