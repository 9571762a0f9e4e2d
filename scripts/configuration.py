"""Write docs/run/configuration.md and docs/run/policy-options.md from the models of the configuration
and their docstrings; with `--check`, say whether they are up to date."""

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from policy import preset_files
from policy.builtin import control_options as control
from policy.builtin import (
    redact,
    rule_options,
    session_options,
    text_judge,
    text_replace,
    tool_judge,
)
from policy.judging import panel
from policy.loading import BUILT_IN
from policy.monitors import effect_monitor
from policy.monitors import model as model_monitor
from policy.monitors import secrets as secrets_monitor
from policy.monitors import sql as sql_monitor
from policy.patterns import NamePattern, Pattern, Re2
from protocol.debug import Debug
from protocol.dialects.table import DIALECTS
from scripts.pages import DOCS, table, write_or_check
from settings.approvals import Approvals, Notified
from settings.budgets import Budget, ModelPrice, Rate, Usd
from settings.config import (
    Beta,
    Config,
    Key,
    ModelName,
    ModelRoute,
    Name,
    PolicySet,
    PolicyStep,
    Price,
    Unmodelled,
)
from settings.limits import Limits
from settings.login import Claim, LoginSettings, Oidc
from settings.pages import Pages
from settings.retention import Retention
from settings.routes import Retry, Routed, RouteTarget
from settings.upstreams import HeaderName, KnownDialect, Part, Upstream

PAGE, OPTIONS_PAGE = DOCS / "run" / "configuration.md", DOCS / "run" / "policy-options.md"
_HEAD = """# Configuration

Every key of the configuration file; those of policies are on a [page of their own](policy-options.md). `python -m scripts.configuration`
writes both pages from the models that read the file. `deploy/sluice.yaml` is an example with comments. Pass a file with `--config` or
`SLUICE_CONFIG`. Other settings, such as the addresses of Redis and PostgreSQL, are the environment variables in `.env.example`.

With unknown keys, unknown names or values out of range Sluice does not start; `sluice check FILE` reports every mistake with its line
([policies.md](policies.md#check-and-try)). *Required* applies to each mapping of that kind. A *name* has 1 to 64 letters, digits,
`.`, `_` and `-`, and begins with a letter or digit.
"""
_OPTIONS_HEAD = """# Options of policies

The keys of the built-in policies and of presets, beside `use` and `on_block`. [policies.md](policies.md) explains them,
[configuration.md](configuration.md) says what is a name.

A *pattern* of names is a shell pattern (`*` for any text, `?` for one character), which must match the whole name, or `{re2: PATTERN}`; where
it says *patterns* there may be one or a list. An *RE2 pattern* is a regular expression in the syntax of RE2.
"""
_BARE = " and ".join(
    f"`{name}`"
    for name, place in BUILT_IN.items()
    if not hasattr(import_module(place.partition(":")[0]), f"{place.partition(':')[2]}Options")
)
_POLICIES = f"""## policies.NAME

A list of at most 32 policies, which are asked one after the other. Each is a mapping with `use`; its other keys are the policy's options.
The [options of the built-in policies](policy-options.md) are on another page; {_BARE} have none. [policies.md](policies.md) explains them.
"""
_PRESETS = """## preset

`use: preset` with `name`: one of the series of policies that ship with Sluice ([policies.md](policies.md#presets)). Its other keys are the
preset's options.
"""
_WORDS: dict[Any, str] = {
    Name: "name",
    ModelName: "model name",
    PolicySet: "name of 12 hexadecimal digits",
    Beta: "name",
    Part: "part of an address",
    HeaderName: "header name",
    Claim: "text",
    Unmodelled: "text",
    KnownDialect: ", ".join(f"`{name}`" for name in DIALECTS),
    Pattern: "RE2 pattern",
    NamePattern: "pattern",
    Usd: "number or text",
    Rate: "number or text",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    AwareDatetime: "time with a zone",
    dict[str, Any]: "mapping",
}
_COLUMNS = ("key", "type", "default", "meaning")
_MOST_LISTED = 12
"""Values of a default that stand in the table."""
SECTIONS: dict[type[BaseModel], str] = {
    Upstream: "upstreams.NAME",
    ModelRoute: "models[]",
    RouteTarget: "models[]: targets[] and then[]",
    Retry: "models[]: retry",
    Price: "models[]: price",
    PolicyStep: "policies.NAME",
    Limits: "limits",
    Key: "keys[]",
    Budget: "budgets.TEAM",
    ModelPrice: "prices.MODEL",
    Pages: "pages",
    LoginSettings: "login",
    Oidc: "login: oidc",
    Debug: "debug",
    Approvals: "approvals",
    Notified: "approvals: notify[]",
    Retention: "retention",
    rule_options.ToolRulesOptions: "tool_rules",
    rule_options.Rule: "tool_rules: allow[]",
    rule_options.AskRule: "tool_rules: ask[]",
    rule_options.DenyRule: "tool_rules: deny[]",
    rule_options.ApprovalOptions: "tool_rules and control: approval",
    rule_options.Sql: "tool_rules: sql",
    rule_options.NamedEffects: "tool_rules: does.but[]",
    rule_options.Does: "tool_rules: does",
    rule_options.Shell: "tool_rules: shell",
    rule_options.Paths: "tool_rules: paths",
    rule_options.Network: "tool_rules: network",
    rule_options.Secrets: "tool_rules: secrets",
    control.ControlOptions: "control",
    control.MonitorStep: "control: monitors[]",
    model_monitor.ModelOptions: "control: monitors[] with use: model",
    effect_monitor.PlaceOptions: "control: monitors[] with use: shell, paths or network",
    effect_monitor.ReadingOptions: "control: monitors[] with use: shell",
    secrets_monitor.SecretsOptions: "control: monitors[] with use: secrets",
    sql_monitor.SqlOptions: "control: monitors[] with use: sql",
    control.StepOptions: "control: steps[]",
    control.OnCritical: "control: on_critical",
    control.AuditOptions: "control: audit",
    control.AuditBudget: "control: audit: budget",
    session_options.SessionRulesOptions: "session_rules",
    session_options.LabelRule: "session_rules: labels[]",
    session_options.SessionRule: "session_rules: rules[]",
    panel.PanelOptions: "tool_judge and text_judge",
    panel.Escalation: "tool_judge and text_judge: escalate",
    tool_judge.ToolJudgeOptions: "tool_judge",
    text_judge.TextJudgeOptions: "text_judge",
    text_judge.WindowOptions: "text_judge: window",
    text_replace.TextReplaceOptions: "text_replace",
    text_replace.Replacement: "text_replace: rules[]",
    redact.RedactOptions: "redact",
}
"""The models in the order of the page, each with its heading."""


