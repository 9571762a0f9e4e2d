"""Reads the configuration file: YAML to the values of `settings.config`, or every mistake in it
with its place and line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from settings.config import Config
from settings.config_faults import Place, faults_between
from sluice.config_mistakes import Finding, Mistakes, findings, locate
from sluice.errors import SettingsError

SECTIONS = "upstreams, models, policies, limits, keys, pages, login, approvals"


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration file as it was read: `raw` is its content, `config` the parsed form, None
    where it has mistakes."""

    file: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    root: yaml.Node | None = None
    config: Config | None = None
    mistakes: tuple[Finding, ...] = ()

    def line(self, place: Place) -> int:
        """The line at which a place begins, or what is there of it; 0 where nothing is."""
        known, line = locate(self.root, place)
        return line if known else 0


class _Loader(yaml.SafeLoader):
    """safe_load, except that a key given twice is an error: of two rules under one name, the first
    would silently not hold."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.tag == "tag:yaml.org,2002:bool":
                # `on` is true to YAML 1.1, and to people a word
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a name, not a list or a mapping", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_YAML_WORDS = {
    "found character '\\t' that cannot start any token": (
        "a tab stands here, and YAML indents with blanks"
    ),
    "mapping values are not allowed here": (
        "a second `: ` in one line, or a line that is indented too far (quote text that has a `: `)"
    ),
    "but found another document": (
        "a second document begins here (`---`), and a configuration is one"
    ),
}
_OPENED = {
    "while parsing a flow sequence": "list that begins with `[`",
    "while parsing a flow mapping": "mapping that begins with `{`",
    "while scanning a quoted scalar": "text that begins with a quote",
}


def _yaml_words(error: yaml.MarkedYAMLError) -> str:
    """What the parser found, in the words of somebody who writes YAML, and what it belongs to."""
    message = _YAML_WORDS.get(str(error.problem), str(error.problem)).replace(
        "'<stream end>'", "the end of the file"
    )
    message = message.replace("found unexpected end of stream", "the file ends here").replace(
        "expected the node content", "expected a value"
    )
    if (opened := _OPENED.get(str(error.context))) and error.context_mark:
        message += f" (in the {opened} in line {error.context_mark.line + 1})"
    return message


def load_config(path: Path | None) -> Config:
    """Read and check the configuration file; no file is the shipped configuration. Raises
    SettingsError with every mistake."""
    return Config() if path is None else _valid(read(path))


def parse_config(text: str, place: str) -> Config:
    """Parse a configuration; `place` is named in errors. Raises SettingsError with every
    mistake."""
    return _valid(parse(text, place))


def _valid(document: Document) -> Config:
    if document.config is None:
        raise Mistakes(document.file, document.mistakes)
    return document.config


def read(path: Path) -> Document:
    """Read a file. Raises SettingsError where it cannot be read; what is wrong in it is among
    `mistakes`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SettingsError(f"the configuration file {path} cannot be read: {reason}") from None
    return parse(text, str(path))


def parse(text: str, file: str) -> Document:
    """Like `read`, of a text."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        odd = f"holds a character that YAML does not allow (U+{error.character:04X})"
        return Document(
            file, mistakes=(Finding("error", (), odd, text[: error.position].count("\n") + 1),)
        )
    try:
        root = loader.get_single_node()
        raw = {} if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        return Document(file, mistakes=(Finding("error", (), _yaml_words(error), line),))
    except (yaml.YAMLError, RecursionError):
        return Document(file, mistakes=(Finding("error", (), "it is not YAML"),))
    finally:
        loader.dispose()
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        return Document(
            file, mistakes=(Finding("error", (), f"the file must be a mapping ({SECTIONS})"),)
        )
    try:
        return Document(file, raw, root, Config.model_validate(raw))
    except ValidationError as error:
        mistakes = findings(error, Config, root)
    # pydantic looks at what is between the parts only where each by itself is right
    places = {finding.place for finding in mistakes}
    for place, text_ in faults_between(raw):
        if place not in places:
            mistakes.append(Finding("error", place, text_, locate(root, place)[1]))
    return Document(
        file, raw, root, None, tuple(sorted(mistakes, key=lambda finding: finding.line))
    )
