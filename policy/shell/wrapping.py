"""Commands that run another command given after them: which of their words are their own, and where
the other begins.

This is data about programs. What it omits is caught by effect: an unknown program followed by a
known dangerous one (`dispatching`).
"""

import re
from typing import Literal

import msgspec

from policy.shell.state import Invocation
from policy.shell.values import Field


class Wrap(msgspec.Struct, frozen=True):
    """How a wrapper's words are read. `values` and `longs`: its options that take the next word;
    `skip`: words before the command."""

    values: str = ""
    longs: tuple[str, ...] = ()
    skip: int = 0
    is_own: bool = False
    """Does something itself that effects are made of, so it is noted too."""
    is_root: bool = False
    is_joined: bool = False
    """Its words become one text for a shell."""
    place: Literal["here", "container", "remote"] = "here"
    behind: str = ""
    """The command stands behind this word, as `--`."""


WRAPS: dict[str, Wrap] = {
    "adb": Wrap("stP", behind="shell", is_own=True, place="remote"),
    "pdsh": Wrap("wxl", is_own=True, place="remote"),
    "dsh": Wrap("mg", is_own=True, place="remote"),
    "apptainer": Wrap(behind="exec", skip=1, is_own=True, place="container"),
    "singularity": Wrap(behind="exec", skip=1, is_own=True, place="container"),
    "multipass": Wrap(behind="--", is_own=True, place="container"),
    "incus": Wrap(behind="--", is_own=True, place="container"),
    "wsl": Wrap("du", is_own=True),
    "ip": Wrap(behind="exec", skip=1, is_own=True),
    "shx": Wrap(),
    **dict.fromkeys(
        (
            "xterm",
            "urxvt",
            "rxvt",
            "konsole",
            "alacritty",
            "x-terminal-emulator",
            "st",
            "xfce4-terminal",
            "lxterminal",
        ),
        Wrap(behind="-e", is_own=True),
    ),
    "nohup": Wrap(),
    "setsid": Wrap(),
    "command": Wrap(),
    "builtin": Wrap(),
    "noglob": Wrap(),
    "nocorrect": Wrap(),
    "time": Wrap("fo", ("format", "output")),
    "gtime": Wrap("fo"),
    "exec": Wrap("a"),
    "nice": Wrap("n", ("adjustment",)),
    "ionice": Wrap("cnpPu", ("class", "classdata")),
    "-": Wrap(),
    "timeout": Wrap("ks", ("kill-after", "signal"), 1),
    "gtimeout": Wrap("ks", ("kill-after", "signal"), 1),
    "stdbuf": Wrap("ioe", ("input", "output", "error")),
    "unbuffer": Wrap(),
    "chronic": Wrap(),
    "ifne": Wrap(),
    "eatmydata": Wrap(),
    "fakeroot": Wrap("lsb"),
    "catchsegv": Wrap(),
    "tsocks": Wrap(),
    "proxychains": Wrap("f"),
    "proxychains4": Wrap("f"),
    "torsocks": Wrap("uaPp"),
    "torify": Wrap(),
    "rlwrap": Wrap("bcCDfghHlmMOpPqsStwz"),
    "taskset": Wrap(skip=1),
    "chrt": Wrap("TPD", skip=1),
    "numactl": Wrap("CNiplm"),
    "prlimit": Wrap(),
    "setarch": Wrap(skip=1),
    "linux32": Wrap(),
    "linux64": Wrap(),
    "i386": Wrap(),
    "x86_64": Wrap(),
    "cpulimit": Wrap("lpe"),
    "softlimit": Wrap("acdfmorst"),
    "chpst": Wrap("ueoOfmlLbnP012"),
    "setpriv": Wrap("", ("reuid", "regid", "groups")),
    "capsh": Wrap(),
    "setuidgid": Wrap(skip=1),
    "envuidgid": Wrap(skip=1),
    "dbus-run-session": Wrap(),
    "dbus-launch": Wrap(),
    "xvfb-run": Wrap("enpsfw"),
    "faketime": Wrap("f", skip=1),
    "caffeinate": Wrap("tw"),
    "systemd-inhibit": Wrap("", ("what", "who", "why", "mode")),
    "systemd-cat": Wrap("tp"),
    "systemd-run": Wrap(
        "puGEM", ("unit", "uid", "gid", "property", "slice", "setenv"), is_own=True
    ),
    "pkexec": Wrap("", ("user",), is_root=True),
    "gosu": Wrap(skip=1, is_root=True),
    "su-exec": Wrap(skip=1, is_root=True),
    "calife": Wrap(is_root=True),
    "sudo": Wrap(
        "ugpCDhRTUrt",
        (
            "user",
            "group",
            "prompt",
            "chdir",
            "host",
            "chroot",
            "command-timeout",
            "other-user",
            "role",
        ),
        is_root=True,
    ),
    "doas": Wrap("uC", is_root=True),
    "gksu": Wrap("u", is_root=True),
    "gksudo": Wrap("u", is_root=True),
    "kdesudo": Wrap("u", is_root=True),
    "sudoedit": Wrap("u"),
    "chroot": Wrap("", ("userspec", "groups"), 1, is_own=True),
    "unshare": Wrap("SG", ("root", "wd"), is_own=True),
    "nsenter": Wrap("tSG", ("target", "setuid"), is_own=True),
    "strace": Wrap("eopsSuaIbOPXE", is_own=True),
    "ltrace": Wrap("eopsunaAFlDSw", is_own=True),
    "valgrind": Wrap(is_own=True),
    "perf": Wrap("eopFg", skip=1, is_own=True),
    "gdb": Wrap("exdp", ("ex", "args"), is_own=True),
    "firejail": Wrap(),
    "bwrap": Wrap(behind="--"),
    "proot": Wrap("rbwqS"),
    "flatpak-spawn": Wrap(),
    "watch": Wrap("ndq", ("interval",), is_joined=True),
    "entr": Wrap(),
    "retry": Wrap("td"),
    "ssh-agent": Wrap("at"),
    "xdg-terminal-exec": Wrap(),
    "start-stop-daemon": Wrap("pxnuacdk", behind="--"),
    "dumb-init": Wrap(),
    "tini": Wrap("ep"),
    "s6-setuidgid": Wrap(skip=1),
    "run0": Wrap("u", is_root=True),
    "multitime": Wrap("niq"),
    "hyperfine": Wrap("wmMrpcS", is_joined=True),
    "ts": Wrap(),
    "script-wrapper": Wrap(),
    "lxc-attach": Wrap("n", behind="--", is_own=True, place="container"),
    "uv": Wrap(behind="run", is_own=True),
    "poetry": Wrap(behind="run", is_own=True),
    "pipenv": Wrap(behind="run", is_own=True),
    "pdm": Wrap(behind="run", is_own=True),
    "bundle": Wrap(behind="exec", is_own=True),
    "hatch": Wrap(behind="run", is_own=True),
    "rye": Wrap(behind="run", is_own=True),
    "op": Wrap(behind="--", is_own=True),
    "aws-vault": Wrap(behind="--", is_own=True),
    "doppler": Wrap(behind="--", is_own=True),
    "direnv": Wrap(behind="exec", skip=1, is_own=True),
    "dotenv": Wrap(behind="--", is_own=True),
    "kubectl": Wrap(behind="--", is_own=True, place="container"),
    "oc": Wrap(behind="--", is_own=True, place="container"),
    "conda": Wrap("np", behind="run", is_own=True),
    "lxc": Wrap(behind="--", is_own=True, place="container"),
    "vagrant": Wrap(behind="--", is_own=True, place="remote"),
    "nix": Wrap(behind="-c", is_own=True),
}
"""Wrappers whose command is the rest of their words."""
_OPTION = re.compile(r"-[^-]|--.")
_LOADER = re.compile(r"ld(?:-linux[\w.-]*|-musl[\w.-]*|\.so[\w.]*)")
CONTAINERS = frozenset(("docker", "podman", "nerdctl", "docker-compose", "podman-compose"))
_OF_CONTAINERS = frozenset(
    """add-host attach blkio-weight cap-add cap-drop cidfile cpu-shares cpus cpuset-cpus device dns e entrypoint env env-file expose
    gpus h hostname ip l label link log-driver m memory mount n name net network network-alias p pid
    platform publish pull restart runtime
    security-opt shm-size stop-signal sysctl tmpfs u user ulimit userns v volume volumes-from w
    workdir detach-keys index a H context c host
    config f file project-name""".split()
)
"""Their options that take the next word."""


