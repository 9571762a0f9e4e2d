"""Commands about the machine itself: users and permissions, disks, services and power, scheduled
jobs, and what protects it."""

import re
from collections.abc import Sequence

import msgspec

from policy.paths import PathTarget
from policy.shell.args import Args, args_of
from policy.shell.commands import Command
from policy.shell.findings import Findings, Handler
from policy.shell.guards import is_guard

# -- users and rights


def _users(command: Command, args: Args, findings: Findings) -> None:
    if args.has(
        "-S",
        "--status",
        "-l",
        "--list",
        "--help",
        "-h",
        "-V",
        "--version",
        "-q",
        "-D",
        "--defaults",
    ) and command.name in (
        "passwd",
        "chage",
        "useradd",
        "pwck",
    ):
        return
    findings.add("privilege", "system", " ".join(args.texts))


_ASKS = tuple(
    "-l -k -K -v --list --validate --reset-timestamp --remove-timestamp -V --version -h --help"
    " -L -C".split()
)
"""Options with which `sudo` runs nothing."""


def _become(command: Command, args: Args, findings: Findings) -> None:
    """`sudo`, `su` and the like where no command stands behind: a shell of another user."""
    args = args_of(
        command, ("-u", "-g", "-p", "-C", "-h", "-r", "-t", "-s", "-c", "-U", "-D", "-R", "-T")
    )
    if command.name in ("sudo", "doas", "run0"):
        if args.has(*_ASKS) and not args.has("-i", "-s"):
            return
        if args.has("-e", "--edit"):
            findings.write(*args.operands)
            return
        if args.has("-i", "-s", "--login", "--shell"):
            findings.add("privilege", "root", command.name)
    elif command.name == "sudoedit":
        findings.write(*args.operands)
    elif command.name == "su":
        user = next((text for text in args.texts if text != "-"), "root")
        # another user is not a mightier one, and a command stands in the list by itself
        if user in ("root", "0", "toor") and not args.has("-c", "--command", "--session-command"):
            findings.add("privilege", "root", user)
    elif command.name == "pkexec" and not args.operands:
        findings.add("privilege", "root", command.name)


def _bits(mode: str) -> tuple[bool, bool, bool]:
    """Tell of a mode whether it sets the user's id at run, lets others write, and lets others
    read."""
    if re.fullmatch(r"[=+-]?[0-7]{1,5}", mode):
        value = int(mode.lstrip("=+-"), 8)
        if mode.startswith("-"):
            return False, False, False
        return bool(value & 0o4000), bool(value & 0o002), bool(value & 0o044)
    setuid = writes = reads = False
    for clause in mode.split(","):
        if (parts := re.fullmatch(r"([ugoa]*)((?:[+=-][rwxXstugo]*)+)", clause)) is None:
            continue
        who = parts[1] or "a"
        for operator, bits in re.findall(r"([+=-])([rwxXstugo]*)", parts[2]):
            if operator == "-":
                continue
            setuid |= "s" in bits and bool(set(who) & {"u", "a"})
            others = bool(set(who) & {"o", "a"}) and bool(parts[1])
            writes |= "w" in bits and others
            reads |= "r" in bits and others
    return setuid, writes, reads


def _chmod(command: Command, args: Args, findings: Findings) -> None:
    words = [
        word
        for word in command.words[1:]
        if not re.fullmatch(
            r"-[RvfcHLP]+|--(?:recursive|verbose|silent|quiet|changes|"
            r"preserve-root|no-preserve-root|reference=.*)",
            word.known,
        )
    ]
    flags = [word.known for word in command.words[1:] if word not in words]
    recursive = any(flag == "--recursive" or re.fullmatch(r"-\w*R\w*", flag) for flag in flags)
    mode, paths = (words[0].known, words[1:]) if words else ("", [])
    setuid, writes, reads = _bits(mode)
    for word in paths:
        for place in findings.places(word):
            if place.path.startswith(".") and not setuid:
                continue
            if setuid:
                findings.add("privilege", place.scope, f"{mode} {place.path}")
            elif (
                writes and place.scope in ("system", "root", "startup", "credentials", "device")
            ) or (writes and recursive and _is_broad(place)):
                findings.add("privilege", place.scope, f"{mode} {place.path}", wide=recursive)
            elif reads and place.scope == "credentials":
                findings.add("privilege", "credentials", f"{mode} {place.path}")
            elif recursive and (
                place.scope == "root" or (place.scope in ("system", "home") and _is_broad(place))
            ):
                findings.add("write", place.scope, f"{mode} {place.path}", wide=True)
            elif place.scope in ("system", "root") and not re.fullmatch(
                r"[ugoa]*\+[rxX]+|0?[57]55|0?[46]44|(?!0+\Z)0?[67]?[0-7][05]0", mode
            ):
                findings.add("write", place.scope, place.path)


