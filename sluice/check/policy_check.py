"""Checks the policies of a configuration by loading each for real: what is wrong with them, and
what of them lets everything pass. Must not know: upstreams, keys."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from protocol.errors import PolicyFailed
from settings.config import Config, PolicyStep
from settings.policy_set import module_of
from sluice.config_file import Document
from sluice.config_mistakes import Finding, findings, locate

if TYPE_CHECKING:
    from policy.base import Policy

PRESET = "preset"
_KEYS = ("SLUICE_REDACT_KEY", "SLUICE_REDACT_KEY_FILE")


def policy_mistakes(document: Document, search_path: Sequence[str]) -> list[Finding]:
    """Load each policy of a file for real, also where other parts of the file are wrong; return
    what is wrong with them."""
    series = document.raw.get("policies")
    mistakes: list[Finding] = []
    for name, steps in series.items() if isinstance(series, Mapping) else ():
        made: dict[int, list[Policy]] = {}
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            try:
                parsed = PolicyStep.model_validate(step)
            except ValidationError:
                # among the document's mistakes
                continue
            made[number] = []
            place = ("policies", name, number)
            mistakes += _load(document, place, parsed, search_path, made[number])
        if (
            isinstance(steps, list)
            and len(made) == len(steps)
            and not any(mistake.place[:2] == ("policies", name) for mistake in mistakes)
        ):
            mistakes += _idle(document, name, made)
    return mistakes


def _idle(
    document: Document, name: str, made: Mapping[int, Sequence["Policy"]]
) -> Iterator[Finding]:
    """Yield what of a series lets everything pass: all of it, or one of its policies beside
    others."""
    from policy.loading import check_series

    policies = [policy for several in made.values() for policy in several]
    place, line = locate(document.root, ("policies", name))
    try:
        check_series(name, policies)
    except PolicyFailed as error:
        yield Finding("error", place, error.message, line)
        return
    if all(policy.why_idle() for policy in policies):
        if name == "default":
            message = (
                "EVERYTHING PASSES: no rule and no judge decides about anything that a model says"
                " (add a preset or rules)"
            )
            yield Finding("warning", place, message, line)
        return
    if all(policy.passes_tool_calls or policy.why_idle() for policy in policies) and not any(
        policy.is_noop for policy in policies
    ):
        yield Finding(
            "warning",
            place,
            "every tool call passes: none of its policies decides about tool calls (add a preset or"
            " rules)",
            line,
        )
    for number, several in made.items():
        place, line = locate(document.root, ("policies", name, number))
        for policy in several:
            for warning in policy.warnings:
                yield Finding("warning", place, warning, line)
            if policy.needs_key and not any(map(os.environ.get, _KEYS)):
                message = (
                    f"mask_restore needs a key, and neither {' nor '.join(_KEYS)} is set here; a"
                    " policy worker without it does not load the policies"
                )
                yield Finding("warning", place, message, line)
        whys = [policy.why_idle() for policy in several if not policy.is_noop]
        # a preset has parts that wait for what others ask
        if whys and all(whys):
            yield Finding("warning", place, f"it can block nothing: {whys[0]}", line)


def _load(
    document: Document,
    place: tuple[str | int, ...],
    step: PolicyStep,
    search_path: Sequence[str],
    made: "list[Policy]",
) -> list[Finding]:
    """Load a step and add what it stands for to `made`; return what is wrong with it."""
    from policy.loading import make
    from sluice.check.time_limit import within_limit

    if step.use == PRESET:
        return _load_preset(document, place, step, made)
    try:
        made.append(policy := within_limit(lambda: make(step, search_path=search_path)))
        return list(_unrouted(document, place, step, policy))
    except PolicyFailed as error:
        cause = error.__cause__
        if isinstance(cause, ValidationError):
            return findings(cause, _options_of(step.use, cause.title), document.root, place)
        message = error.message.removeprefix(f"the policy {step.use!r} cannot be loaded: ")
        if isinstance(cause, ModuleNotFoundError) and cause.name == module_of(step.use):
            where = " or ".join([*search_path, "the installed packages"])
            message = f"there is no module {cause.name!r} for {step.use!r} in {where}"
        return [Finding("error", place, " ".join(message.split()), locate(document.root, place)[1])]
    except SystemExit:
        # it would end this process as if all were well
        message = "its module calls for the end of the process when it is loaded (SystemExit)"
        return [Finding("error", place, message, locate(document.root, place)[1])]


def _unrouted(
    document: Document, place: tuple[str | int, ...], step: PolicyStep, policy: "Policy"
) -> Iterator[Finding]:
    """Yield models that a policy defers to and no route takes, at the option that names them."""
    from policy.loading import unrouted

    for model, message in (
        unrouted(policy, document.config).items() if document.config is not None else ()
    ):
        at, line = locate(document.root, (*place, *(_place_of(model, step.options) or ())))
        yield Finding("error", at, message, line)


def _place_of(model: str, options: object) -> tuple[str | int, ...] | None:
    """Where options name a model, None where they do not."""
    if isinstance(options, Mapping):
        if options.get("model") == model:
            return ("model",)
        items: Iterable[tuple[str | int, object]] = options.items()
    else:
        items = enumerate(options) if isinstance(options, list | tuple) else ()
    return next(
        ((key, *inner) for key, value in items if (inner := _place_of(model, value)) is not None),
        None,
    )


def preset_mistakes(step: PolicyStep) -> list[Finding]:
    """Return what is wrong with a preset and its options that stand in no file."""
    return _load_preset(Document(""), (), step, [])


def _load_preset(
    document: Document, place: tuple[str | int, ...], step: PolicyStep, made: "list[Policy]"
) -> list[Finding]:
    """Expand a preset and load its policies; mistakes are reported on its options."""
    from policy import preset_files
    from policy.loading import make

    try:
        shipped, _ = preset_files.preset_of(step)
    except PolicyFailed as error:
        name, line = locate(document.root, (*place, "name"))
        return [Finding("error", name, error.message, line)]
    try:
        series = list(preset_files.expanded([step]))
    except ValidationError as error:
        return findings(error, shipped.options_model(), document.root, place)
    for inner in series:
        try:
            made.append(make(inner))
        except PolicyFailed as error:
            # an option of the preset is an option of one of its policies, which looks at its value
            message = error.message.removeprefix(f"the policy {inner.use!r} cannot be loaded: ")
            at, line = locate(document.root, (*place, message.split(".")[0].split(":")[0]))
            return [Finding("error", at, " ".join(message.split()), line)]
    return []


def expanded(steps: Sequence[PolicyStep]) -> Sequence[PolicyStep]:
    """Return a series with what presets stand for in their place; one with mistakes in its presets
    as it is."""
    if not any(step.use == PRESET for step in steps):
        return steps
    from policy.preset_files import expanded as in_full

    try:
        return list(in_full(steps))
    except (PolicyFailed, ValidationError):
        return steps


def with_presets(config: Config) -> Config:
    """Return a configuration that has behind each preset what it stands for: pages show rules, and
    know no policy."""
    policies = {
        name: (*(step for step in steps if step.use == PRESET), *expanded(steps))
        for name, steps in config.policies.items()
    }
    return config.model_copy(update={"policies": policies})


def _options_of(use: str, title: str) -> type[BaseModel] | None:
    """The options of a built-in policy, to name the one that was meant."""
    from policy.loading import BUILT_IN

    kind = getattr(sys.modules.get(module_of(BUILT_IN.get(use, use))), title, None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def passes_everything(steps: Sequence[PolicyStep], search_path: Sequence[str] = ()) -> bool:
    """Can a series, which has no mistakes, refuse and change nothing?"""
    from policy.loading import make

    return all(make(step, search_path=search_path).why_idle() for step in expanded(steps))
