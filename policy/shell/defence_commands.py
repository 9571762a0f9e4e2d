"""Commands that remove protection and traces: firewalls, access controls, audit, logs, shell
history, certificate checks."""

import re

from policy.shell.args import Args, args_of
from policy.shell.commands import Command, Word
from policy.shell.findings import SECRET_NAME, Findings, Handler


def _iptables(command: Command, args: Args, findings: Findings) -> None:
    texts = [word.known for word in command.words[1:]]
    opens = False
    for name, value in zip(texts, [*texts[1:], ""], strict=False):
        opens |= name in ("-F", "--flush", "-X", "--delete-chain", "--zap")
        opens |= name in ("-P", "--policy") and "ACCEPT" in texts
        opens |= name in ("-D", "--delete") and bool(value)
    wide = not any(
        t
        in (
            "-s",
            "-d",
            "-p",
            "-i",
            "-o",
            "-m",
            "--source",
            "--destination",
            "--protocol",
            "--in-interface",
            "--match",
            "--dport",
        )
        for t in texts
    )
    opens |= (
        any(t in ("-A", "-I", "--append", "--insert") for t in texts) and "ACCEPT" in texts and wide
    )
    if opens:
        findings.add("defence", "system", " ".join(texts))
    elif any(t in ("-A", "-I", "-R", "-N", "--append", "--insert") for t in texts):
        findings.add("write", "unknown", " ".join(texts))


def _firewall(command: Command, args: Args, findings: Findings) -> None:
    joined = " ".join(word.known for word in command.words[1:])
    patterns = {
        "ufw": (
            r"(?:--force )?(?:disable|reset)|logging off|default allow|allow from any$|delete"
            r" (?:deny|reject)"
        ),
        "nft": r"flush (?:ruleset|table|chain)|delete (?:table|chain|rule)",
        "firewall-cmd": (
            r"--panic-off|--set-default-zone[="
            r" ]trusted|--remove-(?:rich-rule|service)|--zone=trusted --add|--set-target[= "
            r"]ACCEPT"
        ),
        "pfctl": r"-d\b|-F\b",
        "ipfw": r"(?:-f )?flush|disable firewall",
        "netsh": (
            r"(?i)advfirewall.*(?:state off|delete rule)|firewall set opmode (?:mode=)?disable"
        ),
        "ebtables": r"-F|--flush",
        "csf": r"-x|-f\b",
        "shorewall": r"stop|clear",
        "ipset": r"flush|destroy",
    }
    if re.search(patterns.get(command.name, "(?!)"), joined):
        findings.add("defence", "system", joined)
    elif re.search(r"\b(?:allow|add|insert)\b|--add-", joined):
        findings.add("write", "unknown", joined)


