"""The shell parser beside tree-sitter's grammar of bash, and where the two differ about errors
beside bash itself.

Compared are the commands as they are written, before variables, wrappers and programs within
programs are resolved. The texts are own ones (`fixtures/control/shell_texts.jsonl`) and, where they
are at hand, public collections of commands.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.checks.shell_opinions import ours, theirs

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests/fixtures/control/shell_texts.jsonl"
CORPORA = ROOT.parent / "shared/corpora"
MAX_TEXT = 4_000
"""Longer ones are left out: nothing bounds what tree-sitter does with a text."""
DISAGREE = {"nl2bash": 0.01, "tldr": 0.002, "dcg": 0.005}
"""The part of the texts without an error in which the two may find other commands."""

THEIRS: dict[str, str] = {
    r"\\[ \t]": "an escaped blank that begins a word is lost",
    r"`.*`": (
        "a word breaks at a backtick; two programs between backticks in one string are one; one"
        " within another is text"
    ),
    r"\$\$|\$(?![\w({'\"*@#?!\[-])": (
        "`$$` at the end of a word is text; a `$` alone breaks words, or takes the next one"
    ),
    r"\$\w+[-/]\$\w+": (
        "a variable behind a variable and a sign, in a command with a redirect, loses its `$`"
    ),
    r"\{ ?\}'?\\;|\}\\\(": "a word ends behind `{}`, whatever follows; `{ }` is one word",
    r"-\d+[<>]": "the digits at the end of a word are the number of the redirect behind it",
    r"unset \w+\[": "the element that `unset` takes is two words",
    r"^\[[^\s\[]": "a word that begins with `[` is the command `[`",
    r"^coproc": "`coproc` is a command, not a sign",
    r"\w\\\n\w": "a word ends where its line is continued",
    r"\{\w+\}>": "the variable that a redirect sets is a word",
    r"(?:time|!) \{": "`{` behind `time` or `!` is a command",
    r" - <<": "the argument `-` before a heredoc is lost",
    r"\n <<?|\n \w+\n": "a last line with a blank before it ends a heredoc",
    r"\{\n[^}]*<<\w+\n[^}]*\$": "a variable in a heredoc within a function is text",
}
"""Kinds of disagreement in which tree-sitter is wrong, by what is in the text; each was looked at,
and bash tried."""

WRAPS = {
    "group": "{{\n{}\n}}",
    "subshell": "(\n{}\n)",
    "if": "if x\nthen\n{}\nelse\ny\nfi",
    "loop": "while x; do\n{}\ndone <y",
    "case": "case x in\ny)\n{}\n;;\nesac",
    "function": "f() {{\n{}\n}}",
    "substitution": "x=$(\n{}\n)",
    "quoted substitution": 'echo "a $(\n{}\n) b"',
    "process": "cat <(\n{}\n)",
    "pipe": "x | {{\n{}\n}} | y",
    "behind a comment": "# it's `$(x\n{}",
    "behind a heredoc": "cat <<'E'\n$(x `y\nE\n{}",
    "before others": "{}\nx 'y' <<E\nz\nE\n",
}


def texts_of(path: Path) -> list[str]:
    texts = dict.fromkeys(json.loads(line)["text"] for line in path.read_text("utf-8").splitlines())
    return [text for text in texts if len(text) <= MAX_TEXT]


def is_theirs(text: str) -> bool:
    return any(re.search(pattern, text) for pattern in THEIRS)


def bash_reads(text: str) -> bool:
    """Tell whether bash can read the text: it runs nothing of it."""
    command = [shutil.which("bash") or "bash", "--norc", "-n", "-O", "extglob"]
    return (
        subprocess.run(
            command, input=text.encode(), capture_output=True, env={}, timeout=10, check=False
        ).returncode
        == 0
    )


def compare(texts: Iterable[str]) -> tuple[int, list[str], list[str], list[str]]:
    """Return how many texts both read without an error, and of which they differ; those that one
    reads, ours first."""
    both, differ, by_us, by_them = 0, [], [], []
    for text in texts:
        found, is_sure = ours(text)
        others, is_whole = theirs(text)
        if is_sure and is_whole:
            both += 1
            if found != others:
                differ.append(text)
        elif is_sure:
            by_us.append(text)
        elif is_whole:
            by_them.append(text)
    return both, differ, by_us, by_them


def report(
    name: str, texts: list[str], compared: tuple[int, list[str], list[str], list[str]]
) -> None:
    both, differ, by_us, by_them = compared
    print(
        f"\n{name}: {len(texts)} texts, {both} read by both, of which {len(differ)}"
        f" ({len(differ) / both:.2%}) have other commands;",
        end=" ",
    )
    print(f"{len(by_us)} read by us alone, {len(by_them)} by tree-sitter alone")


def check_errors(by_us: list[str], by_them: list[str]) -> None:
    """What one of the two alone can read is what bash can read, or not."""
    if shutil.which("bash") is None:
        return
    assert [text for text in by_us if not bash_reads(text)] == []
    assert [text for text in by_them if bash_reads(text)] == []


def test_own_texts_have_the_commands_that_tree_sitter_finds() -> None:
    texts = texts_of(OWN)
    both, differ, by_us, by_them = compare(texts)
    report("own", texts, (both, differ, by_us, by_them))
    assert len(texts) >= 150 and both >= 190
    assert [text for text in differ if not is_theirs(text)] == []
    assert len(differ) <= 25
    check_errors(by_us, by_them)


@pytest.mark.parametrize("name", DISAGREE)
def test_collections_have_the_commands_that_tree_sitter_finds(name: str) -> None:
    path = CORPORA / f"{name}.jsonl"
    if not path.exists():
        if os.environ.get("CI"):
            pytest.fail(f"../shared/corpora/{path.name} is missing")
        pytest.skip(f"../shared/corpora/{path.name} is missing")
    texts = texts_of(path)
    both, differ, by_us, by_them = compare(texts)
    report(name, texts, (both, differ, by_us, by_them))
    assert [text for text in differ if not is_theirs(text)] == []
    assert len(differ) / both <= DISAGREE[name]
    check_errors(by_us, by_them)


@pytest.mark.parametrize("name", WRAPS)
def test_a_text_has_the_same_commands_within_another(name: str) -> None:
    outer, is_sure = ours(WRAPS[name].format(":"))
    assert is_sure
    outer[("run", ":")] -= 1
    missed = {}
    for text in texts_of(OWN):
        found, is_sure = ours(text)
        if not is_sure:
            continue
        within, is_sure = ours(WRAPS[name].format(text))
        if not is_sure or within != outer + found:
            missed[text] = (is_sure, within - outer - found, outer + found - within)
    assert missed == {}


def test_each_kind_of_disagreement_is_still_one() -> None:
    """A kind that no own text shows is one that nobody can check."""
    _, differ, _, _ = compare(texts_of(OWN))
    unseen = [pattern for pattern in THEIRS if not any(re.search(pattern, text) for text in differ)]
    assert unseen == []