def _is_broad(place: PathTarget) -> bool:
    return place.whole or place.wide or place.path in (".", "~")


def _chown(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, ("--reference", "--from"))
    operands = args.operands if args.all("--reference") else args.operands[1:]
    recursive = args.has("-R", "--recursive")
    for word in operands:
        for place in findings.places(word):
            if place.path.startswith("."):
                continue
            if place.scope == "unknown" and recursive and place.whole:
                findings.add("write", "system", place.path, wide=True)
            elif place.scope in ("system", "root", "startup", "device") or (
                place.scope == "credentials" and not place.path.startswith("~")
            ):
                findings.add("privilege", place.scope, place.path, wide=recursive)
            elif (
                recursive
                and place.scope == "home"
                and place.whole
                and re.match(r"root(?::|$)|0(?::|$)|nobody", args.texts[0] if args.texts else "")
            ):
                findings.add("write", "home", place.path, wide=True)


def _setcap(command: Command, args: Args, findings: Findings) -> None:
    if not args.has("-r", "-v"):
        findings.add("privilege", "system", " ".join(args.texts))


def _setfacl(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, ("-m", "-x", "-M", "-X", "--modify", "--remove", "--set"))
    for word in args.operands:
        place = findings.place(word)
        if args.all("-m", "--modify", "--set") and place.scope in (
            "system",
            "root",
            "startup",
            "credentials",
            "device",
        ):
            findings.add("privilege", place.scope, place.path, wide=args.has("-R", "--recursive"))


def _namespaces(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, ("-t", "--target", "-S", "-G", "-r", "-w", "--root", "--map-user"))
    target = args.first("-t", "--target")
    if target is not None and target.known in ("1", ""):
        findings.add("privilege", "root", "namespaces of process 1")


def _attack(command: Command, args: Args, findings: Findings) -> None:
    """Programs that are made to break in."""
    if args.has("--help", "-h", "--version", "-V") and not args.operands:
        return
    findings.add("privilege", "unknown", " ".join(args.texts))


# -- disks


_DISK_VALUED = tuple("-t -L -n -b -c -o -U -E -m -i -N -T -O --label --type --offset".split())
"""Options of programs for disks that take a value."""


