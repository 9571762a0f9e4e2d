"""`sluice explain`: how policies read a tool call, step by step: what its arguments are, which
commands run, what they do and where, which rules match, and what becomes of the call. Nothing is
started or asked.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from pydantic import ValidationError

from policy.base import ToolCall
from policy.builtin.arguments import Looks
from policy.builtin.tool_rules import ToolRules
from policy.effect_sentences import describe, describe_sql
from policy.effects.effect import Effect
from policy.effects.places import Places
from policy.effects.shell.command import Command
from policy.effects.sql import ANY
from policy.effects.surface_parts import Surface
from policy.loading import load
from policy.session.effects import SESSION_VERSION
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.errors import PolicyFailed
from settings.config import Config
from settings.config_faults import did_you_mean
from sluice.check import check, check_cli, presets_cli, trial
from sluice.config_file import load_config
from sluice.config_mistakes import plain
from sluice.errors import SettingsError
from sluice.sentences import wrapped
from sluice.settings import load_settings
from sluice.tables import printable

Steps = dict[str, list[str]]
"""What was read, step by step: a line for each thing that was found."""
_MOST = 50
"""Lines of a step that are printed."""
_MOST_CHARS = 240


def run(
    command: str | None,
    *,
    tool: str,
    arguments: str | None,
    preset: str | None,
    options: Sequence[str],
    policy: str | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Explain a call and print it. Raises SettingsError for wrong use, and where the policies
    cannot be loaded."""
    if (command is None) == (arguments is None) or not tool:
        raise SettingsError(
            "give a tool's name, and a command or the tool's arguments with --arguments"
        )
    if options and preset is None:
        raise SettingsError("--option is for a preset: name it with --preset")
    text = json.dumps({"command": command}) if arguments is None else arguments
    settings, series = load_settings(config=file), preset or policy or check_cli.DEFAULT
    try:
        config = (
            load_config(settings.config)
            if preset is None
            else Config(policies={preset: (presets_cli.step_of(preset, options, "--option"),)})
        )
        if series not in config.policies:
            near = did_you_mean(series, config.policies)
            raise SettingsError(f"--policy: there is no policy {series!r}{near}")
        steps = explain(config, series, tool, text, settings.search_path)
        tried = trial.try_call(config, series, tool, text, search_path=settings.search_path)
    except AmbiguousJson as error:
        raise SettingsError(f"the arguments are no JSON object: {error}") from None
    except ValidationError as error:
        raise SettingsError(f"--preset {preset}: {plain(error)}") from None
    except PolicyFailed as error:
        raise SettingsError(error.message) from None
    if as_json:
        typer.echo(json.dumps({"steps": steps, "outcome": check_cli.as_object(tried)}))
        return
    can_judge = check.can_judge(config, tried.judge)
    outcome = check_cli.shown(tried, series, (tool, text), can_judge=can_judge)
    for line in (*_lines(steps), outcome):
        typer.echo(wrapped(line, sys.stdout))


def explain(
    config: Config, series: str, tool: str, arguments: str, search_path: Sequence[str] = ()
) -> Steps:
    """Return how the policies `series` read a call. Raises AmbiguousJson, PolicyFailed."""
    call = ToolCall(0, 0, "call_1", tool, arguments, loads_arguments(arguments), None)
    policies, _ = load(
        config.policies[series],
        search_path=search_path,
        session_version=SESSION_VERSION,
        config=config,
    )
    by_rules = [policy for policy in policies if isinstance(policy, ToolRules)]
    looks = by_rules[0].looks(call) if by_rules else Looks(call)
    touch = looks.touch
    return {
        "arguments": list(_arguments(looks.surface)),
        "commands": [_command(command) for command in touch.commands if command.words],
        "SQL": [describe_sql(looks.sql_effects(text, ANY) or (), ()) for text in looks.sql],
        "effects": [_effect(act.effect, looks.places) for act in touch.acts],
        "not known": list(touch.unsure),
        "rules that match": [
            ": ".join(filter(None, (f"{policy.name}, {match.list_name} {match.name!r}", match.why)))
            for policy in by_rules
            for match in policy.matching(call)
        ],
    }


def _arguments(surface: Surface) -> Iterator[str]:
    texts = (("text for a shell", surface.shell), ("SQL", surface.sql))
    for what, found in (*texts, ("text for somebody", surface.messages)):
        yield from (f"{part.argument} is {what}: {part.text}" for part in found)
    yield from (f"{path.argument} is a path to {path.does}: {path.path}" for path in surface.paths)
    yield from (f"{url.argument} is an address: {url.url}" for url in surface.urls)
    yield from (f"{name} is not read" for name in surface.unread)


def _command(command: Command) -> str:
    words = " ".join("(known when it runs)" if w.text is None else w.text for w in command.words)
    under = f", under {' '.join(command.wrappers)}" if command.wrappers else ""
    where = f", in {command.cwd.known}" if command.cwd is not None else ""
    return f"{words}{under}{where}"


def _effect(effect: Effect, places: Places) -> str:
    wide = " (wide)" if effect.wide else ""
    return f"{effect.kind}, {effect.scope}{wide}: {describe(effect, places)}"


def _lines(steps: Steps) -> Iterator[str]:
    for heading, rows in steps.items():
        if rows:
            yield f"{heading.capitalize() if heading.islower() else heading}:"
        for row in rows[:_MOST]:
            yield f"  {printable(row)[:_MOST_CHARS]}"
        if len(rows) > _MOST:
            yield f"  and {len(rows) - _MOST} more"
