"""Finds the command that a command really runs: through wrappers, functions, links, `xargs`,
`find`, containers, other hosts and git."""

import re

from msgspec.structs import replace

from policy.effects.shell.run import decoding, interpreters, programs, shells
from policy.effects.shell.run.builtins import BUILTINS
from policy.effects.shell.run.command_texts import (
    OF_THEIR_OWN,
    commands_given,
    run_subscripts,
    run_variables,
)
from policy.effects.shell.run.indirect_options import apply_configured_options
from policy.effects.shell.run.interpreters import LANGUAGES, after
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_environment
from policy.effects.shell.run.programs import SHELLS
from policy.effects.shell.run.state import Invocation, Out, base_name
from policy.effects.shell.run.values import HOME, UNKNOWN, Field, glob_text, is_known
from policy.effects.shell.run.wrapper_table import wrap_of
from policy.effects.shell.run.wrappers import SPECIAL, wrapped
from policy.effects.tools.powershell import other_shell_to_shell
from policy.patterns import compile_re2

MAX_WRAPPERS = 24


_MAX_ITEMS = 16


DANGEROUS = frozenset(
    """rm rmdir shred dd mkfs wipefs unlink truncate srm chmod chown chattr setfacl kill killall pkill reboot shutdown halt poweroff init
    iptables nft ufw useradd usermod userdel passwd visudo insmod rmmod modprobe mount umount
    systemctl service crontab at curl wget
    nc ncat socat telnet scp sftp ssh rsync bash sh zsh dash ksh python python3 perl ruby node php
    sudo su doas mkfs.ext4 mkfs.xfs
    parted fdisk sgdisk cryptsetup swapoff setcap mv tee eval base64 find xargs""".split()
)
"""Commands that a pattern for a name is tried on."""


_WRAPPED = frozenset(
    """rm shred dd mkfs wipefs truncate srm chmod chown chattr pkill iptables curl wget nc ncat socat bash sh zsh dash ksh python python3
    perl ruby node php sudo su doas mkfs.ext4 mkfs.xfs parted sgdisk setcap tee xargs""".split()
)
"""Commands that, behind an unknown program, make it a wrapper that must be looked into. Many others
are names of subcommands too."""


_HAS_WORDS = re.compile(r"-\w|--\w|[/~.*]|[a-z]+=|[^ ]*[*?]")
"""How the word behind such a command begins, if that is one: an option, a path, a pattern."""


_OF_GNU = frozenset(
    "rm rmdir cp mv dd ln chmod chown shred cat tee truncate unlink mkfifo install touch".split()
)
"""Programs that have a `g` before their name where there are others of that name."""


_WRITES = frozenset("dd mkfifo curl wget aria2c axel fetch".split())


_SUBCOMMANDS = frozenset(
    """git hg svn bzr jj docker podman nerdctl kubectl oc npm yarn pnpm bun pip pip3 pipx apt apt-get apt-cache aptitude dnf yum zypper
    pacman apk brew port snap flatpak cargo go gem composer conda helm aws gcloud gsutil az s3cmd
    rclone mc hdfs hadoop adb lxc lxd
    incus terraform gh glab systemctl service launchctl initctl rc-service update-rc.d chkconfig
    dpkg rpm man info apropos whatis
    whereis which type command help tldr echo printf grep egrep fgrep rg ag ack ls cat less more
    head tail test [ [[ expr cp mv ln
    mkdir touch stat file diff cmp wc sort uniq cut tr apt-mark dpkg-query locate pgrep pkill
    killall pidof ps kill useradd usermod
    groupadd chmod chown rm rmdir curl wget complete compgen hash alias unalias trap kextload
    crontab screen tmux msfconsole virsh
    vboxmanage nmcli ip adduser deluser gpasswd passwd chsh id groups getent su chage setfacl
    getfacl lsof fuser dlocate debtap equery
    portageq eopkg xbps-query pw udisksctl vim vi nano emacs code subl ed ex view cd source . export
    read declare local set unset let
    basename dirname realpath readlink etckeeper vault consul nomad redis-cli mysql psql sqlite3
    mongo zfs zpool btrfs lvs ctr crictl
    buildah skopeo flyctl heroku firebase rsync scp sftp ssh nc ncat socat telnet dd tee make cmake
    ninja bazel gradle mvn ant tox nox
    jq yq sed awk bc dc for select update-alternatives alternatives""".split()
)
"""Programs that are known to take such a word as text, or as a command of their own."""