def _disk(command: Command, args: Args, findings: Findings) -> None:
    """Programs that make file systems and partitions: what was there is gone."""
    name = command.name
    args = args_of(command, _DISK_VALUED)
    texts = [word.known for word in command.words[1:]]
    if name in ("fdisk", "parted", "sgdisk", "gdisk", "sfdisk", "cfdisk", "cgdisk", "partx") and (
        any(
            t
            in (
                "-l",
                "--list",
                "print",
                "-p",
                "--print",
                "-d",
                "--dump",
                "-b",
                "--backup",
                "-v",
                "--verify",
                "-s",
                "-J",
                "--json",
                "-i",
            )
            or t.startswith("--backup")
            for t in texts
        )
        and not any(
            t in ("mklabel", "rm", "mkpart", "-o", "-Z", "--zap-all", "--clear", "-z", "resizepart")
            for t in texts
        )
    ):
        return
    interactive = ("fdisk", "cfdisk", "cgdisk", "gdisk", "parted")
    if (
        name in interactive
        and len(args.operands) <= 1
        and command.stdin.kind == "none"
        and not any(t in ("-z", "--zero", "-w", "-W") for t in texts)
    ):
        # it asks, and nobody answers
        return
    if any(re.match(r"--(?:list|print|info|verify|show|get)[\w-]*", t) for t in texts):
        return
    if (
        name == "wipefs"
        and not args.has("-a", "--all", "-o", "--offset")
        and not args.all("-o", "--offset")
    ):
        return
    if name == "hdparm" and not any(
        t.startswith(
            (
                "--security-erase",
                "--trim-sector",
                "--write-sector",
                "--make-bad",
                "--security-set",
                "--fwdownload",
                "--yes-i-know",
            )
        )
        for t in texts
    ):
        return
    if name == "badblocks" and not args.has("-w"):
        return
    if name == "cryptsetup" and not any(
        t
        in (
            "luksFormat",
            "erase",
            "luksErase",
            "luksKillSlot",
            "luksRemoveKey",
            "reencrypt",
            "luksformat",
        )
        for t in texts
    ):
        return
    if name == "nvme" and not any(
        t in ("format", "sanitize", "delete-ns", "write-zeroes", "dsm", "create-ns") for t in texts
    ):
        return
    if name == "mdadm" and not any(
        t in ("--zero-superblock", "--create", "-C", "--stop", "-S", "--fail", "-f") for t in texts
    ):
        return
    if name == "diskutil" and not any(
        re.match(r"(?i)erase|zero|secureerase|partitiondisk|randomdisk|reformat|apfs", t)
        for t in texts[:1]
    ):
        return
    _erase(args, findings)


def _erase(args: Args, findings: Findings) -> None:
    places = [
        findings.place(word)
        for word in args.operands
        if re.search(r"[/.]|^[~*]", word.known) or word.text is None
    ]
    wiped = [
        place for place in places if place.scope in ("device", "root", "unknown", "system", "home")
    ]
    for place in wiped:
        findings.add("delete", place.scope, place.path, wide=True)
    if not places:
        findings.add("delete", "device", " ".join(args.texts), wide=True)


def _volumes(command: Command, args: Args, findings: Findings) -> None:
    texts = args.texts
    gone = {
        "zfs": ("destroy", "rollback"),
        "zpool": ("destroy", "labelclear", "remove"),
        "btrfs": ("delete",),
        "dmsetup": ("remove", "remove_all", "wipe_table"),
        "lvm": ("lvremove", "vgremove", "pvremove"),
        "stratis": ("destroy",),
        "ceph": ("purge", "rm", "delete", "destroy"),
        "rbd": ("rm", "remove", "purge"),
        "gluster": ("delete",),
    }
    is_gone = command.name in ("lvremove", "vgremove", "pvremove", "thin_delete") or any(
        t in gone.get(command.name, ()) for t in texts[:3]
    )
    if is_gone and not args.has("-n", "--dry-run", "-t", "--test"):
        findings.add("delete", "device", " ".join(texts), wide=True)


# -- services, processes and power


def _power(command: Command, args: Args, findings: Findings) -> None:
    if command.name in ("shutdown", "reboot", "halt", "poweroff") and args.has(
        "-c", "-k", "--help", "-w", "--wtmp-only", "--show"
    ):
        return
    if command.name in ("init", "telinit") and not any(
        t in ("0", "1", "6", "s", "S", "u") for t in args.texts
    ):
        return
    findings.add("process", "system", " ".join(args.texts), wide=True)


_POWER_VERBS = (
    "poweroff",
    "reboot",
    "halt",
    "kexec",
    "rescue",
    "emergency",
    "soft-reboot",
    "isolate",
)


_SYSTEMCTL = tuple(
    "-H -M -p -t -s -n -o --property --type --signal --kill-who --lines --output --host --root".split()
)


