"""Commands about the machine itself: users and permissions, disks, services and power, scheduled
jobs, and what protects it."""

import re
from collections.abc import Sequence

import msgspec

from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.protective_services import is_guard
from policy.effects.shell.commands.rule_table import rows

# -- users and rights


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
    operands = args.operands if args.all("--reference") else args.operands[1:]
    recursive = args.has("-R|--recursive")
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


# -- disks


def _erase(command: Command, args: Args, findings: Findings) -> None:
    """Programs that make file systems and partitions: what was there is gone."""
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


_VITAL = re.compile(
    r"(?:ssh|sshd|crond?|anacron|atd|network(?:ing)?|networkmanager"
    r"|systemd-(?:networkd|logind|resolved)|dbus|.*\*.*)(?:\.\w+)?"
)
_UNIT_FIRST = ("service", "rc-service", "invoke-rc.d")


def _stopped(command: Command, args: Args, findings: Findings) -> None:
    """`systemctl stop UNITS`, `service UNIT stop`."""
    verb, *units = args.texts[1::-1] if command.name in _UNIT_FIRST else args.texts
    for unit in units:
        if is_guard(unit):
            findings.add("defence", "system", f"{verb} {unit}")
        else:
            is_vital = _VITAL.fullmatch(unit.lower()) is not None
            findings.add("process", "system", f"{verb} {unit}", wide=is_vital)


def _kill(command: Command, args: Args, findings: Findings) -> None:
    texts = command.texts
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
    valued = "-u -U -g -G -P -s -t --signal --user --pgroup -F --ns -y -O".split()
    args = args_of(msgspec.structs.replace(command, words=words), valued)
    if command.name == "killall5" or (command.name != "killall" and args.has("-v|--inverse")):
        findings.add("process", "system", "all", wide=True)
    users = [word.known for word in args.all("-u|-U|--user")]
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


