"""Options of a command that are not in its words: in variables, and in settings files that the text
wrote."""

import re
from itertools import pairwise

from msgspec.structs import replace

from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_values
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import Field, is_known

_OPTIONS_IN = {
    "make": "MAKEFLAGS",
    "gmake": "MAKEFLAGS",
    "tar": "TAR_OPTIONS",
    "gtar": "TAR_OPTIONS",
    "perl": "PERL5OPT",
    "ruby": "RUBYOPT",
    "less": "LESS",
}
_MAX_SETTINGS = 8
_SETTING = re.compile(
    r"[ \t]{0,20}-{0,2}([\w-]{1,40})(?:[ \t]{0,9}[=:][ \t]{0,9}|[ \t]{1,9}|$)\"?([^\"\n]{0,2000})"
)
_CONNECTS = re.compile(
    r"(?im)^[ \t]{0,20}(?:(?:proxy|local|knownhosts)command|match[ \t].{0,200}\bexec)["
    r" \t=]{1,20}\"?([^\"\n]{1,2000})"
)
_TOOLS = {
    "remove": "rm",
    "rm": "rm",
    "remove_directory": "rm",
    "rename": "mv",
    "copy": "cp",
    "copy_directory": "cp",
    "env": "env",
    "touch": "touch",
}
_COMPILERS = re.compile(
    r"(?:SHELL|CC|CXX|CPP|LD|AR|AS|RM|INSTALL|PYTHON|\w*(?:CMD|COMMAND|SHELL|EXEC))[:?+]?=(.+)",
    re.DOTALL,
)
_CALLS = re.compile(r"\$\(shell[ \t]([^()]{1,400})")
_PLAIN_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z|k|a)?sh(?:\.exe)?")


def apply_configured_options(machine: Machine, call: Invocation, name: str) -> Invocation:
    """Return the call with the options from variables and files."""
    options: list[str] = []
    if (variable := _OPTIONS_IN.get(name)) is not None:
        options = [
            text
            for text in re.split(r"\s+(?=--)", _variable(machine, call, variable))
            if text.startswith(("-", "+"))
        ]
    elif name == "git":
        for text in call.words[:_MAX_SETTINGS]:
            key, _, variable = text.removeprefix("--config-env=").partition("=")
            options += (
                ["-c", f"{key}={_variable(machine, call, variable)}"]
                if text.startswith("--config-env=")
                else []
            )
        for setting in re.findall(
            r"'([^'\n]{1,400})'", _variable(machine, call, "GIT_CONFIG_PARAMETERS")
        )[:_MAX_SETTINGS]:
            options += ["-c", setting]
        for number in range(_MAX_SETTINGS):
            if key := _variable(machine, call, f"GIT_CONFIG_KEY_{number}"):
                options += ["-c", f"{key}={_variable(machine, call, f'GIT_CONFIG_VALUE_{number}')}"]
    elif name in ("strace", "ltrace"):
        run_values(
            machine,
            call,
            [
                text[1:]
                for option, text in pairwise(texts(call.fields))
                if option == "-o" and text[:1] == "|"
            ],
            name,
        )
    elif name in ("curl", "ssh", "scp", "sftp"):
        return _by_file(machine, call, name)
    return (
        replace(call, fields=[call.fields[0], *map(Field, options), *call.fields[1:]])
        if options
        else call
    )


def _variable(machine: Machine, call: Invocation, name: str) -> str:
    exported = machine.variables.values.get(name) if name in machine.variables.exported else None
    value = dict(call.assigns).get(name, exported)
    return value if isinstance(value, str) else ""


def _by_file(machine: Machine, call: Invocation, name: str) -> Invocation:
    """`curl -K file`, `ssh -F file`: with a text that is known, what it says."""
    option, long = ("-K", "--config") if name == "curl" else ("-F", "-F")
    for place, field in enumerate(call.fields):
        if (
            field.text == long or re.fullmatch(rf"-[a-zA-Z]{{0,9}}{option[1]}", field.text)
        ) and place + 1 < len(call.fields):
            path, end = call.at(place + 1), place + 2
        elif (
            field.text.startswith((f"{long}=", option))
            and len(field.text) > 2
            and not field.text.startswith(f"{option}=")
        ):
            path, end = field.text.removeprefix(f"{long}=").removeprefix(option), place + 1
        else:
            continue
        known = call.stdin if path == "-" else machine.read(path)
        if known is None or not any(map(is_known, known.text)):
            return call
        machine.budget.spend(4 * len(known.text))
        fields: list[Field] = []
        if name != "curl":
            run_values(
                machine,
                call,
                [match[1] for match in _CONNECTS.finditer(known.text)][:_MAX_SETTINGS],
                name,
            )
        for line in known.text.splitlines()[:64] if name == "curl" else ():
            if (match := _SETTING.match(line)) is not None:
                fields += [
                    Field(f"-{match[1]}" if len(match[1]) == 1 else f"--{match[1]}"),
                    *([Field(match[2])] if match[2] else []),
                ]
        return replace(call, fields=[*call.fields[:place], *fields, *call.fields[end:]])
    return call


def run_make_variables(machine: Machine, call: Invocation) -> None:
    """`make SHELL=... CC=...`: values that recipes run, for the first of its commands."""
    for text in call.words:
        run_values(
            machine, call, [inner[1] for inner in _CALLS.finditer(text)][:_MAX_SETTINGS], "make"
        )
        if (match := _COMPILERS.fullmatch(text)) is None:
            continue
        run_values(machine, call, [match[1]] if " " in match[1] else [], "make")
        if text.startswith("SHELL") and not _PLAIN_SHELL.fullmatch(match[1]):
            machine.unsure("name: a shell of its own for the recipes")


def cmake(machine: Machine, call: Invocation) -> Out:
    """`cmake -E rm -rf x`: a tool of its own that does what the system's does."""
    if call.at(1) == "-E" and (tool := _TOOLS.get(call.at(2))) is not None:
        return machine.dispatch(machine, call.inner([Field(tool), *call.fields[3:]], "cmake"))
    return machine.noted(call)