_OTHER_SYSTEMS = frozenset(
    "powershell pwsh cmd wscript cscript mshta rundll32 regsvr32 reg certutil bitsadmin wmic"
    " vssadmin schtasks bcdedit diskpart".split()
)


_DRIVE = re.compile(r"[A-Za-z]:[A-Za-z\\/]")


def dispatch(machine: Machine, call: Invocation) -> Out:
    """Run one command: find what it really is, note it, and return what it prints."""
    machine.budget.spend()
    if call.assigns:
        run_environment(machine, call, call.assigns)
        run_subscripts(machine, call, [value for _, value in call.assigns])
    if not call.fields:
        return Out("", [machine.emit(call, name="")])
    while call.fields[0].text == "" and len(call.fields) > 1 and call.fields[0].is_many:
        call = replace(call, fields=call.fields[1:])
    if len(call.wrappers) > MAX_WRAPPERS:
        machine.unsure("depth: wrappers around wrappers, more than are read")
        return machine.noted(call)
    first = call.fields[0]
    text = first.text
    if text == "$" and len(call.fields) > 1:
        # A prompt that was copied with its command.
        return dispatch(machine, replace(call, fields=call.fields[1:]))
    if not is_known(text):
        return dynamic(machine, call)
    if first.is_glob and text not in ("[", "[["):
        return globbed(machine, call)
    if text in machine.functions:
        out = machine.function(
            text, replace(call, stdin=machine.read_around(call.redirs, call.stdin))
        )
        machine.write_around(call.redirs, out)
        if not machine.is_child and not call.wrappers:
            return out
        # A wrapper or a child may not know the function: then the program of that name runs.
    link = machine.links.get(text) or (
        machine.links.get(machine.path(text)) if "/" in text else None
    )
    if link is not None:
        call = replace(call, fields=[Field(link), *call.fields[1:]])
        text = link
    if text.startswith(("!", "=")) and len(text) > 1:
        if text[0] == "!":
            machine.unsure("name: a command of the history")
        else:
            call = replace(call, fields=[Field(text[1:]), *call.fields[1:]])
    name = base_name(call)
    if name[:1] == "g" and name[1:] in _OF_GNU:
        name = name[1:]
    if "/" in text and (known := machine.read(text)) is not None:
        return programs.file_of_text(machine, call, known.text)
    if name in ("powershell", "pwsh", "cmd") and is_known(" ".join(call.words)):
        # as text of a shell that does the same; `powershell` alone stands for what is not known
        inner = other_shell_to_shell(name, call.words)
        if inner != "powershell":
            return machine.program(
                inner, replace(call, wrappers=(*call.wrappers, name), stdin=None)
            )
    if name in _OTHER_SYSTEMS or _DRIVE.match(text):
        machine.unsure(f"language: `{name[:40]}` is not of a shell that is read here")
    return plain_or_more(machine, call, name)


def plain_or_more(machine: Machine, call: Invocation, name: str) -> Out:
    """Run a command by its name."""
    call = apply_configured_options(machine, call, name)
    if call.assigns:
        run_variables(machine, call, call.assigns)
    builtin = BUILTINS.get(name)
    if builtin is not None or name in ("test", "[", "wait"):
        run_subscripts(machine, call, call.words)
    if builtin is not None:
        return builtin(machine, call)
    is_unknown = (
        call.at(1) == "-m"
        or name in ("cmake", "ninja")
        or (
            name not in SHELLS
            and name not in _SUBCOMMANDS
            and name not in decoding.KNOWN
            and name not in OF_THEIR_OWN
        )
    )
    if name not in SHELLS:
        commands_given(machine, call, name, is_unknown=is_unknown)
    special = SPECIAL.get(name)
    if special is not None:
        return special(machine, call)
    if name in SHELLS:
        return shells.shell(machine, call)
    if name in LANGUAGES:
        return interpreted(machine, call, name)
    wrap = wrap_of(name)
    if wrap is not None:
        return wrapped(machine, call, name, wrap)
    return plain(machine, call, name)


