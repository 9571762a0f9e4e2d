"""Runs commands that run others in ways of their own: sudo and its like, ssh, containers, and those
with an option that is a command."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from policy.effects.shell.run import decoding, interpreters, programs, shells
from policy.effects.shell.run.for_each_word import fd, find, parallel, xargs
from policy.effects.shell.run.git import git
from policy.effects.shell.run.indirect_options import cmake
from policy.effects.shell.run.interpreters import after
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_values, running
from policy.effects.shell.run.state import Invocation, Out, base_name, texts
from policy.effects.shell.run.values import UNKNOWN, Field, is_known
from policy.effects.shell.run.wrapper_table import (
    CONTAINERS,
    Wrap,
    after_options,
    behind,
    in_container,
    is_alone,
)
from policy.word_tables import by_word

_LOCAL_COMMAND = re.compile(r"(?i)(?:proxy|local|knownhosts)command[= ]\s*(.*)", re.DOTALL)


def wrapped(machine: Machine, call: Invocation, name: str, wrap: Wrap) -> Out:
    """Run the command behind a wrapper."""
    inner, options = behind(wrap, call)
    while wrap.skip and inner and inner[0].text.startswith("-"):
        inner = inner[1:]
    is_root = call.is_root or wrap.is_root
    if name in ("command", "type") and any(option in ("-v", "-V") for option in options):
        place = machine.emit(call)
        return Out(decoding.printed("which", texts(inner), None) or "", [place])
    if name == "sudo" and any(re.fullmatch(r"-[a-zA-Z]*[lvKkVe]", option) for option in options):
        return machine.noted(replace(call, is_root=True))
    assigns = list(call.assigns)
    while (
        inner
        and wrap.is_root
        and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", inner[0].text, re.DOTALL))
    ):
        assigns.append((match[1], match[2]))
        inner = inner[1:]
    around = replace(
        call,
        is_root=is_root,
        assigns=assigns,
        place=wrap.place if wrap.place != "here" else call.place,
    )
    is_shell = name == "sudo" and any(
        re.fullmatch(r"-[a-zA-Z]*[si]|--shell|--login", option) for option in options
    )
    if wrap.is_own or not inner:
        place = machine.emit(replace(around, place=call.place))
        if not inner:
            if name == "exec" and (call.stdin is not None or call.file is not None):
                machine.around = replace(machine.around, stdin=call.stdin, file=call.file)
            if is_shell or name in ("chroot", "unshare", "nsenter"):
                return from_outer(machine, around, name)
            return machine.unknown_output(place)
    if (wrap.is_joined and "-x" not in options and "--exec" not in options) or is_shell:
        return run_joined(machine, around, inner, name)
    if name == "capsh":
        return shells.shell(machine, around.inner([Field("sh"), *inner], name))
    return machine.dispatch(machine, around.inner(inner, name))


def from_outer(machine: Machine, call: Invocation, name: str) -> Out:
    """A wrapper that starts a shell, which reads what the wrapper would read."""
    return shells.from_stdin(machine, call.inner([Field("sh")], name), [])


def run_joined(machine: Machine, call: Invocation, fields: list[Field], name: str) -> Out:
    """Run words as one text for a shell."""
    return machine.program(" ".join(texts(fields)), replace(call, wrappers=(*call.wrappers, name)))


def env(machine: Machine, call: Invocation) -> Out:
    """`env`: assignments, options and a command; `-S` splits a text into all that."""
    fields = call.fields
    place = next(
        (
            at
            for at in range(1, len(fields))
            if fields[at].text.startswith(("-S", "-vS", "--split-string", "-iS"))
        ),
        0,
    )
    if place and all(field.text.startswith("-") or "=" in field.text for field in fields[1:place]):
        match = re.match(r"-[vi]?S=?(.*)|--split-string=?(.*)", fields[place].text, re.DOTALL)
        text = (match[1] or match[2] or "") if match else ""
        remaining = fields[place + 1 :]
        if not text and remaining:
            text, remaining = remaining[0].text, remaining[1:]
        return run_joined(
            machine, call, [Field("env"), Field(text.replace("\\_", " ")), *remaining], "env"
        )
    at = after_options(fields, 1, "uCPa", ("unset", "chdir", "argv0"))
    assigns = list(call.assigns)
    while at < len(fields) and (match := re.fullmatch(r"([^=]+)=(.*)", fields[at].text, re.DOTALL)):
        assigns.append((match[1], match[2]))
        at += 1
    if at >= len(fields):
        return machine.noted(replace(call, assigns=assigns))
    return machine.dispatch(machine, replace(call, assigns=assigns).inner(fields[at:], "env"))


def busybox(machine: Machine, call: Invocation) -> Out:
    """`busybox rm`: the command is a word of it."""
    if len(call.fields) < 2 or call.at(1).startswith("-"):
        return machine.noted(call)
    return machine.dispatch(machine, call.inner(call.fields[1:], base_name(call)))


def su(machine: Machine, call: Invocation) -> Out:
    """`su -c text user`, `runuser -u user command`."""
    name = base_name(call)
    around = replace(call, is_root=True)
    options = after(call.words, "-c|--command|--session-command")
    text = next(iter(options), "") or _last_of(call, r"-[a-z]*c")
    machine.emit(around)
    if text:
        return run_joined(machine, around, [Field(text)], name)
    if name == "runuser" and "-u" in call.words:
        at = after_options(call.fields, 1, "ugGsw", ("user", "group", "shell"))
        if at < len(call.fields):
            return machine.dispatch(machine, around.inner(call.fields[at:], name))
    return from_outer(machine, around, name)


def flock(machine: Machine, call: Invocation) -> Out:
    """`flock file command`, `flock file -c text`."""
    at = after_options(call.fields, 1, "wE", ("timeout", "conflict-exit-code")) + 1
    place = machine.emit(call)
    if call.at(at) in ("-c", "--command"):
        return run_joined(machine, call, call.fields[at + 1 : at + 2], "flock")
    return (
        machine.dispatch(machine, call.inner(call.fields[at:], "flock"))
        if at < len(call.fields)
        else machine.unknown_output(place)
    )


def ssh(machine: Machine, call: Invocation) -> Out:
    """`ssh host command`: it runs on another host; so does what it reads, if there is no
    command."""
    at = after_options(call.fields, 1, "BbcDEeFIiJLlmOopQRSWw", ())
    place = machine.emit(call)
    host = call.at(at)
    run_values(machine, call, _local_commands(call.words), "ssh")
    at = after_options(call.fields, at + 1, "BbcDEeFIiJLlmOopQRSWw", ())
    remote = replace(
        call, place="remote", host=UNKNOWN.sub("", host)[:200], wrappers=(*call.wrappers, "ssh")
    )
    if at < len(call.fields):
        return machine.program(" ".join(texts(call.fields[at:])), remote)
    if call.stdin is not None and any(map(is_known, call.stdin.text)):
        return machine.program(call.stdin.text, replace(remote, stdin=None))
    return machine.unknown_output(place)


def _local_commands(words: list[str]) -> list[str]:
    """The programs by which `ssh` connects."""
    return [match[1] for value in after(words, "-o") if (match := _LOCAL_COMMAND.match(value))]


def container(machine: Machine, call: Invocation) -> Out:
    """`docker exec`, `docker run`: what runs there runs in a container."""
    place = machine.emit(call)
    fields, entry = in_container(call)
    inside = replace(call, place="image" if is_alone(call) else "container")
    fields = [Field(entry), *fields] if entry else fields
    return (
        machine.dispatch(machine, inside.inner(fields, base_name(call)))
        if fields
        else machine.unknown_output(place)
    )


def script(machine: Machine, call: Invocation) -> Out:
    """`script -c text file`."""
    place = machine.emit(call)
    text = next(iter(after(call.words, "-c|--command")), "") or _last_of(call, r"-[a-z]*c")
    return (
        run_joined(machine, call, [Field(text)], "script")
        if text
        else machine.unknown_output(place)
    )


def _last_of(call: Invocation, option: str) -> str:
    return next(
        (
            call.at(place + 1)
            for place, field in enumerate(call.fields)
            if re.fullmatch(option, field.text)
        ),
        "",
    )


def _socket_programs(words: list[str]) -> list[str]:
    """`nc -e command`, `socat ... exec:command`: a program with a socket for its input and
    output."""
    named = re.compile(r"(?i)(?:exec|system):\s*(?:\"|')?([^,\"']+)")
    return [
        *after(words, "-e|-c|--exec|--sh-exec"),
        *(text for word in words for text in named.findall(word)),
    ]


def behind_dashes(machine: Machine, call: Invocation) -> Out:
    """Programs that run what stands behind `--`, or else their first words that are no options."""
    name = base_name(call)
    has_dashes = any(field.text == "--" for field in call.fields)
    return wrapped(
        machine, call, name, Wrap("efwidpP", behind="--" if has_dashes else "", is_own=True)
    )


def _hooks_of_packages(words: list[str]) -> list[str]:
    """`apt -o DPkg::Pre-Invoke::=command`: a setting that is a command."""
    pairs = [text.partition("=") for text in after(words, "-o|--option")]
    return [value for name, _, value in pairs if "invoke" in name.lower()]


_HANDLERS: dict[str, Callable[[Machine, Invocation], Out]] = {
    "env genv": env,
    "busybox toybox": busybox,
    "su runuser": su,
    "flock": flock,
    "ssh autossh mosh dbclient": ssh,
    "sshpass watchexec gnome-terminal": behind_dashes,
    "xargs gxargs": xargs,
    "find gfind": find,
    "fd fdfind": fd,
    "parallel": parallel,
    "git": git,
    "script": script,
    "gdb": programs.debugger,
    "cmake": cmake,
    "tar gtar bsdtar": running(programs.of_tar),
    "make gmake": programs.make,
    "at batch crontab": programs.later,
    "tmux screen": programs.terminal,
    "npx npm pnpm bunx yarn pnpx": programs.package_runner,
    "nc ncat netcat socat": running(_socket_programs),
    "scp sftp": running(lambda words: [*_local_commands(words), *after(words, "-S")]),
    "apt-get apt": running(_hooks_of_packages),
    " ".join(CONTAINERS): container,
}
_RUN_OPTIONS = """
rsync : -e|--rsh|--rsync-path
zip : -TT|--unzip-command
man : -P|--pager|-H
nix-shell : --run|--command
sg newgrp smbclient : -c
split : --filter
cpio : --rsh-command
vagrant : -c|--command
"""
"""Tools that run the values of these options."""
_RUN_ELSEWHERE = """
ansible : -a|--args
salt : cmd.run
gcloud aws : --command
pssh : -i
heroku : run
"""
"""Tools that do so on other hosts."""
SPECIAL = {
    **{name: handler for names, handler in _HANDLERS.items() for name in names.split()},
    **{name: interpreters.options(text) for name, text in by_word(_RUN_OPTIONS).items()},
    **{
        name: interpreters.options(text, is_elsewhere=True)
        for name, text in by_word(_RUN_ELSEWHERE).items()
    },
}
"""Commands that run others in ways of their own."""
