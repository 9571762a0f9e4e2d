"""`git`: its aliases and settings may be commands, and some of its subcommands run others."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from policy.effects.shell.run.interpreters import after
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_values
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import Field
from policy.effects.shell.run.wrapper_table import after_options
from policy.word_tables import by_word

_RUNS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy|hookspath)|sequence\.editor"
    r"|diff\.(?:.*\.)?(?:external|command|textconv)|pager\.\w+|"
    r"(?:merge|diff)tool\.[^=]*\.cmd|filter\..*\.(?:clean|smudge|process)"
    r"|credential\.(?:.*\.)?helper|gpg\.(?:.*\.)?program|interactive\.difffilter|"
    r"protocol\.ext\.allow|browser\..*\.cmd|man\..*\.cmd|uploadpack\.packobjectshook"
    r"|merge\..*\.driver|trailer\..*\.command)=(.*)",
    re.IGNORECASE | re.DOTALL,
)
_COMMANDS = by_word("""
rebase : -x|--exec
filter-branch :
    --tree-filter|--index-filter|--msg-filter|--env-filter|--parent-filter|--commit-filter|--setup
clone : -u|--upload-pack
difftool mergetool grep fetch pull push ls-remote :
    -x|--extcmd|--upload-pack|--receive-pack|--open-files-in-pager|-O
""")
"""Options of its subcommands whose value is a command."""


def git(machine: Machine, call: Invocation) -> Out:
    """`git`: aliases and settings that are commands, and the subcommands that run others."""
    longs = ("git-dir", "work-tree", "namespace", "super-prefix", "config-env")
    at = after_options(call.fields, 1, "cC", longs)
    options = texts(call.fields[1:at])
    settings = after(options, "-c")
    settings += [text[2:] for text in options if text.startswith("-c") and "=" in text]
    given = [text.partition("=") for text in settings if text.lower().startswith("alias.")]
    aliases = machine.git_aliases | {name[6:].lower(): value for name, _, value in given}
    _run_settings(machine, call, settings)
    sub, arguments = call.at(at).lower(), call.fields[at + 1 :]
    words = texts(arguments)
    if sub in aliases and "git" not in call.wrappers:
        alias = aliases[sub]
        if alias.startswith("!"):
            machine.emit(call)
            text = " ".join([alias[1:], *words])
            return machine.program(text, replace(call, wrappers=(*call.wrappers, "git")))
        fields = [call.fields[0], *map(Field, alias.split()), *arguments]
        return machine.dispatch(machine, call.inner(fields, "git"))
    place = machine.emit(call)
    if sub in _COMMANDS:
        run_values(machine, call, after(words, _COMMANDS[sub]), "git")
    match sub:
        case "config":
            _configured(machine, call, words)
        case "clone":
            _run_settings(machine, call, after(words, "-c|--config"))
        case "submodule" if "foreach" in words:
            text = " ".join(words[words.index("foreach") + 1 :])
            run_values(machine, call, [text], "git")
        case "bisect" if words[:1] == ["run"] and len(words) > 1:
            machine.dispatch(machine, call.inner(arguments[1:], "git"))
    return machine.unknown_output(place)


def _run_settings(machine: Machine, call: Invocation, settings: Iterable[str]) -> None:
    """Run the commands in `NAME=VALUE`."""
    matches = [match for text in settings if (match := _RUNS.fullmatch(text))]
    run_values(machine, call, [match[1].lstrip("!") for match in matches], "git")


def _configured(machine: Machine, call: Invocation, words: list[str]) -> None:
    """`git config NAME VALUE`: an alias, or a setting that is a command."""
    others = ("set", "get", "add", *after(words, "--file|-f"))
    key, value, *_ = [
        *(word for word in words if not word.startswith("-") and word not in others),
        "",
        "",
    ]
    if not key.lower().startswith("alias."):
        _run_settings(machine, call, [f"{key}={value}"])
    elif value:
        machine.git_aliases[key[6:].lower()] = value
        run_values(machine, call, [value[1:]] if value.startswith("!") else [], "git")