def _controls(command: Command, args: Args, findings: Findings) -> None:
    joined = " ".join(word.known for word in command.words[1:])
    patterns = {
        "setenforce": r"(?i)^(?:0|permissive)$",
        "auditctl": r"-e ?0|-D\b|-d\b|-W\b|-b ?0|-r ?0|--reset",
        "apparmor_parser": r"-R\b|--remove",
        "semanage": r"permissive -a|-D\b|\b-d\b",
        "sysctl": r"(?:" + _HARDENING + r")",
        "fail2ban-client": r"\bstop\b|\bunban\b|set \S+ (?:unbanip|addignoreip)",
        "spctl": r"--(?:master|global)-disable|--disable|--remove",
        "csrutil": r"\bdisable\b",
        "fdesetup": r"disable|removerecovery",
        "tmutil": r"disable\b|delete",
        "xattr": r"-\w*[dc]\w* .*com\.apple\.quarantine|-c\b",
        "wevtutil": r"(?i)\bcl\b|clear-log|sl .*/e:false",
        "bcdedit": r"(?i)/set",
        "vssadmin": r"(?i)delete shadows",
        "wbadmin": r"(?i)delete",
        "reg": r"(?i)\b(?:delete|add)\b.*(?:defender|policies|\\run)",
        "sc": r"(?i)\b(?:stop|delete|config)\b",
        "osqueryctl": r"stop|clean",
        "mdatp": r"disabled|--value disable|exclusion",
        "falconctl": r"-d\b|uninstall|unload",
        "usbguard": r"allow-device.*all|set-parameter",
        "update-crypto-policies": r"LEGACY",
        "journalctl": (
            r"--vacuum-(?:time|size|files)[= ](?:[01]|\d+"
            r" ?s(?:ec\w*)?|[1-9]|1[0-9]?[KM]B?)\b|--relinquish-var"
        ),
        "dmesg": r"-[cC]\b|--clear|--read-clear|--console-off",
        "utmpdump": r"-r\b|--reverse",
        "logrotate": r"-f\b|--force",
        "defaults": r"write.*(?:LSQuarantine|GatekeeperEnabled|globalstate -int 0|loginwindow)",
        "mokutil": r"--disable-validation|--import",
        "kexec": r"-l|-e\b|-p\b|--load|--exec",
        "tccutil": r"reset",
    }
    if re.search(patterns.get(command.name, "(?!)"), joined):
        findings.add("defence", "system", joined)
    elif (
        command.name == "sysctl"
        and ("-w" in joined.split() or "=" in joined)
        and re.search(
            r"core_pattern\s*=\s*\||modprobe\s*=|binfmt|hotplug",
            joined,
        )
    ):
        findings.add("privilege", "system", joined)
    elif command.name == "sysctl":
        for word in command.words[1:]:
            name, sign, _ = word.known.partition("=")
            if sign and not name.startswith("-") and not _TUNED.match(name.strip()):
                findings.add("write", "system", "/proc/sys/" + name.strip().replace(".", "/"))
        for word in args_of(command, ("-p", "--load", "-f")).all("-p", "--load", "-f"):
            if findings.place(word).scope != "system":
                findings.add("write", "system", "/proc/sys/")


_TUNED = re.compile(
    r"vm\.(?:max_map_count|swappiness|overcommit_memory|nr_hugepages)|fs\.(?:inotify\.|file-max"
    r"|nr_open|aio)|net\.core\.(?:somaxconn|[rw]mem)|"
    r"net\.ipv4\.(?:ip_unprivileged_port_start|ip_local_port_range|tcp_[rw]mem|ping_group_range)"
    r"|kernel\.(?:pid_max|threads-max|shm|sem|msg)"
)
"""Bounds that databases and watchers of files need higher."""
_HARDENING = (
    r"kernel\.randomize_va_space\s*=\s*[01]|ptrace_scope\s*=\s*0|dmesg_restrict\s*=\s*0"
    r"|kptr_restrict\s*=\s*0|"
    r"unprivileged_bpf_disabled\s*=\s*0|suid_dumpable\s*=\s*[12]|"
    r"perf_event_paranoid\s*=\s*-?[01]|protected_(?:sym|hard)links\s*=\s*0"
    r"|modules_disabled\s*=\s*0|tcp_syncookies\s*=\s*0|"
    r"rp_filter\s*=\s*0|accept_(?:redirects|source_route)\s*=\s*1|"
    r"apparmor_restrict_unprivileged_userns\s*=\s*0|kernel\.sysrq\s*=\s*1|exec-shield\s*=\s*0"
    r"|nmi_watchdog\s*=\s*0|"
    r"kexec_load_disabled\s*=\s*0|yama"
)


def _history(command: Command, args: Args, findings: Findings) -> None:
    if (
        args.has("-c", "-d", "--clear", "--delete")
        or "clear" in args.texts
        or "delete" in args.texts
    ):
        findings.add("defence", "home", "shell history")


def _set(command: Command, args: Args, findings: Findings) -> None:
    texts = [word.known for word in command.words[1:]]
    if texts[:2] in (["+o", "history"], ["-o", "nohistory"], ["+H", "history"]):
        findings.add("defence", "home", "shell history off")
    elif not texts:
        findings.is_secret = True


