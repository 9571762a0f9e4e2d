"""Presets: built-in series of policies, as files in the configuration language, each with a version
and a few options.

A preset contains nothing that a configuration could not: its expansion can be copied and changed.
In its file a text `$name` stands for the value of an option, a mapping with `when` is included only
for some values (`true`: if the option is set), and `{case: $name, one: ..., other: ...}` selects
one of several.

Must not know: what policies do.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from protocol.errors import PolicyFailed
from settings.config import OnBlock, PolicyStep
from settings.config_faults import did_you_mean

USE = "preset"
"""What a step says under `use` that is a preset."""
_FOLDER = resources.files("policy").joinpath("presets")
_END = ".yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_TYPES: Mapping[str, Any] = {
    "text": str,
    "list": tuple[str, ...],
    "folders": str | tuple[str, ...],
    "number": float,
    "switch": bool,
}


class PresetOption(_Strict):
    """An option of a preset."""

    about: str
    """What it is for, in one sentence."""
    type: Literal["text", "list", "folders", "number", "switch"] = "text"
    """`switch`: true or false; `folders`: a text or a list of texts."""
    one_of: tuple[str, ...] = ()
    """The texts that it may be."""
    default: Any = None
    """None: it must be given, unless it is a text that may be missing."""
    is_needed: bool = False
    """It has no default."""

    @property
    def annotation(self) -> Any:
        """The type of its values."""
        if self.one_of:
            return Literal[self.one_of]
        return _TYPES[self.type]


class Preset(_Strict):
    """A preset as its file has it."""

    name: str
    version: int
    """Raised with every change of what it decides."""
    about: str
    on_block: OnBlock | None = None
    """`on_block` of its steps, where a configuration says nothing else."""
    options: dict[str, PresetOption] = {}
    policies: tuple[dict[str, Any], ...]
    """The series, as it stands in a configuration but for options."""

    def options_model(self) -> type[BaseModel]:
        """The model that checks its options."""
        fields: dict[str, Any] = {
            name: (
                (
                    option.annotation,
                    (
                        Field(default=...)
                        if option.is_needed
                        else Field(default=_frozen(option.default))
                    ),
                )
                if option.is_needed or option.default is not None
                else (option.annotation | None, None)
            )
            for name, option in self.options.items()
        }
        made: type[BaseModel] = create_model(f"Options of {self.name}", __base__=_Strict, **fields)
        return made

    def series(self, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the series for these options, as a configuration would have it. Raises pydantic's
        ValidationError."""
        values = self.options_model().model_validate(dict(options)).model_dump(mode="json")
        steps = _expanded(list(self.policies), values)
        assert isinstance(steps, list)
        if self.on_block is None:
            return steps
        return [{"use": "", "on_block": self.on_block, **step} for step in steps]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@cache
def names() -> tuple[str, ...]:
    """Return the names of all presets."""
    return tuple(
        sorted(
            file.name.removesuffix(_END) for file in _FOLDER.iterdir() if file.name.endswith(_END)
        )
    )


@cache
def preset(name: str) -> Preset:
    """Read a preset. Raises PolicyFailed where there is none of that name."""
    # a worker whose series has no preset does not load it
    import yaml

    if name not in names():
        near = did_you_mean(name, names())
        raise PolicyFailed(
            f"there is no preset {name!r}{near or ' (there are ' + ', '.join(names()) + ')'}"
        )
    text = _FOLDER.joinpath(name + _END).read_text(encoding="utf-8")
    # the parser in C takes a tenth of the time, and not every build of the library has it
    definition = Preset.model_validate(
        yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one
    )
    if definition.name != name:
        raise PolicyFailed(f"the preset {name!r} calls itself {definition.name!r}")
    return definition


def preset_of(step: PolicyStep) -> tuple[Preset, dict[str, Any]]:
    """Return the preset that a step names, and its options. Raises PolicyFailed."""
    options = step.options
    name = options.pop("name", None)
    if not isinstance(name, str):
        what = "the option 'name' is missing" if name is None else "`name` must be a text"
        raise PolicyFailed(f"{what}: a preset is one of {', '.join(names())}")
    return preset(name), options


def expanded(steps: Iterable[PolicyStep]) -> Iterator[PolicyStep]:
    """Yield the steps of a series with what presets stand for in their place, which may be presets
    too. Raises PolicyFailed and ValidationError."""
    for step in steps:
        if step.use != USE:
            yield step
            continue
        definition, options = preset_of(step)
        yield from expanded(
            made.model_copy(update={"on_block": step.on_block or made.on_block})
            for made in map(PolicyStep.model_validate, definition.series(options))
        )


_NOTHING = object()


def _expanded(value: Any, options: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("$") and value[1:] in options:
        return options[value[1:]]
    if isinstance(value, list):
        members = [_expanded(item, options) for item in value]
        return [item for item in members if item is not _NOTHING]
    if not isinstance(value, dict):
        return value
    if "case" in value:
        return _expanded(value[str(options[value["case"].removeprefix("$")])], options)
    if not all(_is(options[name], wanted) for name, wanted in value.get("when", {}).items()):
        return _NOTHING
    inner = {key: _expanded(item, options) for key, item in value.items() if key != "when"}
    return {key: item for key, item in inner.items() if item is not _NOTHING and item is not None}


def _is(value: Any, wanted: Any) -> bool:
    """Is an option's value one of those wanted; of an option that is no switch, `true` and `false`
    ask whether it is given."""
    if isinstance(wanted, bool) and not isinstance(value, bool):
        return (value is not None) == wanted
    return value in (wanted if isinstance(wanted, list) else [wanted])
