"""Small facts about commands, for effects and data flow: shells, decoders, what prints what, and
which commands only query."""

import re

from policy.effects.effect import Scope
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.findings import Findings

SHELLS = frozenset(
    "sh bash dash zsh ksh ksh93 mksh ash rbash fish csh tcsh eval source . busybox pwsh powershell".split()
)
SOCKET = re.compile(r"/dev/(?:tcp|udp)/([^/\s]+)/?")
_PLAIN_WRAPPERS = frozenset(
    "sudo doas su env nice ionice nohup timeout time setsid stdbuf xargs ssh tmux screen script"
    " watch chroot nix-shell unshare strace ltrace command exec builtin docker podman kubectl oc"
    " runuser flock taskset chrt unbuffer rlwrap dbus-run-session systemd-run pkexec cd poetry"
    " pipenv conda uv parallel if while for sh bash zsh dash busybox toybox eval source . trap".split()
)


def add_escape(command: Command, findings: Findings) -> None:
    """A shell that waits for words of its own: as root it is all rights; out of another program it
    is a way out of what that may do."""
    if command.place != "here" or any(
        word.text in ("--version", "--help", "-n") for word in command.words[1:]
    ):
        return
    odd = [name for name in command.wrappers if name not in _PLAIN_WRAPPERS]
    if "su" in command.wrappers or "runuser" in command.wrappers:
        # `su` itself already has the effect
        return
    if command.is_root:
        findings.add("privilege", "root", " ".join((*command.wrappers, command.name)))
    elif odd:
        findings.add("privilege", "unknown", " ".join((*command.wrappers, command.name)))


def scope_of_file(place: PathTarget) -> Scope:
    """The scope of a program that lies in a file: where nobody knows the folder, it is still this
    machine's."""
    return (
        "project"
        if place.path.startswith(".")
        else "home"
        if place.scope == "unknown"
        else place.scope
    )


HOSTS = tuple("other metadata private loopback listed unknown".split())
DECODERS = frozenset(
    "base64 base32 xxd openssl gunzip zcat gzip uudecode rev tr gpg basenc bzcat xzcat python"
    " python3 perl awk dd ascii2uni".split()
)
HIDERS = frozenset("base64 base32 xxd openssl uudecode gpg basenc ascii2uni".split())
PRINTERS: dict[str, Scope] = {
    **dict.fromkeys(("echo", "printf"), "unknown"),
    **dict.fromkeys(
        """
        git ssh-agent direnv starship zoxide brew pyenv rbenv nodenv fnm mise asdf dircolors
        kubectl docker-machine minikube opam luarocks conda register-python-argcomplete
        thefuck keychain aws gh helm ssh-keygen lesspipe pip npm resize tset gpg-agent hub
        atuin sed env export set
    """.split(),
        "project",
    ),
}


_ASKS = frozenset(
    "--help --version --usage --dry-run --dryrun --no-act --simulate --just-print --what-if".split()
)
_NOT_ASKED = frozenset(
    "kill docker podman nerdctl ctr ssh autossh redis-cli valkey-cli mongo mongosh find gfind nc"
    " ncat netcat socat kubectl oc echo printf".split()
)
"""What gives such a word on to others, or does its work before it reads it."""


def is_only_asked(command: Command) -> bool:
    """Is it asked only what it would do, or how it is used? Programs that do not know the option
    refuse it, and do nothing either."""
    if command.name in _NOT_ASKED:
        return False
    for word in command.words[1:]:
        if word.text == "--":
            return False
        if word.text in _ASKS:
            return True
    return False


_COMPLETES = frozenset(
    "completion completions init hook env shellenv shell-init activate --completion shellcode".split()
)
"""What programs are asked for by those whose shells take its answer for settings."""


def prints_settings(command: Command) -> bool:
    """Is it asked for what shells take as their settings, as completions?"""
    return any(word.text in _COMPLETES for word in command.words[1:3])


def feeders(command: Command) -> tuple[int, ...]:
    """Return the commands whose output this one reads, by their place; the one that stands last
    comes first."""
    first = (
        (command.stdin.command,)
        if command.stdin.kind == "command" and command.stdin.command >= 0
        else ()
    )
    return (*first, *command.stdin.others)


def prints_what_it_fetches(command: Command) -> bool:
    """Does it print what the host sends, as curl does without `-o`?"""
    return not (command.name == "git" or (command.name in ("ssh", "scp")))


def add_redirect(op: str, target: Word, findings: Findings) -> None:
    """Add what a redirect reads, writes or connects with."""
    text = target.known
    if (socket := SOCKET.match(text)) is not None:
        findings.reach(Word(socket[1]), sends=">" in op)
        return
    if op in ("<<", "<<-", "<<<", "<&") or (op == ">&" and re.fullmatch(r"\d+-?|-", text)):
        return
    if op == "<":
        place = findings.place(target)
        findings.reads.append(place)
        if place.scope in ("credentials", "device"):
            findings.read(target)
    elif ">" in op:
        findings.write(target)
        if op == "<>":
            findings.reads.append(findings.place(target))
