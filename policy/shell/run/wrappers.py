"""Runs commands that run others in ways of their own: sudo and its like, ssh, containers, and those
with an option that is a command."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from policy.shell.run import decoding, interpreters, programs, shells
from policy.shell.run.git import git
from policy.shell.run.indirect_options import cmake
from policy.shell.run.interpreters import after
from policy.shell.run.machine import Machine
from policy.shell.run.many import fd, find, parallel, xargs
from policy.shell.run.nested_texts import run_values
from policy.shell.run.state import Invocation, Out, base_name, texts
from policy.shell.run.values import UNKNOWN, Field, is_known
from policy.shell.run.wrapping import (
    CONTAINERS,
    Wrap,
    after_options,
    behind,
    in_container,
    is_alone,
)

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
        return machine.unknown_output(machine.emit(replace(call, is_root=True)))
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
        return machine.unknown_output(machine.emit(replace(call, assigns=assigns)))
    return machine.dispatch(machine, replace(call, assigns=assigns).inner(fields[at:], "env"))


def busybox(machine: Machine, call: Invocation) -> Out:
    """`busybox rm`: the command is a word of it."""
    if len(call.fields) < 2 or call.at(1).startswith("-"):
        return machine.unknown_output(machine.emit(call))
    return machine.dispatch(machine, call.inner(call.fields[1:], base_name(call)))


def su(machine: Machine, call: Invocation) -> Out:
    """`su -c text user`, `runuser -u user command`."""
    words = texts(call.fields[1:])
    name = base_name(call)
    around = replace(call, is_root=True)
    text = next(iter(after(words, "-c", "--command", "--session-command")), None)
    joined = next(
        (place for place, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), -1
    )
    if text is None and 0 <= joined < len(words) - 1:
        text = words[joined + 1]
    machine.emit(around)
    if text is not None:
        return machine.program(
            text, replace(around, wrappers=(*call.wrappers, name), stdin=call.stdin)
        )
    if name == "runuser" and "-u" in words:
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
    words = texts(call.fields[1:])
    local = [match[1] for value in after(words, "-o") if (match := _LOCAL_COMMAND.match(value))]
    run_values(machine, call, local, "ssh")
    at = after_options(call.fields, at + 1, "BbcDEeFIiJLlmOopQRSWw", ())
    remote = replace(
        call, place="remote", host=UNKNOWN.sub("", host)[:200], wrappers=(*call.wrappers, "ssh")
    )
    if at < len(call.fields):
        return machine.program(" ".join(texts(call.fields[at:])), remote)
    if call.stdin is not None and any(map(is_known, call.stdin.text)):
        return machine.program(call.stdin.text, replace(remote, stdin=None))
    return machine.unknown_output(place)


def ssh_copy(machine: Machine, call: Invocation) -> Out:
    """`scp`, `sftp`: the programs that they use to connect."""
    place = machine.emit(call)
    words = texts(call.fields[1:])
    local = [match[1] for value in after(words, "-o") if (match := _LOCAL_COMMAND.match(value))]
    run_values(machine, call, [*local, *after(words, "-S")], machine.drafts[place].name)
    return machine.unknown_output(place)


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
    text = next(iter(after(texts(call.fields[1:]), "-c", "--command")), "") or _last_of(
        call, r"-[a-z]*c"
    )
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


def socket_programs(machine: Machine, call: Invocation) -> Out:
    """`nc -e command`, `socat ... exec:command`: a program with a socket for its input and
    output."""
    place = machine.emit(call)
    words = texts(call.fields[1:])
    runs = after(words, "-e", "-c", "--exec", "--sh-exec")
    runs += [
        match[1]
        for word in words
        for match in re.finditer(r"(?i)(?:exec|system):\s*(?:\"|')?([^,\"']+)", word)
    ]
    run_values(machine, call, runs, machine.drafts[place].name)
    return machine.unknown_output(place)


def behind_dashes(machine: Machine, call: Invocation) -> Out:
    """Programs that run what stands behind `--`, or else their first words that are no options."""
    name = base_name(call)
    has_dashes = any(field.text == "--" for field in call.fields)
    return wrapped(
        machine, call, name, Wrap("efwidpP", behind="--" if has_dashes else "", is_own=True)
    )


def package_settings(machine: Machine, call: Invocation) -> Out:
    """`apt -o DPkg::Pre-Invoke::=command`: a setting that is a command."""
    place = machine.emit(call)
    settings = after(texts(call.fields[1:]), "-o", "--option")
    pairs = [text.partition("=") for text in settings]
    run_values(
        machine, call, [value for name, _, value in pairs if "invoke" in name.lower()], "apt"
    )
    return machine.unknown_output(place)


def remote(*names: str) -> Callable[[Machine, Invocation], Out]:
    """Make the handler of a tool that runs the values of these options on other hosts."""

    def handle(machine: Machine, call: Invocation) -> Out:
        place = machine.emit(call)
        run_values(
            machine,
            replace(call, place="remote"),
            after(texts(call.fields[1:]), *names),
            machine.drafts[place].name,
        )
        return machine.unknown_output(place)

    return handle


SPECIAL: dict[str, Callable[[Machine, Invocation], Out]] = {
    "env": env,
    "genv": env,
    "busybox": busybox,
    "toybox": busybox,
    "su": su,
    "runuser": su,
    "flock": flock,
    "ssh": ssh,
    "autossh": ssh,
    "mosh": ssh,
    "dbclient": ssh,
    "sshpass": behind_dashes,
    "watchexec": behind_dashes,
    "gnome-terminal": behind_dashes,
    "xargs": xargs,
    "gxargs": xargs,
    "find": find,
    "gfind": find,
    "fd": fd,
    "fdfind": fd,
    "parallel": parallel,
    "git": git,
    "script": script,
    "gdb": programs.debugger,
    "cmake": cmake,
    "tar": programs.tar,
    "gtar": programs.tar,
    "bsdtar": programs.tar,
    "make": programs.make,
    "gmake": programs.make,
    "at": programs.later,
    "batch": programs.later,
    "crontab": programs.later,
    "tmux": programs.terminal,
    "screen": programs.terminal,
    "npx": programs.package_runner,
    "npm": programs.package_runner,
    "pnpm": programs.package_runner,
    "bunx": programs.package_runner,
    "yarn": programs.package_runner,
    "pnpx": programs.package_runner,
    "nc": socket_programs,
    "ncat": socket_programs,
    "netcat": socket_programs,
    "socat": socket_programs,
    "rsync": interpreters.options("-e", "--rsh", "--rsync-path"),
    "zip": interpreters.options("-TT", "--unzip-command"),
    "man": interpreters.options("-P", "--pager", "-H"),
    "nix-shell": interpreters.options("--run", "--command"),
    "sg": interpreters.options("-c"),
    "newgrp": interpreters.options("-c"),
    "scp": ssh_copy,
    "sftp": ssh_copy,
    "split": interpreters.options("--filter"),
    "cpio": interpreters.options("--rsh-command"),
    "vagrant": interpreters.options("-c", "--command"),
    "smbclient": interpreters.options("-c"),
    "apt-get": package_settings,
    "apt": package_settings,
    "ansible": remote("-a", "--args"),
    "salt": remote("cmd.run"),
    "gcloud": remote("--command"),
    "pssh": remote("-i"),
    "aws": remote("--command"),
    "heroku": remote("run"),
} | dict.fromkeys(CONTAINERS, container)
"""Commands that run others in ways of their own."""