def _systemctl(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, _SYSTEMCTL)
    if not args.operands:
        return
    verb, units = args.operands[0].known, args.operands[1:]
    if command.name in ("service", "rc-service", "invoke-rc.d", "sv", "svc") and units:
        verb, units = (
            (units[0].known, args.operands[:1])
            if command.name not in ("sv", "svc")
            else (verb, units)
        )
    if verb in _POWER_VERBS:
        findings.add(
            "process",
            "system",
            verb,
            wide=verb != "isolate"
            or any(
                u.known in ("rescue.target", "emergency.target", "poweroff.target", "reboot.target")
                for u in units
            ),
        )
    elif verb in (
        "stop",
        "disable",
        "mask",
        "kill",
        "revert",
        "down",
        "d",
        "remove",
        "unload",
        "bootout",
        "delete",
        "del",
    ):
        for unit in units:
            if is_guard(unit.known):
                findings.add("defence", "system", f"{verb} {unit.known}")
            else:
                vital = re.fullmatch(
                    r"(?:ssh|sshd|crond?|anacron|atd|network(?:ing)?|networkmanager"
                    r"|systemd-(?:networkd|logind|resolved)|dbus|"
                    r".*\*.*)(?:\.\w+)?",
                    unit.known.lower(),
                )
                findings.add("process", "system", f"{verb} {unit.known}", wide=vital is not None)
    elif verb in ("link", "load", "bootstrap", "submit"):
        findings.add("persistence", "startup", f"{verb} " + " ".join(u.known for u in units))
    elif verb in ("enable", "reenable", "start", "restart"):
        for unit in units:
            if re.match(r"[/~.].*\.\w+$", unit.known):
                findings.add("persistence", "startup", f"{verb} {unit.known}")


def _kill(command: Command, args: Args, findings: Findings) -> None:
    texts = [word.known for word in command.words[1:]]
    numbers = [t for t in texts if re.fullmatch(r"-?\d+", t)]
    if "-l" in texts or "-L" in texts:
        return
    # the first may be the signal
    if texts[:1] == ["-0"] or texts[:2] == ["-s", "0"] or texts[:2] == ["-n", "0"]:
        return
    targets = (
        numbers[1:]
        if texts[:1] == numbers[:1] and numbers and numbers[0].startswith("-") and len(numbers) > 1
        else numbers
    )
    if any(t in ("-1", "1") for t in targets) and not (targets == ["-1"] and len(texts) == 1):
        findings.add("process", "system", " ".join(texts), wide=True)
    else:
        findings.add("process", "unknown", " ".join(texts))


def _pkill(command: Command, args: Args, findings: Findings) -> None:
    words = (
        command.words[0],
        *(
            word
            for word in command.words[1:]
            if not re.fullmatch(r"-(?:\d+|(?:SIG)?[A-Z]{3,})", word.known)
        ),
    )
    args = args_of(
        msgspec.structs.replace(command, words=words),
        (
            "-u",
            "-U",
            "-g",
            "-G",
            "-P",
            "-s",
            "-t",
            "--signal",
            "--user",
            "--pgroup",
            "-F",
            "--ns",
            "-y",
            "-O",
        ),
    )
    if command.name == "killall5" or (command.name != "killall" and args.has("-v", "--inverse")):
        findings.add("process", "system", "all", wide=True)
    users = [word.known for word in args.all("-u", "-U", "--user")]
    for word in args.operands:
        text = word.known
        if is_guard(text):
            findings.add("defence", "system", text)
        elif (
            re.fullmatch(
                r"(?:\.[*+]?|\^?\.\*\$?|systemd?|init|sshd|dbus-daemon|crond?|gnome-shell|Xorg"
                r"|launchd|)",
                text,
            )
            and word.text is not None
        ):
            findings.add("process", "system", text, wide=True)
        else:
            findings.add("process", "unknown", text)
    if users and not args.operands:
        findings.add("process", "system", " ".join(users), wide=True)


# -- what runs by itself later


def _crontab(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, ("-u", "-c"))
    if args.has("-r") or args.has("-d"):
        findings.add("delete", "startup", "crontab", wide=True)
    elif args.has("-e"):
        if any(name in ("EDITOR", "VISUAL") for name, _ in command.assignments):
            findings.add("persistence", "startup", "crontab -e")
    elif not args.has("-l") and (args.operands or command.stdin.kind != "none"):
        findings.add("persistence", "startup", " ".join(args.texts) or "crontab")
        findings.read(*(word for word in args.operands if word.known != "-"))


