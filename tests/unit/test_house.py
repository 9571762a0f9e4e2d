"""What two people can hold: how large the parts of the product may be, and that each of its classes
has a name that nothing else has.
"""

import ast
from collections import Counter, defaultdict
from functools import cache

from tests.support.repository import ROOT, tracked

MODULE_NODES = 3000
CLASS_ATTRIBUTES = 20
FOLDER_MODULES = 24
WIDE_LINES = 300
"""So many lines may have more than 100 columns: tables and texts."""
DIALECTS = {"anthropic", "converse", "gemini", "openai_chat", "responses"}
"""Folders in which classes have the same names, because they have the same tasks."""
OTHERS = {"alembic", "bench", "docs", "examples", "scripts", "tests"}


@cache
def sources() -> dict[str, str]:
    """The text of each module of the product, by its path."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in tracked() if path.suffix == ".py"}
    return {
        name: path.read_text() for name, path in paths.items() if not OTHERS & {name.split("/")[0]}
    }


@cache
def measured() -> tuple[dict[str, int], list[tuple[str, str, int]]]:
    """The syntax nodes of each module; every class: its module, its name, how many attributes."""
    sizes, classes = {}, []
    for name, text in sources().items():
        nodes = [*ast.walk(ast.parse(text))]
        sizes[name] = len(nodes)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                classes.append((name, node.name, len(attributes(node))))
    return sizes, classes


def attributes(node: ast.ClassDef) -> set[str]:
    """What a class assigns to itself."""
    return {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if isinstance(target.value, ast.Name) and target.value.id == "self"
    }


def test_no_module_is_too_large() -> None:
    sizes, _ = measured()
    assert {name: size for name, size in sizes.items() if size > MODULE_NODES} == {}


def test_no_class_has_too_many_attributes() -> None:
    assert [one for one in measured()[1] if one[2] > CLASS_ATTRIBUTES] == []


def test_no_folder_has_too_many_modules() -> None:
    sizes = Counter(name.rpartition("/")[0] for name in sources())
    assert {name: size for name, size in sizes.items() if size > FOLDER_MODULES} == {}


def test_a_public_class_has_its_name_alone() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for where, name, _ in measured()[1]:
        if not name.startswith("_") and not DIALECTS & set(where.split("/")):
            places[name].add(where)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_lines_have_a_hundred_columns_and_the_breaks_of_the_formatter() -> None:
    lines = [line for text in sources().values() for line in text.splitlines()]
    assert sum(len(line) > 100 for line in lines) <= WIDE_LINES
    assert not any("fmt: skip" in line or "fmt: off" in line for line in lines)
