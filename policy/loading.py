"""Makes policy objects from the configuration, and the revision that identifies this series.

The only module of this package that reads files (custom policies), and only when it is called.
"""

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from policy import call_state, preset_files
from policy.base import HOOKS, Context, Policy, is_built_in
from policy.hooks import check_hooks, raised_at
from protocol.bounds import MAX_NAME_CHARS
from protocol.dialects.table import DEFAULT
from protocol.errors import PolicyFailed
from protocol.request import ChatRequest
from settings.config import Config, PolicyStep
from settings.config_faults import did_you_mean
from settings.policy_set import module_of, places_of, read_by_sessions

_PACKAGE = Path(__file__).parent
BUILT_IN = {
    "noop": "policy.builtin.noop:Noop",
    "uppercase": "policy.builtin.uppercase:Uppercase",
    "tool_rules": "policy.builtin.tool_rules:ToolRules",
    "session_rules": "policy.builtin.session_rules:SessionRules",
    "tool_judge": "policy.builtin.tool_judge:ToolJudge",
    "text_judge": "policy.builtin.text_judge:TextJudge",
    "control": "policy.builtin.control:Control",
    "text_replace": "policy.builtin.text_replace:TextReplace",
    "redact": "policy.builtin.redact:Redact",
}


_PARSERS = ("msgspec", "jiter", "jsonschema-rs", "google-re2", "sqlglot")
"""What reads and matches what is decided about. Not pydantic: it reads options, and a changed
reading fails at start or is no change."""


def load(
    series: Sequence[PolicyStep],
    *,
    search_path: Sequence[str] = (),
    session_version: str,
    config: Config | None = None,
    redact_key: str = "",
) -> tuple[list[Policy], str]:
    """Return the policies of a series, those that ask judges last, and the series' revision (12 hex
    digits).

    The revision is a hash over the options, the source of the policy classes, `session_version`,
    what sessions read of `config`, and what text is parsed and matched with: where it is the same,
    so are the decisions. `redact_key` makes placeholders. Raises PolicyFailed with one sentence that
    names the policy and the option.
    """
    digest = hashlib.sha256(session_version.encode())
    digest.update(
        json.dumps([read_by_sessions(config or Config()), _versions()], sort_keys=True).encode()
    )
    policies = []
    for step in _expanded(series, digest):
        kind = _find(step.use, search_path)
        policies.append(made := _made(step, kind))
        if made.needs_key:
            if len(redact_key) < 32:
                raise PolicyFailed(
                    f"the policy {step.use!r} cannot be loaded: mask_restore needs a key of at"
                    " least 32 characters in the file that SLUICE_REDACT_KEY_FILE"
                    " names, the same for all policy workers"
                )
            made.key = redact_key.encode()
            digest.update(hashlib.sha256(made.key).digest())
        if config is not None and (missing := unrouted(made, config)):
            raise PolicyFailed(
                f"the policy {step.use!r} cannot be loaded: {next(iter(missing.values()))}"
            )
        digest.update(
            json.dumps(
                [step.use, step.on_block, step.options], sort_keys=True, default=str
            ).encode()
        )
        for source in _sources(kind):
            digest.update(source)
    if any(p.judges_text for p in policies) and any(p.defers_to for p in policies):
        raise PolicyFailed(
            "a policy that judges text and one that defers cannot be in one series: which answer is"
            " the client's is known only at its end"
        )
    return sorted(policies, key=lambda policy: policy.asks), digest.hexdigest()[:12]


def _expanded(series: Sequence[PolicyStep], digest: "hashlib._Hash") -> Iterator[PolicyStep]:
    """The steps, with what presets stand for in their place; which preset of which version it is
    counts too."""
    for step in series:
        if step.use != preset_files.USE:
            yield step
            continue
        definition, options = preset_files.preset_of(step)
        digest.update(
            json.dumps(
                [definition.name, definition.version, options], sort_keys=True, default=str
            ).encode()
        )
        try:
            yield from preset_files.expanded([step])
        except ValidationError as error:
            raise PolicyFailed(
                f"the preset {definition.name!r} cannot be loaded: {_first_problem(error)}"
            ) from error


