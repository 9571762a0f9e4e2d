"""Commands that run another command given after them: which of their words are their own, and where
the other begins.

This is data about programs. What it omits is caught by effect: an unknown program followed by a
known dangerous one (`dispatching`).
"""

import re
from typing import Literal

import msgspec

from policy.effects.shell.run.state import Invocation
from policy.effects.shell.run.values import Field
from policy.word_tables import by_word


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


_TABLE = r"""
adb : -stP own remote behind=shell
pdsh : -wxl own remote
dsh : -mg own remote
apptainer singularity : skip=1 own container behind=exec
multipass incus kubectl oc lxc : own container behind=--
wsl : -du own
ip direnv : skip=1 own behind=exec
shx nohup setsid command builtin noglob nocorrect - unbuffer chronic ifne eatmydata catchsegv tsocks
    torify prlimit linux32 linux64 i386 x86_64 capsh dbus-run-session dbus-launch firejail
    flatpak-spawn entr xdg-terminal-exec dumb-init ts script-wrapper :
xterm urxvt rxvt konsole alacritty x-terminal-emulator st xfce4-terminal lxterminal : own behind=-e
time : -fo --format --output
gtime : -fo
exec : -a
nice : -n --adjustment
ionice : -cnpPu --class --classdata
timeout gtimeout : -ks --kill-after --signal skip=1
stdbuf : -ioe --input --output --error
fakeroot : -lsb
proxychains proxychains4 : -f
torsocks : -uaPp
rlwrap : -bcCDfghHlmMOpPqsStwz
taskset setarch setuidgid envuidgid s6-setuidgid : skip=1
chrt : -TPD skip=1
numactl : -CNiplm
cpulimit : -lpe
softlimit : -acdfmorst
chpst : -ueoOfmlLbnP012
setpriv : --reuid --regid --groups
xvfb-run : -enpsfw
faketime : -f skip=1
caffeinate : -tw
systemd-inhibit : --what --who --why --mode
systemd-cat : -tp
systemd-run : -puGEM --unit --uid --gid --property --slice --setenv own
pkexec : --user root
gosu su-exec : skip=1 root
calife : root
sudo : -ugpCDhRTUrt --user --group --prompt --chdir --host --chroot --command-timeout --other-user
    --role root
doas : -uC root
gksu gksudo kdesudo run0 : -u root
sudoedit : -u
chroot : --userspec --groups skip=1 own
unshare : -SG --root --wd own
nsenter : -tSG --target --setuid own
strace : -eopsSuaIbOPXE own
ltrace : -eopsunaAFlDSw own
valgrind : own
perf : -eopFg skip=1 own
gdb : -exdp --ex --args own
bwrap : behind=--
proot : -rbwqS
watch : -ndq --interval joined
retry : -td
ssh-agent : -at
start-stop-daemon : -pxnuacdk behind=--
tini : -ep
multitime : -niq
hyperfine : -wmMrpcS joined
lxc-attach : -n own container behind=--
uv poetry pipenv pdm hatch rye : own behind=run
bundle : own behind=exec
op aws-vault doppler dotenv : own behind=--
conda : -np own behind=run
vagrant : own remote behind=--
nix : own behind=-c
"""
"""`NAMES : OPTIONS`: the options that take the next word (letters in one, `--long`), and what else
holds: so many words to `skip`, `own`, `root`, `joined`, its place, what the command stands
`behind`."""


def _row(text: str) -> Wrap:
    parts = text.split()
    settings = dict(part.split("=", 1) for part in parts if part[0] != "-" and "=" in part)
    return Wrap(
        "".join(part[1:] for part in parts if re.match("-[^-]", part)),
        tuple(part[2:] for part in parts if part.startswith("--")),
        int(settings.get("skip", "0")),
        "own" in parts,
        "root" in parts,
        "joined" in parts,
        "container" if "container" in parts else "remote" if "remote" in parts else "here",
        settings.get("behind", ""),
    )


WRAPS = {name: _row(text) for name, text in by_word(_TABLE).items()}
"""Wrappers whose command is the rest of their words."""
_OPTION = re.compile(r"-[^-]|--.")
_LOADER = re.compile(r"ld(?:-linux[\w.-]*|-musl[\w.-]*|\.so[\w.]*)")
CONTAINERS = frozenset("docker podman nerdctl docker-compose podman-compose".split())
_OF_CONTAINERS = frozenset(
    """add-host attach blkio-weight cap-add cap-drop cidfile cpu-shares cpus cpuset-cpus device dns e entrypoint env env-file expose
    gpus h hostname ip l label link log-driver m memory mount n name net network network-alias p pid
    platform publish pull restart runtime
    security-opt shm-size stop-signal sysctl tmpfs u user ulimit userns v volume volumes-from w
    workdir detach-keys index a H context c host
    config f file project-name""".split()
)
"""Their options that take the next word."""


_OF_RUNNERS = tuple(
    """
    with with-requirements with-editable python extra group only-group package directory project
    env-file index-url extra-index-url index default-index refresh-package env name prefix
""".split()
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
