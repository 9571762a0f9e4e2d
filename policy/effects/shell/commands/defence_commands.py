"""Commands that remove protection and traces: firewalls, access controls, audit, logs, shell
history, certificate checks."""

from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.findings import SECRET_NAME, Findings, Handler
from policy.effects.shell.commands.rule_table import rows


def assigned(name: str, value: Word, findings: Findings) -> None:
    """Add what it means that a variable gets this value."""
    words = (Word(f"{name}={value.known}"), Word(name), value)
    _VARIABLES["set"](findings.command, Args((), (), words), findings)


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


def _loaded(command: Command, args: Args, findings: Findings) -> None:
    library(args.operands[-1], findings)


_VARIABLES = rows(
    r"""
LOADS := LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES|BASH_ENV|PYTHONSTARTUP
OPTIONS := PERL5OPT|RUBYOPT|NODE_OPTIONS|JAVA_TOOL_OPTIONS
PATH := (?s).*/.*

set
    1~HISTFILE=(?:/dev/null)?|(?:HISTSIZE|HISTFILESIZE|SAVEHIST)=0.*|HISTCONTROL=ignorespace\S*:erase.*|TMOUT=0
        -> defence home {1}
    1~(?s)(?:NODE_TLS_REJECT_UNAUTHORIZED=[\x27"]?0|GIT_SSL_NO_VERIFY=(?:1|true|yes|on)|PYTHONHTTPSVERIFY=0|CURL_INSECURE=|GONOSUMCHECK=).*
        -> defence unknown {1}
    1~(?s)(?:SSL_VERIFY=(?:false|0|no)|GIT_TRACE_REDACT=0|NPM_CONFIG_STRICT_SSL=false|PIP_TRUSTED_HOST=|GONOSUMDB=\*|GOINSECURE=\*).*
        -> defence unknown {1}
    1~(?s)(?:GOFLAGS=-insecure|COSIGN_.*=|CARGO_HTTP_CHECK_REVOKE=false|HOMEBREW_NO_VERIFY).*|REQUESTS_CA_BUNDLE=
        -> defence unknown {1}
    + 2=<LOADS>|ENV 3~<PATH> root @3=temp|project|home -> privilege root {1}
    2=<LOADS> 3~<PATH> -> call load
    2=<LOADS> @unknown -> call load
    2=ENV 3~<PATH> -> execute @3
    2=ENV @unknown -> execute @3
    2=GIT_CONFIG_GLOBAL|GIT_CONFIG_SYSTEM 3~/tmp.* @3=temp
        -> unsure 'name: settings of git that may hold commands'
    2=PROMPT_COMMAND 3~(?s).*(?:https?://|/dev/tcp|\bnc\b|base64).* -> persistence startup {1}
    2=<OPTIONS> !3~(?s)(?=.*/).*(?:-M\w|-r|--require|--import|-javaagent|-e\b).* -> nothing
    2=<OPTIONS> 3~(?s)(?:.*[\s=:,]|.*-r)?(?:/|\x7e|\.\./|\w+:/).* -> execute unknown {1}
    2=<OPTIONS> -> execute project {1}
""",
    load=_loaded,
)
"""Variables that turn off checks, or whose value other programs run or load: `NAME=VALUE NAME VALUE`."""


def _named(command: Command, args: Args, findings: Findings) -> None:
    """Variables that are printed by their names."""
    findings.is_secret = any(SECRET_NAME.search(word.known) for word in command.words[1:])