def _unset(command: Command, args: Args, findings: Findings) -> None:
    if any(
        text in ("HISTFILE", "HISTSIZE", "HISTFILESIZE", "PROMPT_COMMAND", "SAVEHIST")
        for text in args.texts
    ):
        findings.add("defence", "home", "shell history off")


_SETTINGS = re.compile(
    r"NODE_TLS_REJECT_UNAUTHORIZED=['\"]?0|GIT_SSL_NO_VERIFY=(?:1|true|yes|on)|PYTHONHTTPSVERIFY=0"
    r"|CURL_INSECURE=|SSL_VERIFY=(?:false|0|"
    r"no)|GIT_TRACE_REDACT=0|"
    r"HISTFILE=(?:/dev/null)?$|HISTSIZE=0|HISTFILESIZE=0|SAVEHIST=0"
    r"|HISTCONTROL=ignorespace\S*:erase|TMOUT=0$|NPM_CONFIG_STRICT_SSL=false|"
    r"PIP_TRUSTED_HOST=|GONOSUMCHECK=|"
    r"GONOSUMDB=\*|GOINSECURE=\*|GOFLAGS=-insecure|COSIGN_.*=|REQUESTS_CA_BUNDLE=$"
    r"|CARGO_HTTP_CHECK_REVOKE=false|HOMEBREW_NO_VERIFY"
)
_LOADERS = re.compile(
    r"LD_PRELOAD|LD_AUDIT|LD_LIBRARY_PATH|DYLD_INSERT_LIBRARIES|BASH_ENV|ENV|PROMPT_COMMAND"
    r"|PYTHONSTARTUP|PERL5OPT|"
    r"PERL5LIB|RUBYOPT|NODE_OPTIONS|JAVA_TOOL_OPTIONS|GIT_SSH_COMMAND|GIT_ASKPASS|PYTHONPATH|PAGER"
    r"|EDITOR|VISUAL|MANPAGER|GIT_EDITOR|"
    r"GIT_PAGER|GIT_EXTERNAL_DIFF|LESSOPEN|GIT_CONFIG_(?:GLOBAL|SYSTEM)"
)
"""Variables whose value other programs run or load."""


def assigned(name: str, value: Word, findings: Findings) -> None:
    """Add what it means that a variable gets this value."""
    text = value.known
    if _SETTINGS.match(f"{name}={text}"):
        findings.add(
            "defence",
            "home" if name.startswith(("HIST", "SAVEHIST", "TMOUT")) else "unknown",
            f"{name}={text}",
        )
    elif _LOADERS.fullmatch(name):
        _loaded(name, value, findings)


def library(path: Word, findings: Findings) -> None:
    """Add what it means that a program loads a library or script before it does anything: nobody
    reads that."""
    place = findings.place(path)
    if place.scope != "system":
        findings.add(
            "execute",
            findings.downloaded(place.path)
            or ("unknown" if place.scope == "temp" else place.scope),
            place.path,
        )
        findings.unsure.append("name: what a program loads before it begins")


def _enable(command: Command, args: Args, findings: Findings) -> None:
    """`enable -f FILE name`: a library becomes a part of the shell."""
    for word in args_of(command, ("-f",)).all("-f"):
        library(word, findings)


def _linked(command: Command, args: Args, findings: Findings) -> None:
    """`update-alternatives`, `ldconfig`: what programs of the system are, or load, lies where
    anybody writes."""
    if any(findings.place(word).scope == "temp" for word in command.words[1:] if "/" in word.known):
        findings.add("write", "system", "/etc/alternatives")