def check_series(name: str, policies: Sequence[Policy]) -> None:
    """Refuse a series that blocks nothing, unless it says that it is meant to. Raises
    PolicyFailed."""
    idle = [(policy, why) for policy in policies if (why := policy.why_idle())]
    if len(idle) < len(policies) or any(policy.is_noop for policy in policies):
        return
    why = (
        "; ".join(f"{policy.name or type(policy).__name__}: {why}" for policy, why in idle)
        or "it is empty"
    )
    raise PolicyFailed(
        f"the policies {name!r} block nothing, so every call would pass ({why}). Add a preset or"
        " rules; if everything should pass, write `use: noop`"
    )


def unrouted(policy: Policy, config: Config) -> dict[str, str]:
    """Return the models that a policy defers to and no route takes, each with the sentence about
    it."""
    names = [name for route in config.models for name in (route.match, *route.listed) if name]
    return {
        model: (
            f"no route under models takes the model {model!r}, to which tool calls are"
            f" deferred{did_you_mean(model, names)}"
        )
        for model in policy.defers_to
        if config.route(model) is None
    }


def make(step: PolicyStep, *, search_path: Sequence[str] = ()) -> Policy:
    """Return the policy of one step that is no preset. Raises PolicyFailed as `load` does; its
    cause is pydantic's error where options are wrong."""
    return _made(step, _find(step.use, search_path))