HANDLERS: dict[str, Handler] = rows(
    r"""
UNITS := -H -M -p -t -s -n -o --property --type --signal --kill-who --lines --output --host --root
POWER := poweroff|reboot|halt|kexec|rescue|emergency|soft-reboot
STOPS := stop|disable|mask|kill|revert|down|d|remove|unload|bootout|delete|del
BECOMES := -u -g -p -C -h -r -t -s -c -U -D -R -T

passwd chage useradd
    -S|--status|-l|--list|--help|-h|-V|--version|-q|-D|--defaults -> nothing
    -> privilege system {}
adduser usermod userdel deluser groupadd groupmod groupdel addgroup delgroup gpasswd chpasswd chgpasswd newusers vipw vigr visudo
        pwconv pwunconv chsh chfn dscl dseditgroup sysadminctl lusermod luseradd lpasswd smbpasswd pw authconfig authselect
    -> privilege system {}
sudo doas run0 : <BECOMES>
    -l|-k|-K|-v|--list|--validate|--reset-timestamp|--remove-timestamp|-V|--version|-h|--help|-L|-C !-i|-s -> nothing
    -e|--edit -> writes operands
    -i|-s|--login|--shell -> privilege root {name}
sudoedit : <BECOMES>
    -> writes operands
pkexec : <BECOMES>
    !1 -> privilege root {name}
su : <BECOMES>
    -c|--command|--session-command -> nothing
    1=root|0|toor -> privilege root {1}
    1=- 2=root|0|toor -> privilege root {2}
    text~'^(?:- )+(?:root|toor)(?: |$)' -> privilege root root
    text~'^(?:- )+0(?: |$)' -> privilege root 0
    !1-~(?s)(?!-\Z).* -> privilege root root
machinectl
    -> nothing
chmod gchmod
    -> call chmod
chown chgrp : --reference --from
    -> call chown
setcap
    !-r|-v -> privilege system {}
setfacl : -m -x -M -X --modify --remove --set
    -m|--modify|--set=(?s).* -> privilege @operands=system|root|startup|credentials|device wide:-R|--recursive
nsenter : -t --target -S -G -r -w --root --map-user
    -t|--target=1? -> privilege root namespaces of process 1
hydra medusa ncrack john hashcat mimipenguin linpeas lazagne msfconsole msfvenom sqlmap responder crackmapexec netexec nxc patator
        crowbar kerbrute bettercap ettercap arpspoof dnsspoof aircrack-ng aireplay-ng wifite reaver beef-xss weevely evil-winrm unshadow
        pspy pspy64 nikto xsser slowhttptest hping3 t50 mdk4 traitor deepce pwncat pwncat-cs sliver chntpw fcrackzip pdfcrack
    --help|-h|--version|-V !1 -> nothing
    -> privilege unknown {}
capsh
    words=--print|--help -> nothing
    -> privilege root {line}
gcore procdump
    words=--help -> nothing
    -> read credentials {line}

mkfs mke2fs mkswap mkdosfs mkntfs mkexfatfs newfs wipefs fdisk parted sgdisk gdisk sfdisk cfdisk cgdisk hdparm blkdiscard badblocks
        cryptsetup nvme mdadm diskutil sg_format sg_sanitize format.com mkfs.ext2 mkfs.ext3 mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat
        mkfs.fat mkfs.exfat mkfs.ntfs mkfs.f2fs mkfs.minix mkfs.jfs mkfs.reiserfs mkfs.cramfs mkfs.msdos mkfs.bfs mkfs.nilfs2
        mkfs.erofs : -t -L -n -b -c -o -U -E -m -i -N -T -O --label --type --offset
    name=fdisk|parted|sgdisk|gdisk|sfdisk|cfdisk|cgdisk
        words~(?s)-l|--list|print|-p|--print|-d|--dump|-b|--backup.*|-v|--verify|-s|-J|--json|-i
        !words=mklabel|rm|mkpart|-o|-Z|--zap-all|--clear|-z|resizepart -> nothing
    name=fdisk|cfdisk|cgdisk|gdisk|parted !2 !stdin !words=-z|--zero|-w|-W -> nothing
    words~(?s)--(?:list|print|info|verify|show|get).* -> nothing
    name=wipefs !-a|--all|-o|--offset -> nothing
    name=hdparm !words~(?s)--(?:security-erase|trim-sector|write-sector|make-bad|security-set|fwdownload|yes-i-know).* -> nothing
    name=badblocks !-w -> nothing
    name=cryptsetup !words=luksFormat|erase|luksErase|luksKillSlot|luksRemoveKey|reencrypt|luksformat -> nothing
    name=nvme !words=format|sanitize|delete-ns|write-zeroes|dsm|create-ns -> nothing
    name=mdadm !words=--zero-superblock|--create|-C|--stop|-S|--fail|-f -> nothing
    name=diskutil !w1~(?is)(?:erase|zero|secureerase|partitiondisk|randomdisk|reformat|apfs).* -> nothing
    -> call erase
zfs zpool btrfs dmsetup lvm lvremove vgremove pvremove stratis ceph rbd gluster
    -n|--dry-run|-t|--test -> nothing
    name=zfs 1-3=destroy|rollback -> delete device {} wide
    name=zpool 1-3=destroy|labelclear|remove -> delete device {} wide
    name=btrfs|gluster 1-3=delete -> delete device {} wide
    name=dmsetup 1-3=remove|remove_all|wipe_table -> delete device {} wide
    name=lvm 1-3=lvremove|vgremove|pvremove -> delete device {} wide
    name=stratis 1-3=destroy -> delete device {} wide
    name=ceph 1-3=purge|rm|delete|destroy -> delete device {} wide
    name=rbd 1-3=rm|remove|purge -> delete device {} wide
    name=lvremove|vgremove|pvremove -> delete device {} wide
swapoff
    words=--help|-h|-V|--version -> nothing
    -> process system {line} wide
mount : -t -o -L -U --types --options -O
    -B|--bind|-R|--rbind|-M|--move 1 -> defence @last~(?s)/(?:proc|etc|sys|usr|bin|sbin|lib)(?:/.*)?
    -o|--options=(?s).*bind.* 1 -> defence @last~(?s)/(?:proc|etc|sys|usr|bin|sbin|lib)(?:/.*)?
    2 -> defence system@last~(?s)/(?:etc|usr|bin|sbin|lib)(?:/.*)?
umount : -t -O -N --types --test-opts
    -a|--all -> process system {} wide
    @operands~/(?:home|usr|var|etc|boot|proc|sys|dev|opt|tmp|run)?/? -> process system {} wide

shutdown reboot halt poweroff
    -c|-k|--help|-w|--wtmp-only|--show -> nothing
    -> process system {} wide
init telinit
    1-=0|1|6|s|S|u -> process system {} wide
systemctl sv launchctl initctl rc-update : <UNITS>
    1=<POWER> -> process system {1} wide
    1=isolate -> process system isolate wide:2-=rescue.target|emergency.target|poweroff.target|reboot.target
    1=<STOPS> -> call stopped
    1=link|load|bootstrap|submit -> persistence startup {}
    1=enable|reenable|start|restart 2-~[/~.].*\.\w+ -> persistence startup {}
service rc-service invoke-rc.d : <UNITS>
    2=<POWER> -> process system {2} wide
    !2 1=<POWER> -> process system {1} wide
    2=<STOPS> -> call stopped
kill
    -> call kill
pkill killall killall5 skill slay xkill
    -> call pkill

crontab : -u -c
    -r|-d -> delete startup crontab wide
    -e sets=EDITOR|VISUAL -> persistence startup crontab -e
    -e|-l -> nothing
    1-~(?s).+ -> persistence startup {} ; reads files
    1 -> persistence startup crontab ; reads files
    stdin -> persistence startup crontab
at batch : -f -q -t
    words~-[a-zA-Z]*[lrdcV].* -> nothing
    -f=(?s).* -> persistence startup {}
    stdin -> persistence startup {}
atq atrm
    -> nothing
systemd-run
    words~(?s)--(?:on-|timer-|path-property|socket-property).* -> persistence startup {line}
update-rc.d
    words=remove|disable|enable|-h -> nothing
    -> persistence startup {line}
chkconfig
    w1 !words=--list|on|off|--del| -> persistence startup {line}
schtasks
    words=/query|/end -> nothing
    -> persistence startup {line}
insmod modprobe kmod kextload
    -r|--remove|-n|--dry-run|--show-depends|-c|--showconfig|-D|-l -> nothing
    name=insmod 1 -> privilege system {}
    1-~(?s).*/.*|.*\.ko -> privilege system {}
aa-exec
    words=--help -> nothing
    -> defence system {line}
grub-install
    words=--version|--help -> nothing
    -> write startup {line}
efibootmgr
    w1 !words=-v|--verbose| -> write startup {line}
""",
    chmod=_chmod,
    chown=_chown,
    erase=_erase,
    stopped=_stopped,
    kill=_kill,
    pkill=_pkill,
)
