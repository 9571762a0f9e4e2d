"""`sluice presets`: the shipped series of policies, and what each expands to, as text that can be
copied into a configuration."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer
import yaml
from pydantic import ValidationError

from policy import preset_files
from protocol.errors import PolicyFailed
from settings.config import PolicyStep
from sluice.config_mistakes import findings
from sluice.errors import SettingsError
from sluice.sentences import wrapped


def run(name: str | None, assignments: Sequence[str], *, as_json: bool) -> None:
    """Print all presets, or one with what it stands for. Raises SettingsError."""
    if name is None:
        if assignments:
            raise SettingsError("--set is for one preset: name it")
        presets = [preset_files.preset(shipped) for shipped in preset_files.names()]
        if as_json:
            typer.echo(
                json.dumps(
                    [
                        {
                            "name": shipped.name,
                            "version": shipped.version,
                            "about": shipped.about.strip(),
                        }
                        for shipped in presets
                    ]
                )
            )
            return
        for shipped in presets:
            typer.echo(
                wrapped(
                    f"{shipped.name} (version {shipped.version}): {shipped.about.strip()}",
                    sys.stdout,
                )
            )
        return
    try:
        shipped = preset_files.preset(name)
    except PolicyFailed as error:
        raise SettingsError(error.message) from None
    try:
        series = [
            {key: value for key, value in step.model_dump().items() if value is not None}
            for step in preset_files.expanded([step_of(name, assignments, "--set")])
        ]
    except ValidationError as error:
        message = "; ".join(
            finding.sentence for finding in findings(error, shipped.options_model(), None)
        )
        raise SettingsError(f"the preset {name!r}: {message}") from None
    if as_json:
        options = {key: option.model_dump() for key, option in shipped.options.items()}
        typer.echo(
            json.dumps(
                {
                    "name": shipped.name,
                    "version": shipped.version,
                    "about": shipped.about.strip(),
                    "options": options,
                    "series": series,
                }
            )
        )
        return
    typer.echo(_shown(shipped, series))


def step_of(name: str, assignments: Sequence[str], option: str) -> PolicyStep:
    """Return the step of a configuration that a preset with these options (OPTION=VALUE) stands
    for. Raises SettingsError with `option`."""
    options: dict[str, Any] = {}
    for item in assignments:
        key, is_one, value = item.partition("=")
        key = key.strip()
        if not is_one or not key.isidentifier() or key in ("use", "name"):
            raise SettingsError(f"{option} {item!r}: write it as OPTION=VALUE")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingsError(f"{option} {key}: its value is not YAML") from None
    try:
        preset_files.preset(name)
    except PolicyFailed as error:
        raise SettingsError(error.message) from error
    return PolicyStep.model_validate({"use": preset_files.USE, "name": name, **options})


def _shown(shipped: preset_files.Preset, series: Sequence[dict[str, Any]]) -> str:
    lines = [
        wrapped(
            f"# {shipped.name}, version {shipped.version}: {shipped.about.strip()}", sys.stdout
        ).replace("\n", "\n# ")
    ]
    for key, option in shipped.options.items():
        values = f" ({', '.join(option.one_of)})" if option.one_of else ""
        default = "required" if option.is_needed else f"default {option.default!r}"
        lines.append(
            wrapped(f"# {key}{values}: {option.about} ({default})", sys.stdout).replace(
                "\n", "\n#   "
            )
        )
    written = yaml.safe_dump(
        {shipped.name: list(series)},
        sort_keys=False,
        width=140,
        default_flow_style=None,
        allow_unicode=True,
    )
    return "\n".join([*lines, "policies:", *(f"  {line}" for line in written.splitlines())])