def _versions() -> dict[str, str]:
    """Versions of what reads and matches. Of Python the minor one: `json` and `re` change with it,
    and patches come with restarts."""
    versions = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "unicode": unicodedata.unidata_version,
    }
    for name in _PARSERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    for name in ("betas", "claude_models", "openai_models", "server_tools"):
        versions[name] = hashlib.sha256(
            resources.files("protocol").joinpath("data", f"{name}.json").read_bytes()
        ).hexdigest()
    for file in sorted(resources.files("policy").joinpath("data").iterdir(), key=str):
        versions[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return versions


def _find(use: str, search_path: Sequence[str]) -> type[Policy]:
    place = BUILT_IN.get(use, use)
    module_name, class_name = module_of(place), place[len(module_of(place)) + 1 :]
    if not module_name or not all(
        part.isidentifier() for part in [*module_name.split("."), class_name]
    ):
        near = did_you_mean(use, BUILT_IN)
        raise PolicyFailed(
            f"the policy {use!r} is neither built in ({', '.join(BUILT_IN)}) nor of the form"
            f" module:Class{near}"
        )
    try:
        module = (
            importlib.import_module(module_name)
            if use in BUILT_IN
            else _import(module_name, search_path)
        )
    except Exception as error:
        raise PolicyFailed(
            f"the policy {use!r} cannot be loaded: {_at(error)}{type(error).__name__}: {error}"
        ) from error
    kind = getattr(module, class_name, None)
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        raise PolicyFailed(
            f"the policy {use!r} cannot be loaded: {class_name} is not a class derived from"
            " policy.base.Policy"
        )
    return kind


def _import(name: str, search_path: Sequence[str]) -> ModuleType:
    """Import from a file under `search_path` (which never goes to sys.path), else an installed
    module."""
    for path in map(Path, places_of(name, search_path)):
        if path.is_file():
            return _import_file(path)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    # the name holds the content, so that an edited file is another module
    name = f"sluice_policy_{path.stem}_{hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    # the name ends in .py
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses and typed structs look their module up there
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _made(step: PolicyStep, kind: type[Policy]) -> Policy:
    try:
        if not is_built_in(kind):
            check_hooks(kind)
        _check_arguments(kind, step.options)
        policy = kind(**step.options)
        if step.on_block is not None:
            if step.on_block not in policy.after_block:
                raise PolicyFailed(f"on_block is {' or '.join(policy.after_block)}")
            policy.on_block = step.on_block
        if not is_built_in(kind):
            _check(policy)
        return policy
    except PolicyFailed as error:
        raise PolicyFailed(f"the policy {step.use!r} cannot be loaded: {error.message}") from error
    except ValidationError as error:
        raise PolicyFailed(
            f"the policy {step.use!r} cannot be loaded: {_first_problem(error)}"
        ) from error
    except Exception as error:
        raise PolicyFailed(
            f"the policy {step.use!r} cannot be loaded: {_error_text(error)}"
        ) from error


def _error_text(error: Exception) -> str:
    """What an error says. A ValueError speaks of the options; where another was raised matters
    too."""
    message = str(error) or type(error).__name__
    return message if isinstance(error, ValueError) else f"{_at(error)}{message}"


def _at(error: Exception) -> str:
    return f"{at}: " if (at := raised_at(error)) else ""


def _check_arguments(kind: type[Policy], options: Mapping[str, object]) -> None:
    """Refuse options that the class does not take, and those that it lacks. Raises PolicyFailed."""
    parameters = inspect.signature(kind).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in options:
            if name not in named:
                known = f"its options are {', '.join(named)}" if named else "it has no options"
                raise PolicyFailed(
                    f"the option {name!r} is not known: {known}{did_you_mean(name, named)}"
                )
    for p in parameters:
        if p.name in named and p.default is p.empty and p.name not in options:
            raise PolicyFailed(f"the option {p.name!r} is missing")


def _check(policy: Policy) -> None:
    """Refuse what would work in half of the cases, or would be one call's and another's. Raises
    PolicyFailed."""
    kind = type(policy)
    if hooks := HOOKS & vars(policy).keys():
        raise PolicyFailed(f"{min(hooks)} is set on the object: write it as a method of the class")
    name: object = policy.name
    if not isinstance(name, str) or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise PolicyFailed(
            f"its name is no text of at most {MAX_NAME_CHARS} characters that can be printed"
        )
    on_block: object = policy.on_block
    if on_block not in ("", "stop", "continue"):
        raise PolicyFailed("on_block is stop or continue")
    if {type(kind.asks), type(kind.keeps_request), type(kind.reads_project)} != {bool}:
        raise PolicyFailed("asks, keeps_request and reads_project are True or False")
    try:
        call_state.check(policy, last=Policy)
    except call_state.NotCopyable as error:
        raise PolicyFailed(str(error)) from error
    if kind.for_call is Policy.for_call:
        return
    try:
        clone = policy.for_call(_TRIAL)
    except Exception:  # noqa: BLE001 - foreign code: it may want a call with more in it than this one
        return
    if clone is policy or getattr(clone, "context", None) is not _TRIAL:
        raise PolicyFailed("for_call must return the copy that super().for_call(context) gives")


_TRIAL = Context("", "", "", "", ChatRequest(dialect=DEFAULT.name, model="demo"))


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    # of an option with several forms, the one whose content was looked at
    problem = next((p for p in problems if p["type"] == "value_error"), problems[0])
    place = ".".join(str(part) for part in problem["loc"]) or "options"
    return f"{place}: {problem['msg'].removeprefix('Value error, ').splitlines()[0]}"


def _sources(kind: type[Policy]) -> list[bytes]:
    """The source of the class's modules and of all modules of this package that they import, at
    whatever remove."""
    sources: dict[str, bytes] = {}
    waiting = {c.__module__ for c in kind.__mro__ if c is not object}
    while waiting:
        name = waiting.pop()
        sources[name] = _source_of(name)
        imported = imported_by_ours if name.startswith("policy.") else imported_by
        waiting |= {
            used for used in imported(sources[name]) if used.startswith("policy.")
        } - sources.keys()
    return [sources[name] for name in sorted(sources)]


def _source_of(name: str) -> bytes:
    """The source of a module, empty for what is none. One of this package is read from its file: it
    may be imported only when a call needs it, and a revision must not depend on that."""
    if name.startswith("policy."):
        stem = _PACKAGE.parent.joinpath(*name.split("."))
        files = [stem.with_suffix(".py"), stem / "__init__.py"]
    else:
        files = [Path(getattr(sys.modules.get(name), "__file__", None) or "")]
    found = next((file for file in files if file.suffix == ".py" and file.is_file()), None)
    return b"" if found is None else found.read_bytes()


_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ ]([\w.]+)[ ]import[ ](?:\(([^)]*)\)|([^\n#]*))|import[ ]([\w.]+))",
    re.MULTILINE,
)
_NAME = re.compile(rb"(\w+)(?: as \w+)?")


@functools.lru_cache(256)
def imported_by_ours(source: bytes) -> frozenset[str]:
    """The same of a module of this package, whose imports all have one form: parsing them took
    longer than all else of a start."""
    names: set[bytes] = set()
    for match in _IMPORT.finditer(source):
        module = match[1] or match[4]
        names.add(module)
        names |= {module + b"." + name for name in _NAME.findall(match[2] or match[3] or b"")}
    return frozenset(name.decode() for name in names)


def _parsed(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:
        # CPython 3.11 counts the depth of all that is parsed in one place: a parser in another
        # thread breaks this one
        return ast.parse(source)


@functools.lru_cache(256)
def imported_by(source: bytes) -> frozenset[str]:
    """Names that a module may import by: `from a import b` is both `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)