def page() -> str:
    """Return the page on all but policies. Raises ValueError for a key without a docstring."""
    sections = [_section(model) for model in SECTIONS if not _is_option(model)]
    return "\n".join([_HEAD, f"## Top level\n\n{_table(Config)}", *sections])


def options_page() -> str:
    """Return the page on the options of policies and presets. Raises ValueError likewise."""
    sections = [_section(model) for model in SECTIONS if _is_option(model)]
    return "\n".join([_OPTIONS_HEAD, *sections, *_presets()])


def _is_option(model: type[BaseModel]) -> bool:
    """Is it of a policy, whose models lie in another package than those of the file?"""
    return model.__module__.startswith("policy.")


def _section(model: type[BaseModel]) -> str:
    if model is PolicyStep:
        return f"{_POLICIES}\n{_table(model)}"
    bases = [f"[{SECTIONS[one]}]({_anchor(one)})" for one in model.__bases__ if one in SECTIONS]
    also = f" It has the keys of {' and '.join(bases)}, and:" if bases else ""
    return f"## {SECTIONS[model]}\n\n{_about(model)}{also}\n\n{_table(model)}"


def _presets() -> Iterator[str]:
    """The presets, each with its options; those that several have alike in a table of their own."""
    yield _PRESETS
    rows = {
        name: [
            (f"`{key}`", _option_type(option), _option_default(option), option.about)
            for key, option in preset_files.preset(name).options.items()
        ]
        for name in preset_files.names()
    }
    times = Counter(row for of in rows.values() for row in of)
    shared = [row for row, count in times.items() if count > 1]
    yield f"### Options of several presets\n\n{table(_COLUMNS, shared)}"
    for name, of in rows.items():
        one = preset_files.preset(name)
        yield f"### {name}\n\nVersion {one.version}. {' '.join(one.about.split())}\n"
        if others := [row[0] for row in of if row in shared]:
            yield f"Options as above: {', '.join(others)}.\n"
        if left := [row for row in of if row not in shared]:
            yield table(_COLUMNS, left)


def _option_type(option: preset_files.PresetOption) -> str:
    words = {
        "text": "text",
        "list": "list of texts",
        "folders": "text, or list of texts",
        "number": "number",
        "switch": "`true` or `false`",
    }
    return ", ".join(f"`{value}`" for value in option.one_of) or words[option.type]


def _option_default(option: preset_files.PresetOption) -> str:
    if option.is_needed:
        return "required"
    if isinstance(option.default, list) and len(option.default) > _MOST_LISTED:
        return "a list that `sluice presets NAME` prints"
    return (
        "unset"
        if option.default is None
        else "empty"
        if option.default == []
        else f"`{option.default}`"
    )