HANDLERS: dict[str, Handler] = rows(
    r"""
TUNED := (?:vm\.(?:max_map_count|swappiness|overcommit_memory|nr_hugepages)|fs\.(?:inotify\.
        |file-max|nr_open|aio)|net\.core\.(?:somaxconn|[rw]mem)
        |net\.ipv4\.(?:ip_unprivileged_port_start|ip_local_port_range|tcp_[rw]mem|ping_group_range)
        |kernel\.(?:pid_max|threads-max|shm|sem|msg))
AGENT := (?:ANTHROPIC|OPENAI|CLAUDE|GOOGLE_GEMINI|GEMINI|OPENROUTER|AZURE_OPENAI|CLAUDE_CODE|CODEX
        |QWEN|LITELLM)\w*_(?:BASE_URL|API_BASE|ENDPOINT|HOST)
claude claude-code codex gemini gemini-cli qwen cursor-agent copilot amp crush droid opencode goose aider q kiro-cli auggie
        : --permission-mode --approval-mode -s --sandbox -c --config -m --model -p --print -a --ask-for-approval
    + sets~<AGENT>|GOOSE_MODE -> defence unknown {line}
    +
        words~--dangerously-.*|--allow-dangerously-.*|--skip-permissions-.*|--yolo|--allow-all(?:-tools|-paths)?|--yes-always|--trust-all-tools
        -> defence unknown {line}
    + --permission-mode=bypassPermissions -> defence unknown {line}
    + --approval-mode=yolo -> defence unknown {line}
    + -s|--sandbox=danger-full-access -> defence unknown {line}
    + -c|--config=(?s).*(?:danger-full-access|approval_policy\W+never|bypassPermissions).*
        -> defence unknown {line}
    + name=gemini|gemini-cli|qwen|crush words=-y -> defence unknown {line}
    + name=cursor-agent words=-f|--force -> defence unknown {line}
    1=mcp 2=add|add-json|add-from-claude-desktop|remove -> persistence startup {line}
    1=plugin|plugins|extension|extensions 2=install|add|marketplace|link
        -> persistence startup {line}
    1=config 2=set|add|remove -> persistence startup {line}
set-mppreference add-mppreference uninstall-windowsfeature disable-netfirewallrule set-netfirewallprofile clear-eventlog remove-eventlog
    -> defence system {line}
iptables ip6tables iptables-legacy iptables-nft arptables
    words=-F|--flush|-X|--delete-chain|--zap -> defence system {line}
    words=-P|--policy words=ACCEPT -> defence system {line}
    line~'(?:^| )(?:-D|--delete) .' -> defence system {line}
    words=-A|-I|--append|--insert words=ACCEPT
        !words=-s|-d|-p|-i|-o|-m|--source|--destination|--protocol|--in-interface|--match|--dport -> defence system {line}
    words=-A|-I|-R|-N|--append|--insert -> write unknown {line}
ufw nft firewall-cmd pfctl ipfw netsh ebtables csf shorewall ipset
    name=ufw
        line~'(?:--force )?(?:disable|reset)|logging off|default allow|allow from any$|delete (?:deny|reject)'
        -> defence system {line}
    name=nft line~'flush (?:ruleset|table|chain)|delete (?:table|chain|rule)'
        -> defence system {line}
    name=firewall-cmd
        line~'--panic-off|--set-default-zone[= ]trusted|--remove-(?:rich-rule|service)|--zone=trusted --add|--set-target[= ]ACCEPT'
        -> defence system {line}
    name=pfctl line~-d\b|-F\b -> defence system {line}
    name=ipfw line~'(?:-f )?flush|disable firewall' -> defence system {line}
    name=netsh
        line~'(?i)advfirewall.*(?:state off|delete rule)|firewall set opmode (?:mode=)?disable' ->
        defence system {line}
    name=ebtables line~-F|--flush -> defence system {line}
    name=csf line~-x|-f\b -> defence system {line}
    name=shorewall line~stop|clear -> defence system {line}
    name=ipset line~flush|destroy -> defence system {line}
    line~\b(?:allow|add|insert)\b|--add- -> write unknown {line}

setenforce
    line~(?i)^(?:0|permissive)$ -> defence system {line}
auditctl
    line~'-e ?0|-D\b|-d\b|-W\b|-b ?0|-r ?0|--reset' -> defence system {line}
apparmor_parser
    line~-R\b|--remove -> defence system {line}
semanage
    line~'permissive -a|-D\b|\b-d\b' -> defence system {line}
aa-disable aa-complain
    -> defence system {}
aa-teardown
    -> defence system apparmor
sysctl : -p --load -f
    line~kernel\.randomize_va_space\s*=\s*[01]|ptrace_scope\s*=\s*0|dmesg_restrict\s*=\s*0|kptr_restrict\s*=\s*0
        -> defence system {line}
    line~unprivileged_bpf_disabled\s*=\s*0|suid_dumpable\s*=\s*[12]|perf_event_paranoid\s*=\s*-?[01]|exec-shield\s*=\s*0
        -> defence system {line}
    line~protected_(?:sym|hard)links\s*=\s*0|modules_disabled\s*=\s*0|tcp_syncookies\s*=\s*0|rp_filter\s*=\s*0|nmi_watchdog\s*=\s*0
        -> defence system {line}
    line~accept_(?:redirects|source_route)\s*=\s*1|apparmor_restrict_unprivileged_userns\s*=\s*0|kernel\.sysrq\s*=\s*1
        -> defence system {line}
    line~kexec_load_disabled\s*=\s*0|yama -> defence system {line}
    line~'(?:^| )-w(?: |$)|=' line~core_pattern\s*=\s*\||modprobe\s*=|binfmt|hotplug
        -> privilege system {line}
    + -p|--load|-f !@-p|--load|-f=system -> write system /proc/sys/
    words~(?!-)\s*(?!<TUNED>)[^=]+=.* -> write system /proc/sys/{}
fail2ban-client
    line~'\bstop\b|\bunban\b|set \S+ (?:unbanip|addignoreip)' -> defence system {line}
spctl
    line~--(?:master|global)-disable|--disable|--remove -> defence system {line}
csrutil
    line~\bdisable\b -> defence system {line}
fdesetup
    line~disable|removerecovery -> defence system {line}
tmutil
    line~disable\b|delete -> defence system {line}
xattr
    line~'-\w*[dc]\w* .*com\.apple\.quarantine|-c\b' -> defence system {line}
tccutil
    line~reset -> defence system {line}
defaults
    line~'write.*(?:LSQuarantine|GatekeeperEnabled|globalstate -int 0|loginwindow)'
        -> defence system {line}
wevtutil
    line~'(?i)\bcl\b|clear-log|sl .*/e:false' -> defence system {line}
bcdedit
    line~(?i)/set -> defence system {line}
vssadmin
    line~'(?i)delete shadows' -> defence system {line}
wbadmin
    line~(?i)delete -> defence system {line}
reg
    line~(?i)\b(?:delete|add)\b.*(?:defender|policies|\\run) -> defence system {line}
sc
    line~(?i)\b(?:stop|delete|config)\b -> defence system {line}
osqueryctl
    line~stop|clean -> defence system {line}
mdatp
    line~'disabled|--value disable|exclusion' -> defence system {line}
falconctl
    line~-d\b|uninstall|unload -> defence system {line}
usbguard
    line~allow-device.*all|set-parameter -> defence system {line}
update-crypto-policies
    line~LEGACY -> defence system {line}
journalctl
    line~'--vacuum-(?:time|size|files)[= ](?:[01]|\d+ ?s(?:ec\w*)?|[1-9]|1[0-9]?[KM]B?)\b|--relinquish-var'
        -> defence system {line}
dmesg
    line~-[cC]\b|--clear|--read-clear|--console-off -> defence system {line}
utmpdump
    line~-r\b|--reverse -> defence system {line}
logrotate
    line~-f\b|--force -> defence system {line}
mokutil
    line~--disable-validation|--import -> defence system {line}
kexec
    line~-l|-e\b|-p\b|--load|--exec -> defence system {line}

history fc
    -c|-d|--clear|--delete -> defence home shell history
    1-=clear|delete -> defence home shell history
set
    w1=+o w2=history -> defence home shell history off
    w1=-o w2=nohistory -> defence home shell history off
    w1=+H w2=history -> defence home shell history off
    !w1 -> prints-secret
unset
    1-=HISTFILE|HISTSIZE|HISTFILESIZE|PROMPT_COMMAND|SAVEHIST -> defence home shell history off
    1-~<AGENT> -> defence unknown {line}
env printenv
    !words~(?s)(?!-)[^=]* -> prints-secret
    name=printenv -> call named
export declare typeset compgen
    !1 -> prints-secret
    -p -> call named
enable
    -> call enable
update-alternatives ldconfig
    + line~'(?:--install|--set) (?:\S+ ){1,3}/opt/\.' -> persistence startup {line}
    @operands=temp -> write system /etc/alternatives
chattr
    words~[-+=][aAcCdDeijsStTu]*[ai][aAcCdDeijsStTu]* -> defence
        @operands=system|startup|credentials|root
""",
    named=_named,
    enable=_enable,
)
