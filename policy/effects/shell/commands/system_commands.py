"""Commands about the machine itself: users and permissions, disks, services and power, scheduled
jobs, and what protects it."""

import re
from collections.abc import Sequence

from policy.effects.shell.command import Command
from policy.effects.shell.commands.args import args_of
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows

_ALL_PRINTED = re.compile(r"\{\s*print\s+\$\d+\s*\}|-\S*|\d+p?|[\w$]{1,6}")


def killed(chain: Sequence[Command], findings: Findings) -> None:
    """Add what `kill $(pgrep x)` stops. `chain`: the commands that print the numbers, from the last
    one backwards."""
    if chain and chain[-1].name in ("pgrep", "pidof"):
        HANDLERS["pkill"](chain[-1], args_of(chain[-1]), findings)
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
VITAL := (?i)(?:ssh|sshd|crond?|anacron|atd|network(?:ing)?|networkmanager|systemd-(?:networkd
        |logind|resolved)|dbus|.*\*.*)(?:\.\w+)?
VITAL_PROGRAM := (?:\.[*+]?|\^?\.\*\$?|systemd?|init|sshd|dbus-daemon|crond?|gnome-shell|Xorg
        |launchd)
SETS_ID := [=+]?0?[4-7][0-7]{3}
        |(?:.*,)?(?:(?=[go]*+[ua])[ugoa]*+)?(?:[+=-][rwxXtugo]*)*[+=][rwxXtugo]*s.*
LETS_WRITE := [=+]?[0-7]{0,4}[2367]
        |(?:.*,)?(?=[ug]*+[oa])[ugoa]*+(?:[+=-][rwxXstugo]*)*[+=][rxXstugo]*w.*
LETS_READ := [=+]?(?:[0-7]{0,4}[4-7]|[0-7]{0,3}[4-7][0-7])
        |(?:.*,)?(?=[ug]*+[oa])[ugoa]*+(?:[+=-][rwxXstugo]*)*[+=][wxXstugo]*r.*
USUAL := [ugoa]*\+[rxX]+|0?[57]55|0?[46]44|(?!0+\Z)0?[67]?[0-7][05]0
AWAY := (?s)(?!\.).*
BECOMES := -u -g -p -C -h -r -t -s -c -U -D -R -T

passwd chage useradd
    -S|--status|-l|--list|--help|-h|-V|--version|-q|-D|--defaults -> nothing
    -> privilege system {}
adduser usermod userdel deluser groupadd groupmod groupdel addgroup delgroup gpasswd chpasswd chgpasswd newusers vipw vigr visudo
        pwconv pwunconv chsh chfn dscl dseditgroup sysadminctl lusermod luseradd lpasswd smbpasswd pw authconfig authselect
    -> privilege system {}
sudo doas run0 : <BECOMES>
    -l|-k|-K|-v|--list|--validate|--reset-timestamp|--remove-timestamp|-V|--version|-h|--help|-L|-C
        !-i|-s -> nothing
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
    + words~-[rwxXst]+(?:,.*)? -> write @operands=system|root
    + 1~<SETS_ID> -> privilege @2-
    + 1~<LETS_WRITE> -> privilege @2-=system|root|startup|credentials|device~<AWAY>
        wide:-R|--recursive
    + 1~<LETS_WRITE> -R|--recursive -> privilege @2-!~<AWAY> wide
    + 1~<LETS_READ> -> privilege @2-=credentials~<AWAY>
    + -R|--recursive !1~<SETS_ID> !1~<LETS_WRITE> -> write @2-=root~<AWAY> wide ; write
        @2-=system|home!~<AWAY> wide
    !1~<SETS_ID> !1~<LETS_WRITE> !1~<USUAL> -> write @2-=system|root~<AWAY>
chown chgrp : --reference --from
    + -> privilege @operands=system|root|startup|device~<AWAY> wide:-R|--recursive
    + -> privilege @operands=credentials~(?s)(?![.~]).* wide:-R|--recursive
    + -R|--recursive -> write system@2-=unknown!!~<AWAY> wide
    -R|--recursive 1~(?s)root(?::.*)?|0(?::.*)?|nobody.* -> write @operands=home!!~<AWAY> wide
setcap
    !-r|-v -> privilege system {}
setfacl : -m -x -M -X --modify --remove --set
    -m|--modify|--set=(?s).* -> privilege @operands=system|root|startup|credentials|device
        wide:-R|--recursive
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
    name=hdparm
        !words~(?s)--(?:security-erase|trim-sector|write-sector|make-bad|security-set|fwdownload|yes-i-know).*
        -> nothing
    name=badblocks !-w -> nothing
    name=cryptsetup
        !words=luksFormat|erase|luksErase|luksKillSlot|luksRemoveKey|reencrypt|luksformat -> nothing
    name=nvme !words=format|sanitize|delete-ns|write-zeroes|dsm|create-ns -> nothing
    name=mdadm !words=--zero-superblock|--create|-C|--stop|-S|--fail|-f -> nothing
    name=diskutil !w1~(?is)(?:erase|zero|secureerase|partitiondisk|randomdisk|reformat|apfs).* ->
        nothing
    !@paths -> delete device {} wide
    -> delete @paths=device|root|unknown|system|home wide
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
    1=isolate -> process system isolate
        wide:2-=rescue.target|emergency.target|poweroff.target|reboot.target
    + 1=<STOPS> 2-=a-guard -> defence system {}
    + 1=<STOPS> 2- -> process system {} wide:2-~<VITAL>
    1=link|load|bootstrap|submit -> persistence startup {}
    1=enable|reenable|start|restart 2-~[/~.].*\.\w+ -> persistence startup {}
service rc-service invoke-rc.d : <UNITS>
    2=<POWER> -> process system {2} wide
    !2 1=<POWER> -> process system {1} wide
    2=<STOPS> 1=a-guard -> defence system {}
    2=<STOPS> -> process system {} wide:1~<VITAL>
kill
    words=-l|-L -> nothing
    w1=-0 -> nothing
    w1=-s|-n w2=0 -> nothing
    line~'(?:^|\s)1(?:\s|$)|\s-1(?:\s|$)' -> process system {line} wide
    -> process unknown {line}
pkill killall killall5 skill slay xkill : -u -U -g -G -P -s -t --signal --user --pgroup -F --ns -y -O
    + name=killall5 -> process system all wide
    + !name=killall -v|--inverse -> process system all wide
    + !1 -u|-U|--user=(?s).* -> process system {line} wide
    + 1-=a-guard -> defence system {}
    1-~<VITAL_PROGRAM> -> process system {} wide
    1 -> process unknown {}

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
"""
)