def keys(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yield the keys that a model declares itself: what the file calls it, the field, and its
    docstring. Raises ValueError."""
    texts = _docstrings(model)
    if Routed in model.__bases__:
        texts |= _docstrings(Routed)
    for name, field in model.model_fields.items():
        if name not in model.__annotations__ and any(one in SECTIONS for one in model.__bases__):
            continue
        if name not in texts:
            raise ValueError(f"{model.__module__}.{model.__qualname__}.{name} has no docstring")
        yield field.alias or name, field, texts[name]


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts that stand behind the fields of a class, each as one line."""
    [made] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for field, text in zip(made.body, made.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(said))
            ):
                found[name] = " ".join(said.split())
    return found


def _table(model: type[BaseModel]) -> str:
    types = get_type_hints(model, include_extras=True)
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    rows = [
        (f"`{key}`", _type(types[names[key]]), _default(field), _linked(said))
        for key, field, said in keys(model)
    ]
    return table(_COLUMNS, rows)


def _about(model: type[BaseModel]) -> str:
    return _linked(" ".join((model.__doc__ or "").split()))


def _linked(text: str) -> str:
    """Files of docs/ as links to them."""
    text = re.sub(r"docs/run/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", text)
    return re.sub(r"docs/(\w+/)([\w-]+\.md)(#[\w-]+)?", r"[\2](../\1\2\3)", text)


def _anchor(model: type[BaseModel]) -> str:
    return "#" + re.sub(r"[^a-z0-9_ -]", "", SECTIONS[model].lower()).replace(" ", "-")


def _type(kind: Any) -> str:
    """What the file may hold there, in words."""
    if known := next((words for one, words in _WORDS.items() if one == kind), ""):
        return known
    parts = get_args(kind)
    match get_origin(kind):
        case _ if isinstance(kind, type) and issubclass(kind, BaseModel):
            return f"[mapping]({_anchor(kind)})"
        case one if one is Annotated:
            return f"{_type(parts[0])}{_bounds(parts[1:])}"
        case one if one is Literal:
            return ", ".join(f"`{value}`" if value else "empty" for value in parts)
        case one if one in (Union, UnionType):
            # a union within a union is flat
            whole = (
                [NamePattern, *(p for p in parts if p not in get_args(NamePattern))]
                if Re2 in parts
                else list(parts)
            )
            words = [_type(part) for part in whole if part is not NoneType]
            # the same, or several of it
            if len(words) == 2 and words[1].startswith(f"list of {_many(words[0])}"):
                return (
                    _many(words[0]) if NamePattern in whole else f"{words[0]}, or a list of these"
                )
            return ", or ".join(words)
        case one if one in (tuple, list):
            return f"list of {_many(_type(parts[0]))}"
        case one if one is dict:
            return f"mapping of {_type(parts[0])} to {_type(parts[1])}"
    raise ValueError(f"no words for the type {kind}")


def _many(words: str) -> str:
    """A type's words, of several."""
    first = re.match(r"\[mapping(?=\])|mapping|name|model name|text|list|pattern", words)
    return words if first is None else f"{first[0]}s{words[first.end() :]}"


def _bounds(metadata: tuple[Any, ...]) -> str:
    """What `Field` says of a number's range, or of how many characters or items there may be."""
    found: dict[str, Any] = {}
    for field in (field for field in metadata if isinstance(field, FieldInfo)):
        for limit in field.metadata:
            for name in ("ge", "gt", "le", "lt", "max_length", "min_length"):
                if (value := getattr(limit, name, None)) is not None:
                    found[name] = value
    least, most = found.pop("ge", None), found.get("le")
    if least is not None and most is not None:
        del found["le"]
        return f", {least:,} to {most:,}"
    words = {"gt": "more than", "le": "at most", "lt": "less than", "max_length": "at most"}
    parts = [f"at least {least:,}"] if least is not None else []
    parts += ["not empty"] if found.pop("min_length", 0) else []
    return "".join(
        f", {text}" for text in [*parts, *(f"{words[name]} {found[name]:,}" for name in found)]
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case None:
            return "unset"
        case BaseModel():
            return "its defaults"
        case bool():
            return f"`{str(value).lower()}`"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,g}"
        case "" | () | []:
            return "empty"
        case str():
            return f"`{value}`"
        case tuple() | list():
            return f"`[{', '.join(map(str, value))}]`"
        case {} if not value:
            return "empty"
        case dict():
            return "the shipped ones"
    raise ValueError(f"no words for the default {value!r}")


def main() -> int:
    """Write or check the page; returns the exit code."""
    made = {PAGE: page, OPTIONS_PAGE: options_page}
    return max(
        write_or_check(
            place,
            make(),
            made_from="the configuration's models",
            command="python -m scripts.configuration",
            about=__doc__,
        )
        for place, make in made.items()
    )


if __name__ == "__main__":
    sys.exit(main())
