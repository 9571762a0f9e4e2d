"""`sluice run` and `sluice connect`: coding agents pointed at a gateway.

Exit codes: 0 done, 1 nothing to undo or the request failed, 2 wrong use or an agent whose API
Sluice does not speak, 3 no gateway answers; 126 and 127 of `sluice run` as a shell has them.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote
from uuid import uuid4

import typer
import yaml

from pages import links
from policy.effects.places import refusal
from settings.config_faults import did_you_mean
from sluice.agents import agent_key
from sluice.agents.agent_file import AgentFile
from sluice.agents.agents import AGENTS, Agent, Pointed, named, of_command
from sluice.errors import SettingsError
from sluice.processes import hand_over_signals
from sluice.sentences import wrapped

_OURS = "SLUICE_"
"""No variable of this prefix goes to an agent: they hold passwords of the record and keys."""
_END = "SLUICE"


def run(command: Sequence[str], *, model: str = "") -> NoReturn:
    """Become the agent, with the variables that point it here. Raises StartError."""
    agent = of_command(command[0])
    _refuse_lacking(agent)
    if not (agent.variables or agent.setting_variable):
        raise SettingsError(
            f"{agent.title} takes no address from its environment: `sluice connect {agent.name}"
            " --write` puts it into its file"
        )
    # before a key is made for it
    if shutil.which(command[0]) is None:
        is_file = os.path.dirname(command[0]) != "" and os.path.exists(command[0])
        _say(
            f"{command[0]}:"
            f" {'not a program that you may run' if is_file else 'no such command: install it, or correct PATH'}"
        )
        raise typer.Exit(126 if is_file else 127)
    pointed = agent_key.find(agent, model=model)
    pointed = replace(pointed, session=f"run-{uuid4()}", project=project_header())
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in agent.unset and not name.startswith(_OURS)
    }
    environment |= agent.environment(pointed, environment)
    _say(
        f"{command[0]} goes through"
        f" {pointed.url}{f' with the key {pointed.key_name}' if pointed.key_name else ''}{_seen(agent, pointed)}"
    )
    hand_over_signals()
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        raise typer.Exit(126) from None


def project_header() -> str:
    """The folder that this runs in, as `x-sluice-project` has it; empty where it can be no
    project."""
    folder = os.getcwd()
    if why := refusal(folder, str(Path.home())):
        _say(
            f"{folder} is {why}, so it is not named as the project: run this in the project's folder"
        )
        return ""
    return quote(folder, safe="/")


def _seen(agent: Agent, to: Pointed) -> str:
    """Where its calls are seen, if its session is known before it begins."""
    if not (agent.headers and to.key_name):
        return f"; its calls: {to.url}{links.CALLS}"
    return f"; its calls: {to.url}{links.session(to.key_name, to.session)}"


def connect(name: str, asked: Sequence[str], *, model: str = "", yes: bool = False) -> int:
    """Do what is asked (print, write, undo or check) for the agent of that name; return the exit
    code. Raises StartError."""
    if not name:
        for known in AGENTS:
            typer.echo(
                f"{known.name:10}{known.title:14}{f'no: {known.lacks}' if known.lacks else _ways(known)}"
            )
        return 0
    agent = named(name)
    if agent is None:
        raise SettingsError(
            f"no agent is named {name!r}{did_you_mean(name, [known.name for known in AGENTS])}: there"
            f" are {_names()}"
        )
    if len(asked) > 1:
        raise SettingsError(f"--{asked[0]} and --{asked[1]} are two things: give one at a time")
    _refuse_lacking(agent)
    match asked[0] if asked else "print":
        case "undo":
            return _undo(agent)
        case "write":
            return _write(agent, _pointed(agent, model), yes=yes)
        case "check":
            return _check(agent, _pointed(agent, model))
        case _:
            typer.echo(
                lines(agent, replace(_pointed(agent, model), project=project_header())), nl=False
            )
            return 0


def _names() -> str:
    return ", ".join(agent.name for agent in AGENTS if not agent.lacks)


def _ways(agent: Agent) -> str:
    run_it = (
        f"sluice run -- {agent.commands[0]}"
        if agent.commands and (agent.variables or agent.setting_variable)
        else ""
    )
    write = f"sluice connect {agent.name} --write" if agent.file else f"sluice connect {agent.name}"
    return "; ".join(way for way in (run_it, write) if way)


def _refuse_lacking(agent: Agent) -> None:
    if agent.lacks:
        raise SettingsError(f"{agent.title} cannot be used with Sluice: {agent.lacks}")


def _pointed(agent: Agent, model: str) -> Pointed:
    pointed = agent_key.find(agent, model=model)
    if not pointed.model and not agent.asks_for:
        raise SettingsError("the gateway names no model: say which with --model")
    return pointed


def lines(agent: Agent, to: Pointed) -> str:
    """Return what to set, as lines that a shell takes; what a person does is in comments."""
    result = [f"# {agent.source} (read on {agent.read_on})"]
    result += [f"unset {name}" for name in agent.unset]
    result += [
        f"export {name}={shlex.quote(value)}" for name, value in agent.environment(to, {}).items()
    ]
    result += [f"# {to.fill(step)}" for step in agent.steps]
    if agent.setting is not None and not (agent.variables or agent.setting_variable):
        path = agent.path_of_file()
        text = yaml.safe_dump(agent.settings(to), sort_keys=False, allow_unicode=True)
        result += [
            f"mkdir -p {shlex.quote(str(path.parent))}",
            f"cat >> {shlex.quote(str(path))} <<'{_END}'",
            text + _END,
        ]
    if agent.note:
        result.append(f"# {to.fill(agent.note)}")
    return "\n".join(result) + "\n"


def _file(agent: Agent) -> AgentFile:
    if not agent.file:
        raise SettingsError(
            f"{agent.title} keeps its settings in no file that can be written here: `sluice connect"
            f" {agent.name}` says what to do"
        )
    return AgentFile(agent.name, agent.path_of_file())


def _write(agent: Agent, to: Pointed, *, yes: bool) -> int:
    file = _file(agent)
    content = file.text(agent.settings(to), drops=agent.unset)
    if not yes:
        if not sys.stdin.isatty():
            raise SettingsError("nobody can be asked here: say --yes to write")
        shown = yaml.safe_dump(
            agent.settings(Pointed(to.url, f"{to.key[:12]}...", to.model)), sort_keys=False
        )
        typer.echo(f"{file.path} gets:\n\n{shown}", err=True)
        if not typer.confirm("Write it?", err=True):
            return 1
    file.write(content)
    _say(f"written to {file.path}; `sluice connect {agent.name} --undo` puts back what was there")
    if agent.note:
        _say(to.fill(agent.note))
    return 0


def _undo(agent: Agent) -> int:
    file = _file(agent)
    if not file.undo():
        _say(f"nothing of Sluice is in {file.path}")
        return 1
    _say(
        f"{file.path} is as it was"
        if file.path.exists()
        else f"{file.path} is gone, as it was before"
    )
    return 0


def _check(agent: Agent, to: Pointed) -> int:
    """Send what the agent would send, once."""
    body = {
        "model": to.model or agent.asks_for,
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "Say hello in one word."}],
    }
    status, headers, answer = agent_key.ask(to.url, agent.path, to.key, body)
    call_id = headers.get("x-sluice-call-id", "")
    if call_id:
        typer.echo(f"{to.url}{links.call(call_id)}")
    if status != 200:
        _say(
            f"the gateway refused it ({status}):"
            f" {agent_key.message(answer) or 'it did not say why'}"
        )
        return 1
    _say(f"{body['model']} answered {agent.title}'s request")
    return 0


def _say(sentence: str) -> None:
    typer.echo(wrapped(f"sluice: {sentence}", sys.stderr), err=True)