def _loaded(name: str, value: Word, findings: Findings) -> None:
    text = value.known
    if name in (
        "LD_PRELOAD",
        "LD_AUDIT",
        "DYLD_INSERT_LIBRARIES",
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
    ):
        if "/" in text or value.text is None:
            place = findings.place(value)
            if name == "ENV":
                findings.add(
                    "execute", findings.downloaded(place.path) or place.scope, f"{name}={text}"
                )
            else:
                library(value, findings)
            if findings.command.is_root and place.scope in ("temp", "project", "home"):
                findings.add("privilege", "root", f"{name}={text}")
    elif (
        name.startswith("GIT_CONFIG")
        and findings.place(value).scope == "temp"
        and text.startswith("/tmp")
    ):
        findings.unsure.append("name: settings of git that may hold commands")
    elif name == "PROMPT_COMMAND" and re.search(r"https?://|/dev/tcp|\bnc\b|base64", text):
        findings.add("persistence", "startup", f"{name}={text}")
    elif (
        name in ("PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS")
        and re.search(r"-M\w|-r|--require|--import|-javaagent|-e\b", text)
        and re.search(r"/", text)
    ):
        is_own = re.search(r"(?:^|[\s=:,]|-r)(?:/|~|\.\./|\w+:/)", text) is None
        findings.add("execute", "project" if is_own else "unknown", f"{name}={text}")


def _prints_environment(command: Command, args: Args, findings: Findings) -> None:
    """`env`, `printenv`: all variables, or those named."""
    texts = [word.known for word in command.words[1:]]
    if not texts or all(t.startswith("-") or "=" in t for t in texts):
        findings.is_secret = True
    elif command.name == "printenv":
        findings.is_secret = any(SECRET_NAME.search(t) for t in texts)


def _export(command: Command, args: Args, findings: Findings) -> None:
    if not args.operands:
        findings.is_secret = True
    elif args.has("-p"):
        findings.is_secret = any(map(SECRET_NAME.search, args.texts))


def _attributes(command: Command, args: Args, findings: Findings) -> None:
    """`chattr -i` takes a lock off; `+i` on a file that is not ours puts one on that others cannot
    lift."""
    words = command.words[1:]
    modes = [
        word.known
        for word in words
        if re.fullmatch(r"[-+=][aAcCdDeijsStTu]+", word.known)
        and word.known not in ("-R", "-V", "-f")
    ]
    for word in words:
        if word.known.startswith(("-", "+", "=")):
            continue
        place = findings.place(word)
        if place.scope in ("system", "startup", "credentials", "root") and any(
            "i" in mode or "a" in mode for mode in modes
        ):
            findings.add("defence", place.scope, f"{' '.join(modes)} {place.path}")


def _windows(command: Command, args: Args, findings: Findings) -> None:
    """PowerShell's commands about guards."""
    findings.add("defence", "system", " ".join(word.known for word in command.words[1:]))


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        "set-mppreference add-mppreference uninstall-windowsfeature disable-netfirewallrule"
        " set-netfirewallprofile clear-eventlog remove-eventlog".split(),
        _windows,
    ),
    **dict.fromkeys("iptables ip6tables iptables-legacy iptables-nft arptables".split(), _iptables),
    **dict.fromkeys(
        "ufw nft firewall-cmd pfctl ipfw netsh ebtables csf shorewall ipset".split(), _firewall
    ),
    **dict.fromkeys(
        "setenforce auditctl apparmor_parser semanage sysctl fail2ban-client spctl csrutil fdesetup"
        " tmutil xattr wevtutil bcdedit vssadmin wbadmin reg sc osqueryctl mdatp falconctl usbguard"
        " update-crypto-policies journalctl dmesg utmpdump logrotate defaults mokutil kexec "
        "tccutil".split(),
        _controls,
    ),
    "aa-disable": lambda c, a, f: f.add("defence", "system", " ".join(a.texts)),
    "aa-teardown": lambda c, a, f: f.add("defence", "system", "apparmor"),
    "aa-complain": lambda c, a, f: f.add("defence", "system", " ".join(a.texts)),
    "history": _history,
    "fc": _history,
    "set": _set,
    "unset": _unset,
    "env": _prints_environment,
    "enable": _enable,
    "update-alternatives": _linked,
    "ldconfig": _linked,
    "printenv": _prints_environment,
    "export": _export,
    "declare": _export,
    "typeset": _export,
    "compgen": _export,
    "chattr": _attributes,
}
