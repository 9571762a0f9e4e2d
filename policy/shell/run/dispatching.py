"""Finds the command that a command really runs: through wrappers, functions, links, `xargs`,
`find`, containers, other hosts and git."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from policy.patterns import compile_re2
from policy.shell.run import decoding, programs
from policy.shell.run.builtins import BUILTINS, run_environment, run_values
from policy.shell.run.carried import OF_THEIR_OWN, commands_given, run_subscripts, run_variables
from policy.shell.run.git import git
from policy.shell.run.indirect_options import apply_configured_options, cmake
from policy.shell.run.machine import Machine
from policy.shell.run.many import fd, find, parallel, xargs
from policy.shell.run.programs import LANGUAGES, SHELLS, after
from policy.shell.run.state import Invocation, Out, base_name, texts
from policy.shell.run.values import HOME, UNKNOWN, Field, glob_text, is_known
from policy.shell.run.wrapping import (
    CONTAINERS,
    Wrap,
    after_options,
    behind,
    in_container,
    is_alone,
    wrap_of,
)

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
_LOCAL_COMMAND = re.compile(r"(?i)(?:proxy|local|knownhosts)command[= ]\s*(.*)", re.DOTALL)
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
        return machine.unknown_output(machine.emit(call))
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
        run_subscripts(machine, call, texts(call.fields[1:]))
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
        return programs.shell(machine, call)
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
    return machine.unknown_output(machine.emit(call))


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
    return machine.unknown_output(machine.emit(call))


def plain(machine: Machine, call: Invocation, name: str) -> Out:
    """Note a command that runs no other, as far as is known."""
    place = machine.emit(call)
    machine.drafts[place].name = name
    words = texts(call.fields[1:])
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
        long = ("--output", "--output-document", "--out")
        paths = after(words, "-O" if name == "wget" else "-o", *long)
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
    out = programs.interpreter(machine, call, name)
    return (
        answered(machine, call, name, out.commands[0], texts(call.fields[1:]))
        if name in decoding.KNOWN
        else out
    )


# Wrappers


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
        return programs.shell(machine, around.inner([Field("sh"), *inner], name))
    return dispatch(machine, around.inner(inner, name))


def from_outer(machine: Machine, call: Invocation, name: str) -> Out:
    """A wrapper that starts a shell, which reads what the wrapper would read."""
    return programs.from_stdin(machine, call.inner([Field("sh")], name), [])


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
    return dispatch(machine, replace(call, assigns=assigns).inner(fields[at:], "env"))


def busybox(machine: Machine, call: Invocation) -> Out:
    """`busybox rm`: the command is a word of it."""
    if len(call.fields) < 2 or call.at(1).startswith("-"):
        return machine.unknown_output(machine.emit(call))
    return dispatch(machine, call.inner(call.fields[1:], base_name(call)))


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
            return dispatch(machine, around.inner(call.fields[at:], name))
    return from_outer(machine, around, name)


def flock(machine: Machine, call: Invocation) -> Out:
    """`flock file command`, `flock file -c text`."""
    at = after_options(call.fields, 1, "wE", ("timeout", "conflict-exit-code")) + 1
    place = machine.emit(call)
    if call.at(at) in ("-c", "--command"):
        return run_joined(machine, call, call.fields[at + 1 : at + 2], "flock")
    return (
        dispatch(machine, call.inner(call.fields[at:], "flock"))
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
        dispatch(machine, inside.inner(fields, base_name(call)))
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
    "rsync": programs.options("-e", "--rsh", "--rsync-path"),
    "zip": programs.options("-TT", "--unzip-command"),
    "man": programs.options("-P", "--pager", "-H"),
    "nix-shell": programs.options("--run", "--command"),
    "sg": programs.options("-c"),
    "newgrp": programs.options("-c"),
    "scp": ssh_copy,
    "sftp": ssh_copy,
    "split": programs.options("--filter"),
    "cpio": programs.options("--rsh-command"),
    "vagrant": programs.options("-c", "--command"),
    "smbclient": programs.options("-c"),
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