_OF_RUNNERS = (
    "with",
    "with-requirements",
    "with-editable",
    "python",
    "extra",
    "group",
    "only-group",
    "package",
    "directory",
    "project",
    "env-file",
    "index-url",
    "extra-index-url",
    "index",
    "default-index",
    "refresh-package",
    "env",
    "name",
    "prefix",
)
"""Options behind `run` that take the next word."""


def wrap_of(name: str) -> Wrap | None:
    """Return how the wrapper's words are read; None if the command is none."""
    known = WRAPS.get(name)
    if known is None and _LOADER.fullmatch(name):
        return Wrap("", ("library-path", "argv0", "preload"))
    return known


def behind(wrap: Wrap, call: Invocation) -> tuple[list[Field], list[str]]:
    """Return the words of the inner command, and the wrapper's options. No words: it runs none."""
    fields = call.fields
    if wrap.behind:
        place = next((at for at in range(1, len(fields)) if fields[at].text == wrap.behind), 0)
        if not place:
            return [], []
        _, options = behind(Wrap(wrap.values, wrap.longs), call)
        at = (
            after_options(fields, place + 1, "", _OF_RUNNERS)
            if wrap.behind in ("run", "exec")
            else place + 1
        )
        return fields[at + wrap.skip :], options
    at = after_options(fields, 1, wrap.values, wrap.longs)
    return fields[at + wrap.skip :], [field.text for field in fields[1:at]]