def dynamic(machine: Machine, call: Invocation) -> Out:
    """Note a command whose name is not known. If all of it may be empty, the next word may be the
    command."""
    text = call.fields[0].text
    bare = UNKNOWN.sub("", text)
    written = machine.read(text)
    if written is not None and text not in machine.sources:
        return programs.file_of_text(machine, call, written.text)
    if text in machine.sources:
        return programs.file_of_text(machine, call, machine.sources[text].text)
    last = text.rpartition("/")[2]
    if "/" in text and last and is_known(last):
        # The folder alone is not known: it is the program of that name.
        return plain_or_more(machine, call, last)
    choices = machine.choices.get(text)
    if choices is not None:
        return machine.together(
            [
                dispatch(
                    machine, replace(call, fields=[*map(Field, choice.split()), *call.fields[1:]])
                )
                for choice in choices
                if choice.strip()
            ]
        )
    machine.unsure("name: which command runs is known only when it runs")
    if bare.strip("/") and not bare.endswith("/"):
        known = replace(call, fields=[Field(bare), *call.fields[1:]])
        if base_name(known) in DANGEROUS:
            dispatch(machine, known)
    elif len(call.fields) > 1 and is_known(call.at(1)) and not call.at(1).startswith("-"):
        dispatch(machine, call.inner(call.fields[1:], "$"))
    return machine.noted(call)


def globbed(machine: Machine, call: Invocation) -> Out:
    """Note a command whose name is a pattern: dangerous ones that it may stand for run in
    thought."""
    machine.unsure("name: the command's name is a pattern")
    folder, _, last = call.at(0).rpartition("/")
    text = glob_text(last)
    pattern = None if text is None else compile_re2(text)
    machine.budget.spend(8_192)
    for name in sorted(
        name for name in DANGEROUS if pattern is not None and pattern.fullmatch(name)
    )[:4]:
        dispatch(
            machine,
            replace(call, fields=[Field(f"{folder}/{name}" if folder else name), *call.fields[1:]]),
        )
    return machine.noted(call)


def plain(machine: Machine, call: Invocation, name: str) -> Out:
    """Note a command that runs no other, as far as is known."""
    place = machine.emit(call)
    machine.drafts[place].name = name
    words = call.words
    if name == "cat":
        return concatenated(machine, call, place, words)
    if name == "tee":
        for path in words:
            if not path.startswith("-"):
                write(machine, call, path, is_more="-a" in words)
    elif name in ("cp", "mv", "ln", "install") and len(words) > 1:
        linked(machine, call, words)
    elif name in _WRITES:
        downloaded(machine, call, name, place, words)
    elif name not in _SUBCOMMANDS and name not in decoding.KNOWN:
        unknown_wrapper(machine, call, name)
    return answered(machine, call, name, place, words)


def answered(machine: Machine, call: Invocation, name: str, place: int, words: list[str]) -> Out:
    """Return what a simple program prints, if that can be known."""
    stdin = None if call.stdin is None else call.stdin.text
    machine.budget.spend(len(stdin or "") + sum(map(len, words)))
    is_clear = (stdin is None or is_known(stdin)) and all(map(is_known, words))
    if name in decoding.KNOWN and (is_clear or name in ("echo", "printf", "tee")):
        if name not in ("echo", "printf", "tee"):
            machine.budget.spend(2_048)
        if (
            stdin is None
            and words
            and name in decoding.READS
            and (known := machine.read(words[-1])) is not None
            and is_known(known.text)
        ):
            stdin, words = known.text, words[:-1]
        made = decoding.printed(name, words, stdin)
        if made is not None:
            return Out(made, [place])
    return machine.unknown_output(place)


