"""`sluice explain`: how policies read a tool call, step by step: what its arguments are, which
commands run, what they do and where, which rules match, and what becomes of the call. Nothing is
started or asked.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from policy.base import ToolCall
from policy.builtin.arguments import Looks
from policy.builtin.tool_rules import ToolRules
from policy.effect_sentences import describe, describe_sql
from policy.effects.shell.command import Command
from policy.effects.sql import ANY
from protocol.bytes.json_strict import loads_arguments
from settings.config import Config
from sluice.check import check, check_cli, presets_cli
from sluice.check.sessions import loaded
from sluice.config_file import load_config
from sluice.errors import SettingsError
from sluice.sentences import wrapped
from sluice.settings import load_settings
from sluice.tables import printable

Steps = dict[str, list[str]]
"""What was read, step by step: a line for each thing that was found."""
_MOST = 50
"""Lines of a step that are printed."""
_MOST_CHARS = 240
_PARTS = {
    "shell": ("text for a shell", "text"),
    "sql": ("SQL", "text"),
    "messages": ("text for somebody", "text"),
    "paths": ("a path", "path"),
    "urls": ("an address", "url"),
}
"""What an argument may be (`policy.effects.surface_parts.Surface`), and where it stands there."""


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
    if (command is None) == (arguments is None) or (options and preset is None):
        raise SettingsError(
            "give a command or the tool's arguments with --arguments, and --option only with a"
            " --preset"
        )
    text = json.dumps({"command": command}) if arguments is None else arguments
    settings, series = load_settings(config=file), preset or policy or check_cli.DEFAULT
    if preset is None:
        config = load_config(settings.config)
        check_cli.check_series(config, series)
    else:
        step = presets_cli.step_of(preset, options, "--option")
        config = Config(policies={preset: (step,)})
    tried = check_cli.try_it(config, settings.search_path, (tool, text), None, series)
    steps = explain(config, series, tool, text, settings.search_path)
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
    policies, _ = loaded(config, series, search_path)
    by_rules = [policy for policy in policies if isinstance(policy, ToolRules)]
    looks = by_rules[0].looks(call) if by_rules else Looks(call)
    surface, touch = looks.surface, looks.touch
    read = [
        f"{part.argument} is {what}: {getattr(part, field)}"
        for name, (what, field) in _PARTS.items()
        for part in getattr(surface, name)
    ]
    return {
        "arguments": [*read, *(f"{name} is not read" for name in surface.unread)],
        "commands": [_command(command) for command in touch.commands if command.words],
        "SQL": [describe_sql(looks.sql_effects(text, ANY) or (), ()) for text in looks.sql],
        "effects": [
            f"{act.effect.kind}, {act.effect.scope}{' (wide)' if act.effect.wide else ''}:"
            f" {describe(act.effect, looks.places)}"
            for act in touch.acts
        ],
        "not known": list(touch.unsure),
        "rules that match": [
            ": ".join(filter(None, (f"{policy.name}, {match.list_name} {match.name!r}", match.why)))
            for policy in by_rules
            for match in policy.matching(call)
        ],
    }


def _command(command: Command) -> str:
    words = " ".join("(known when it runs)" if w.text is None else w.text for w in command.words)
    under = f", under {' '.join(command.wrappers)}" if command.wrappers else ""
    where = f", in {command.cwd.known}" if command.cwd is not None else ""
    return f"{words}{under}{where}"


def _lines(steps: Steps) -> Iterator[str]:
    for heading, rows in steps.items():
        if rows:
            yield f"{heading[0].upper()}{heading[1:]}:"
            yield from (f"  {printable(row)[:_MOST_CHARS]}" for row in rows[:_MOST])
        if len(rows) > _MOST:
            yield f"  and {len(rows) - _MOST} more"