def _at(command: Command, args: Args, findings: Findings) -> None:
    if args.has("-l", "-r", "-d", "-c", "-V") or command.name in ("atq", "atrm"):
        return
    args = args_of(command, ("-f", "-q", "-t"))
    if args.all("-f") or command.stdin.kind != "none":
        findings.add("persistence", "startup", " ".join(args.texts))


def _run_later(command: Command, args: Args, findings: Findings) -> None:
    texts = [word.known for word in command.words[1:]]
    if any(
        t.startswith(("--on-", "--timer-", "--path-property", "--socket-property")) for t in texts
    ):
        findings.add("persistence", "startup", " ".join(texts))


def _always(kind: str, scope: str, *, unless: tuple[str, ...] = (), wide: bool = False) -> Handler:
    """Make a handler of commands that are one thing, whatever their operands, unless one of these
    options or verbs is given."""

    def handle(command: Command, args: Args, findings: Findings) -> None:
        texts = [word.known for word in command.words[1:]]
        if not any(text in unless for text in texts) and not ("" in unless and not texts):
            findings.add(kind, scope, " ".join(texts), wide=wide)  # type: ignore[arg-type]

    return handle


def _module(command: Command, args: Args, findings: Findings) -> None:
    """A module is code in the kernel."""
    if args.operands and not args.has(
        "-r", "--remove", "-n", "--dry-run", "--show-depends", "-c", "--showconfig", "-D", "-l"
    ):
        local = command.name == "insmod" or any("/" in t or t.endswith(".ko") for t in args.texts)
        if local:
            findings.add("privilege", "system", " ".join(args.texts))


def _mount(command: Command, args: Args, findings: Findings) -> None:
    """A folder that is bound over a process or a setting hides it."""
    args = args_of(command, ("-t", "-o", "-L", "-U", "--types", "--options", "-O"))
    binds = args.has("-B", "--bind", "-R", "--rbind", "-M", "--move") or any(
        "bind" in word.known for word in args.all("-o", "--options")
    )
    if binds and args.operands:
        place = findings.place(args.operands[-1])
        if re.match(r"/(?:proc|etc|sys|usr|bin|sbin|lib)(?:/|$)", place.path):
            findings.add("defence", place.scope, place.path)
    elif len(args.operands) > 1 and re.match(
        r"/(?:etc|usr|bin|sbin|lib)(?:/|$)", findings.place(args.operands[-1]).path
    ):
        findings.add("defence", "system", findings.place(args.operands[-1]).path)


def _umount(command: Command, args: Args, findings: Findings) -> None:
    """What runs from the folders of the system stops without them."""
    args = args_of(command, ("-t", "-O", "-N", "--types", "--test-opts"))
    paths = [findings.place(word).path for word in args.operands]
    if args.has("-a", "--all") or any(
        re.fullmatch(r"/(?:home|usr|var|etc|boot|proc|sys|dev|opt|tmp|run)?/?", path)
        for path in paths
    ):
        findings.add("process", "system", " ".join(args.texts), wide=True)


_ALL_PRINTED = re.compile(r"\{\s*print\s+\$\d+\s*\}|-\S*|\d+p?|[\w$]{1,6}")


def killed(chain: Sequence[Command], findings: Findings) -> None:
    """Add what `kill $(pgrep x)` stops. `chain`: the commands that print the numbers, from the last
    one backwards."""
    if chain and chain[-1].name in ("pgrep", "pidof"):
        _pkill(chain[-1], args_of(chain[-1]), findings)
    elif (
        chain
        and chain[-1].name == "ps"
        and re.search(
            r"(?:^| )(?:-\w*[eA]|a?x|aux|-?ef)",
            " ".join(args_of(chain[-1]).flags + tuple(args_of(chain[-1]).texts)),
        )
    ):
        # all of them, where nothing chooses among the lines
        words = [word.known for command in chain[:-1] for word in command.words[1:]]
        if all(
            command.name in ("awk", "tr", "cut", "sort", "tail", "sed") for command in chain[:-1]
        ) and all(map(_ALL_PRINTED.fullmatch, words)):
            findings.add("process", "system", "all processes", wide=True)