def concatenated(machine: Machine, call: Invocation, place: int, words: list[str]) -> Out:
    """`cat`: files that the text wrote, and what it reads."""
    paths = [word for word in words if not word.startswith("-") or word == "-"] or ["-"]
    if len(paths) > _MAX_ITEMS or any(word in ("-n", "-b", "-A", "-v", "-E") for word in words):
        return machine.unknown_output(place)
    outs = [call.stdin if path in ("-", "/dev/stdin") else machine.read(path) for path in paths]
    if any(out is None for out in outs):
        return machine.unknown_output(place)
    return Out("".join(out.text for out in outs if out is not None), [place])


def write(machine: Machine, call: Invocation, path: str, *, is_more: bool) -> None:
    """`tee`: put what it reads into a file, or into what reads a `>(...)`."""
    out = call.stdin or Out(machine.unknowns.make())
    if path in machine.sinks:
        machine.drain(path, out)
    else:
        machine.write(path, out.text, is_more=is_more)


def downloaded(machine: Machine, call: Invocation, name: str, place: int, words: list[str]) -> None:
    """Keep that a file was written by a command: by `dd`, from the network, or by `mkfifo`, whose
    other end anybody may write."""
    urls = [
        word
        for word in words
        if "://" in word or ("/" in word and not word.startswith(("-", "/", ".")))
    ]
    if name == "dd":
        paths = [word[3:] for word in words if word.startswith("of=")]
    elif name == "mkfifo":
        paths = [word for word in words if not word.startswith("-")]
    else:
        short = "-O" if name == "wget" else "-o"
        paths = after(words, f"{short}|--output|--output-document|--out")
        paths += [
            words[at + 1]
            for at, word in enumerate(words[:-1])
            if re.fullmatch(r"-[a-zA-Z]+[oO]", word)
        ]
        paths += [url.partition("?")[0].rstrip("/").rpartition("/")[2] for url in urls]
    source = (
        call.stdin.text
        if name == "dd" and call.stdin is not None
        else machine.unknowns.make((), (place,))
    )
    for path in paths[:8]:
        if path not in ("-", "", "/dev/null", "/dev/stdout"):
            machine.write(path, source)


def linked(machine: Machine, call: Invocation, words: list[str]) -> None:
    """Keep what a copied or linked file is: a program under another name, or a file that the text
    wrote."""
    paths = [word for word in words if not word.startswith("-")]
    if len(paths) != 2 or not is_known("".join(paths)):
        return
    old, new = paths
    if new.endswith("/"):
        new += old.rpartition("/")[2]
    known = call.stdin if old == "/dev/stdin" else machine.read(old)
    if known is not None:
        machine.write(new, known.text)
    elif len(machine.links) >= 32:
        machine.has_forgotten = True
    else:
        machine.links[machine.path(new)] = machine.links.get(machine.path(old), old)


def unknown_wrapper(machine: Machine, call: Invocation, name: str) -> None:
    """If a known dangerous command stands behind an unknown program, with words of its own, look at
    it as if it ran."""
    for place in range(1, min(len(call.fields) - 1, 12)):
        field = call.fields[place]
        last = field.text.rpartition("/")[2]
        if last not in _WRAPPED or field.is_glob:
            continue
        before = call.at(place - 1)
        if re.match(
            r"--?\w*(?:user|name|shell|s$)|(?:init|completions?|hook|activate|shellenv)\Z", before
        ) or (before.startswith("-") and before != "--" and last in LANGUAGES):
            # A name that an option takes, as that of a language.
            continue
        behind_it = call.at(place + 1)
        if (
            _HAS_WORDS.match(behind_it.replace(HOME, "~"))
            or not is_known(behind_it)
            or field.text.startswith("/")
        ):
            machine.unsure(f"wrapper: `{name[:40]}` may run the command behind it")
            dispatch(machine, call.inner(call.fields[place:], name))
            return


def interpreted(machine: Machine, call: Invocation, name: str) -> Out:
    """Run an interpreter; one that only edits text may have an output that is known."""
    out = interpreters.interpreter(machine, call, name)
    return (
        answered(machine, call, name, out.commands[0], call.words)
        if name in decoding.KNOWN
        else out
    )
