"""`git`: its aliases and settings may be commands, and some of its subcommands run others."""

import re

from msgspec.structs import replace

from policy.shell.run.interpreters import after
from policy.shell.run.machine import Machine
from policy.shell.run.nested_texts import run_values
from policy.shell.run.state import Invocation, Out, texts
from policy.shell.run.values import Field

_RUNS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy|hookspath)|sequence\.editor"
    r"|diff\.(?:.*\.)?(?:external|command|textconv)|pager\.\w+|"
    r"(?:merge|diff)tool\.[^=]*\.cmd|filter\..*\.(?:clean|smudge|process)"
    r"|credential\.(?:.*\.)?helper|gpg\.(?:.*\.)?program|interactive\.difffilter|"
    r"protocol\.ext\.allow|browser\..*\.cmd|man\..*\.cmd|uploadpack\.packobjectshook"
    r"|merge\..*\.driver|trailer\..*\.command)=(.*)",
    re.IGNORECASE | re.DOTALL,
)


def git(machine: Machine, call: Invocation) -> Out:
    """`git`: aliases and settings that are commands, and the subcommands that run others."""
    fields = call.fields
    at = 1
    aliases = dict(machine.git_aliases)
    while at < len(fields) and fields[at].text.startswith("-"):
        text = fields[at].text
        setting = (
            fields[at + 1].text
            if text == "-c" and at + 1 < len(fields)
            else text[2:]
            if text.startswith("-c") and "=" in text
            else ""
        )
        name, _, value = setting.partition("=")
        if name.lower().startswith("alias."):
            aliases[name[6:].lower()] = value
        elif match := _RUNS.fullmatch(setting):
            run_values(machine, call, [match[1].lstrip("!")], "git")
        at += (
            2
            if text
            in (
                "-c",
                "-C",
                "--git-dir",
                "--work-tree",
                "--namespace",
                "--super-prefix",
                "--config-env",
            )
            else 1
        )
    sub = call.at(at).lower()
    arguments = fields[at + 1 :]
    alias = aliases.get(sub)
    if alias is not None and "git" not in call.wrappers:
        if alias.startswith("!"):
            machine.emit(call)
            return machine.program(
                f"{alias[1:]} {' '.join(texts(arguments))}",
                replace(call, wrappers=(*call.wrappers, "git")),
            )
        return machine.dispatch(
            machine,
            call.inner([fields[0], *[Field(word) for word in alias.split()], *arguments], "git"),
        )
    place = machine.emit(call)
    words = texts(arguments)
    if sub == "config":
        files = after(words, "--file", "-f")
        plain_words = [
            word
            for word in words
            if not word.startswith("-") and word not in ("set", "get", "add", *files)
        ]
        if len(plain_words) > 1 and plain_words[0].lower().startswith("alias."):
            machine.git_aliases[plain_words[0][6:].lower()] = plain_words[1]
            run_values(
                machine, call, [plain_words[1][1:]] if plain_words[1].startswith("!") else [], "git"
            )
        elif len(plain_words) > 1 and (
            match := _RUNS.fullmatch(f"{plain_words[0]}={plain_words[1]}")
        ):
            run_values(machine, call, [match[1].lstrip("!")], "git")
    elif sub == "clone":
        settings = [
            match[1] for text in after(words, "-c", "--config") if (match := _RUNS.fullmatch(text))
        ]
        run_values(machine, call, [*settings, *after(words, "-u", "--upload-pack")], "git")
    elif sub == "rebase":
        run_values(machine, call, after(words, "-x", "--exec"), "git")
    elif sub == "filter-branch":
        run_values(
            machine,
            call,
            after(
                words,
                "--tree-filter",
                "--index-filter",
                "--msg-filter",
                "--env-filter",
                "--parent-filter",
                "--commit-filter",
                "--setup",
            ),
            "git",
        )
    elif sub == "submodule" and "foreach" in words:
        run_values(machine, call, [" ".join(words[words.index("foreach") + 1 :])], "git")
    elif sub == "bisect" and words[:1] == ["run"] and len(arguments) > 1:
        machine.dispatch(machine, call.inner(arguments[1:], "git"))
    elif sub in ("difftool", "mergetool", "grep", "fetch", "pull", "clone", "push", "ls-remote"):
        run_values(
            machine,
            call,
            after(
                words,
                "-x",
                "--extcmd",
                "--upload-pack",
                "--receive-pack",
                "--open-files-in-pager",
                "-O",
            ),
            "git",
        )
    return machine.unknown_output(place)