HANDLERS: dict[str, Handler] = {
    "mount": _mount,
    "umount": _umount,
    "swapoff": _always("process", "system", unless=("--help", "-h", "-V", "--version"), wide=True),
    **dict.fromkeys(
        "useradd adduser usermod userdel deluser groupadd groupmod groupdel addgroup delgroup"
        " gpasswd passwd chpasswd chgpasswd newusers chage vipw vigr visudo pwconv pwunconv chsh"
        " chfn dscl dseditgroup sysadminctl newusers lusermod luseradd lpasswd smbpasswd pw"
        " authconfig authselect".split(),
        _users,
    ),
    **dict.fromkeys("sudo doas su pkexec run0 sudoedit machinectl".split(), _become),
    "chmod": _chmod,
    "gchmod": _chmod,
    "chown": _chown,
    "chgrp": _chown,
    "setcap": _setcap,
    "setfacl": _setfacl,
    "nsenter": _namespaces,
    **dict.fromkeys(
        "hydra medusa ncrack john hashcat mimipenguin linpeas lazagne msfconsole msfvenom sqlmap"
        " responder crackmapexec netexec nxc patator crowbar kerbrute bettercap ettercap arpspoof"
        " dnsspoof aircrack-ng aireplay-ng wifite reaver beef-xss weevely evil-winrm unshadow pspy"
        " pspy64 nikto xsser slowhttptest hping3 t50 mdk4 traitor deepce pwncat pwncat-cs sliver"
        " chntpw fcrackzip pdfcrack".split(),
        _attack,
    ),
    **dict.fromkeys(
        "mkfs mke2fs mkswap mkdosfs mkntfs mkexfatfs newfs wipefs fdisk parted sgdisk gdisk sfdisk"
        " cfdisk cgdisk hdparm blkdiscard badblocks cryptsetup nvme mdadm diskutil sg_format"
        " sg_sanitize format.com".split(),
        _disk,
    ),
    **dict.fromkeys(
        (
            "mkfs." + kind
            for kind in "ext2 ext3 ext4 xfs btrfs vfat fat exfat ntfs f2fs minix jfs reiserfs cramfs msdos bfs nilfs2 erofs".split()
        ),
        _disk,
    ),
    **dict.fromkeys(
        "zfs zpool btrfs dmsetup lvm lvremove vgremove pvremove stratis ceph rbd gluster".split(),
        _volumes,
    ),
    **dict.fromkeys("shutdown reboot halt poweroff init telinit".split(), _power),
    "systemctl": _systemctl,
    "service": _systemctl,
    "rc-service": _systemctl,
    "invoke-rc.d": _systemctl,
    "sv": _systemctl,
    "launchctl": _systemctl,
    "initctl": _systemctl,
    "rc-update": _systemctl,
    "kill": _kill,
    "pkill": _pkill,
    "killall": _pkill,
    "killall5": _pkill,
    "skill": _pkill,
    "slay": _pkill,
    "xkill": _pkill,
    "crontab": _crontab,
    "at": _at,
    "batch": _at,
    "atq": _at,
    "atrm": _at,
    "systemd-run": _run_later,
    "update-rc.d": _always("persistence", "startup", unless=("remove", "disable", "enable", "-h")),
    "chkconfig": _always("persistence", "startup", unless=("--list", "on", "off", "--del", "")),
    "insmod": _module,
    "modprobe": _module,
    "kmod": _module,
    "kextload": _module,
    "schtasks": _always("persistence", "startup", unless=("/query", "/end")),
    "capsh": _always("privilege", "root", unless=("--print", "--help")),
    "aa-exec": _always("defence", "system", unless=("--help",)),
    "grub-install": _always("write", "startup", unless=("--version", "--help")),
    "efibootmgr": _always("write", "startup", unless=("-v", "", "--verbose")),
    "visudo": _users,
    "gcore": _always("read", "credentials", unless=("--help",)),
    "procdump": _always("read", "credentials", unless=("--help",)),
}