def after_options(
    fields: list[Field], at: int, values: str, longs: tuple[str, ...] | frozenset[str]
) -> int:
    """Return where the options end that begin there."""
    while at < len(fields):
        text = fields[at].text
        if text == "--":
            return at + 1
        if not _OPTION.match(text):
            return at
        if text.startswith("--"):
            at += 2 if "=" not in text and text[2:] in longs else 1
        elif len(text) > 2 and text[1:] in longs:
            at += 2
        else:
            taking = next((place for place, letter in enumerate(text[1:]) if letter in values), -1)
            at += 2 if taking >= 0 and taking == len(text) - 2 else 1
    return at


def in_container(call: Invocation) -> tuple[list[Field], str]:
    """Return the words that run in a container by `docker exec`, `docker run` and the like, and
    the options that it runs them with."""
    fields = call.fields
    at = _after_own(fields, 1)
    while at < len(fields) and fields[at].text in ("compose", "container"):
        at = _after_own(fields, at + 1)
    if at >= len(fields) or fields[at].text not in ("exec", "run"):
        return [], ""
    start = at + 1
    at = _after_own(fields, start)
    entry = ""
    for place in range(start, min(at, len(fields))):
        name, sign, value = fields[place].text.partition("=")
        if name == "--entrypoint":
            entry = value if sign else fields[place + 1].text if place + 1 < len(fields) else ""
    return fields[at + 1 :], entry


def is_alone(call: Invocation) -> bool:
    """Does `docker run` make a container that sees nothing of this machine: no folder, device,
    namespace, capability or other container?"""
    words = [field.text for field in call.fields[1:]]
    return (
        "run" in words[:3]
        and "compose" not in words[:2]
        and call.at(0).endswith(("docker", "podman", "nerdctl"))
        and not any(_SHARES.match(word) for word in words)
    )


_SHARES = re.compile(
    r"-[a-zA-Z]*v|--(?:volume|mount|volumes-from|privileged|device|cap-add|pid|ipc|uts|userns"
    r"|net(?:work)?(?:=host|\Z)|security-opt)"
)


def _after_own(fields: list[Field], at: int) -> int:
    while at < len(fields) and fields[at].text.startswith("-"):
        text = fields[at].text
        takes = "=" not in text and (
            text.lstrip("-") in _OF_CONTAINERS
            if text.startswith("--")
            else len(text) > 1 and text[-1] in _OF_CONTAINERS and len(text) <= 4
        )
        if (
            text.startswith("-")
            and not text.startswith("--")
            and len(text) > 2
            and text[-1] not in "euwvpnlmhacfH"
        ):
            takes = False
        at += 2 if takes else 1
    return at
