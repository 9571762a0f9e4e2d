"""Options of a command that are not in its words: in variables, and in settings files that the text
wrote."""

import re
from itertools import pairwise

from msgspec.structs import replace

from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_values
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import Field

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
_FILE_OF_CURL = re.compile(r"(?:-[a-zA-Z]{0,9}K|--config=?)(.*)", re.DOTALL)
_FILE_OF_SSH = re.compile(r"-[a-zA-Z]{0,9}F(.*)", re.DOTALL)
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
        variables = ("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT")
        if any(_variable(machine, call, variable) for variable in variables) or any(
            text.startswith("--config-env") for text in call.words[:_MAX_SETTINGS]
        ):
            machine.unsure("name: settings of git that may hold commands")
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
        for option, behind in pairwise([*call.words, ""]):
            match = (_FILE_OF_CURL if name == "curl" else _FILE_OF_SSH).fullmatch(option)
            path = "" if match is None else match[1] or behind
            if path == "-" or (path and machine.read(path) is not None):
                machine.unsure("name: options in a file that the text makes")
    return (
        replace(call, fields=[call.fields[0], *map(Field, options), *call.fields[1:]])
        if options
        else call
    )


def _variable(machine: Machine, call: Invocation, name: str) -> str:
    exported = machine.variables.values.get(name) if name in machine.variables.exported else None
    value = dict(call.assigns).get(name, exported)
    return value if isinstance(value, str) else ""


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
