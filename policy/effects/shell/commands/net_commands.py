"""Commands that talk to other hosts: what they fetch and where they put it, what they send, and who
gets a shell through them."""

import re

from policy.effects.effect import Scope
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args
from policy.effects.shell.commands.file_commands import is_remote
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.effects.shell.commands.web_commands import curl, has_secret_variable, httpie, wget

_SHELLS = re.compile(
    r"(?:.*/)?(?:ba|da|z|k|c|tc|a|fi)?sh(?:\s.*)?|(?:.*/)?(?:cmd(?:\.exe)?|powershell(?:\.exe)?|pwsh|busybox)(?:\s.*)?"
)


def _netcat(command: Command, args: Args, findings: Findings) -> None:
    programs = args.all("-e|-c|--exec|--sh-exec|--lua-exec")
    listens = args.has("-l|--listen|-L")
    scope: Scope = "unknown"
    if args.operands and not listens and not re.fullmatch(r"\d+", args.operands[0].known):
        scans = args.has("-z")
        scope = findings.reach(
            args.operands[0],
            sends=not scans and command.stdin.kind in ("command", "file", "text", "unknown"),
        )
    elif listens:
        findings.add("network", "unknown", "listens")
        findings.sends.append(("unknown", "whoever connects", True))
    for word in programs:
        if re.match(
            r"(?:.*/)?(?:echo|printf|date|hostname|uptime|true|yes|fortune|cat"
            r" [^;|&]*)(?:\s[^;|&`$]*)?$",
            word.known,
        ):
            continue
        # whoever is on the other side gives commands
        findings.add(
            "execute",
            (
                scope
                if scope in ("private", "loopback") and not _SHELLS.fullmatch(word.known)
                else "other"
            ),
            word.known,
        )


def _socat(command: Command, args: Args, findings: Findings) -> None:
    texts = command.texts
    runs = any(re.match(r"(?i)(?:exec|system|shell):", text) for text in texts)
    for word in command.words[1:]:
        text = word.known
        if (
            peer := re.match(
                r"(?i)(?:tcp|tcp4|tcp6|udp|udp4|udp6|openssl|ssl|sctp|socks\w*|proxy|dtls)(?:-connect|-client|"
                r"-sendto)?:([^:,]+)",
                text,
            )
        ) is not None:
            scope = findings.reach(Word(peer[1]), sends=True)
            if runs:
                findings.add("execute", "other" if scope != "loopback" else scope, text)
        elif re.match(r"(?i)(?:tcp|udp|openssl|ssl|sctp)\d?-(?:l|listen|recv\w*):", text):
            findings.add("network", "unknown", "listens")
            findings.sends.append(("unknown", "whoever connects", True))
            if runs:
                findings.add("execute", "other", text)
        elif (path := re.match(r"(?i)(?:file|open|gopen|create):([^,]+)", text)) is not None:
            findings.read(Word(path[1]))


def _ssh(command: Command, args: Args, findings: Findings) -> None:
    host = args.operands[0] if args.operands else Word("")
    scope = (
        findings.reach(host, sends=True, account=True)
        if host.known or host.text is None
        else "unknown"
    )
    for word in args.all("-o"):
        setting = re.match(
            r"(?i)(?:proxycommand|localcommand|knownhostscommand|pkcs11provider)[ =]\s*(.*)",
            word.known,
        )
        if setting is not None and not re.match(
            r"(?:none|ssh |nc |ncat |connect |cloudflared access|aws ssm|sh -c .?aws ssm)",
            setting[1],
        ):
            findings.add("execute", "unknown", setting[1])
        if re.match(r"(?i)permitlocalcommand[ =]yes", word.known):
            findings.add("execute", "unknown", word.known)
    for word in args.all("-R"):
        # whoever is there gets in here
        findings.add("defence", scope, f"-R {word.known}")


def _scp(command: Command, args: Args, findings: Findings) -> None:
    *sources, target = args.operands or (Word(""),)
    for word in sources:
        if is_remote(word):
            findings.reach(word)
        else:
            findings.read(word, wide=args.has("-r|-R"))
    if is_remote(target):
        findings.reach(target, sends=bool(sources), account=True)
    elif sources:
        findings.write(target)
        for word in sources:
            if is_remote(word):
                name = word.known.rpartition("/")[2]
                findings.downloads.append(
                    (findings.place(target).path, findings.scope_of_host(word))
                )
                findings.downloads.append(
                    (
                        findings.place(Word(f"{target.known}/{name}")).path,
                        findings.scope_of_host(word),
                    )
                )
    for word in args.all("-S|-D"):
        findings.add("execute", "unknown", word.known)


def _ftp(command: Command, args: Args, findings: Findings) -> None:
    files = args.operands
    if command.name in ("ftpput", "ncftpput", "tftp", "smbclient"):
        for word in args.all("-l"):
            findings.read(word)
        for word in files[1:]:
            if not word.known.startswith("-"):
                findings.reads.append(findings.place(word))
    script = command.stdin.text if command.stdin.kind == "text" else ""
    for text in (script, *(word.known for word in args.all("-c|-e"))):
        for path in re.findall(
            r"(?:^|[;\s])(?:m?put|mirror\s+-R|reput|append|send)\s+(?:-\S+\s+)*([^\s;]+)",
            text[:4_096],
        ):
            findings.read(Word(path))
        files += tuple(
            map(Word, re.findall(r"(?:^|[;\s])open\s+(?:-\S+\s+\S+\s+)*([^\s;]+)", text[:4_096]))
        )
    for word in files[:1]:
        findings.reach(word, sends=True, account=command.name == "sftp")


def _lookup(command: Command, args: Args, findings: Findings) -> None:
    """`dig`, `ping` and the like: a name that is made of data tells it to whoever answers for the
    domain."""
    for word in args.all("-f"):
        if command.name in ("dig", "fping"):
            # a file of names
            findings.read(word)
            findings.sends.append(("unknown", word.known, True))
    for word in args.all("-p"):
        if command.name.startswith("ping") and (word.text is None or len(word.known) > 6):
            findings.sent.append(word)
            findings.sends.append(("other", " ".join(args.texts), False))
    for word in args.operands:
        text = word.known
        if word.text is None and (word.outputs or has_secret_variable(word)):
            findings.sent.append(word)
            findings.sends.append(
                ("other" if "." in word.bare.strip(".") else "unknown", text, False)
            )
            findings.tells = bool(word.outputs)
        elif "." in text or ":" in text:
            findings.add("network", findings.scope_of_host(Word(text.lstrip("@"))), text)


def _mail(command: Command, args: Args, findings: Findings) -> None:
    for word in [*args.operands, *args.all("--to|-t")]:
        if "@" in word.known or word.text is None:
            findings.sends.append(
                (
                    findings.scope_of_host(word) if word.text is not None else "unknown",
                    word.known,
                    False,
                )
            )
            findings.ask(word)
    if not findings.sends and command.name in ("sendmail", "msmtp"):
        # the addresses stand in what it reads
        findings.sends.append(("unknown", command.name, False))


HANDLERS: dict[str, Handler] = rows(
    r"""
REMOTE := (?s)[\w-]*:.*|:[a-z]+[,:].*
COPIES := copy|sync|move|copyto|moveto|bisync
ENDS := purge|delete|deletefile|rmdirs|cleanup

curl curlie : -d -F -T -o -H -u -x -A -e -b -c -K -m -X -w -r -C -E -U -y -Y -z -t -P --data --data-raw --data-binary
        --data-urlencode --data-ascii --json --form --form-string --upload-file --output --header --user --proxy
        --user-agent --referer --cookie --cookie-jar --config --max-time --request --write-out --range --cert --key
        --cacert --connect-timeout --retry --retry-delay --url --unix-socket --resolve --interface --limit-rate
        --output-dir --dump-header -D --oauth2-bearer --proxy-user --connect-to --dns-servers --netrc-file --trace
        --trace-ascii --max-redirs --next --ciphers --proto --tlsv --url-query --create-file-mode --max-filesize
        --speed-limit --hostpubsha256 --pass --preproxy --socks5 --socks5-hostname --variable --doh-url
        --abstract-unix-socket
    -> call curl
wget wget2 aria2c axel lwp-download : -O -o -a -i -P -U -e -t -T -w -Q -l -A -R -D -I -X -B --output-document
        --output-file --input-file --directory-prefix --user-agent --header --post-data --post-file --body-data
        --body-file --method --user --password --load-cookies --save-cookies --timeout --tries --wait --limit-rate
        --level --accept --reject --domains --use-askpass --execute --ca-certificate --cut-dirs --include-directories
        --exclude-directories --base --config --referer --default-page --http-user --http-password
    + -> reads --post-file|--body-file|-i|--input-file
    + -> call wget
    -> writes -o|-a|--output-file|--save-cookies
http https xh xhs : -a --auth -o --output --session -A --verify --cert --timeout
    + -> call httpie
    -> writes -o|--output
nc ncat netcat nc.traditional nc.openbsd : -e -c --exec --sh-exec --lua-exec -p -s -w -i -q -x -X -I -O -T -V -o -g -G
        -m --proxy -P
    -> call netcat
socat
    -> call socat
ssh autossh : -p -i -l -o -F -J -L -R -D -W -w -b -c -e -m -S -E -O -Q -B -I -P
    -> call ssh
scp pscp : -P -i -o -F -l -c -J -S -b -X -B -R -s -D
    -> call scp
sftp ftp lftp ncftp ncftpput ftpput tftp smbclient telnet : -u -p -e -c -P -m -U -f -l -d -o
    -> call ftp
dig drill nslookup host ping ping6 fping traceroute whois kdig delv dog doggo resolvectl getent mtr tracepath ntpdate
        finger arping nping hping3 dnsx : -c -i -W -w -s -p -t -I -q -x -b -k -f -m -n -M -Q -R -l -S -T -e
    -> call lookup
mail mailx mutt sendmail swaks sendemail msmtp : -s -a -A -c -b -r -S -t -u -f -m -o -xu -xp --attach --to --from
        --server --body
    + -> reads -a|-A|--attach
    -> call mail
logger : -n --server -P --port -f --file -p -t -i! --priority --tag
    -> reads -f|--file ; reach -n|--server sends
cloudflared
    line~'--url\b|tunnel .*\brun\b|--hello-world|--unix-socket' -> defence other {line}
    -> network other {line}
tailscale
    -> network other {line}
ngrok lt localtunnel bore frpc chisel
    1=verify|version|help|update|config|authtoken|diagnose|completion|service -> network other {line}
    1-~(?s).* -> defence other {line}
    words~(?s)-[^-].*|--[^=]+ -> defence other {line}
    -> network other {line}
rclone : --config --transfers --exclude --include --filter --bwlimit --max-age --min-age --drive-shared-with-me
    + 1=rcat -> send unknown {2-} account
    + 1=<COPIES> 3 !4 !2~<REMOTE> -> reads 2 wide
    + 1=<COPIES> 3 !4 3~<REMOTE> -> send unknown {3} account ; network unknown {3}
    + 1=<COPIES> 3 !4 !3~<REMOTE> -> writes 3 wide
    + 1=sync 3 !4 3~<REMOTE> -> delete unknown {3} wide
    + 1=sync 3 !4 !3~<REMOTE> -> delete @3 wide
    + 1=<ENDS> 2-~<REMOTE> -> delete unknown {2-} wide:!1=deletefile
    + 1=<ENDS> !2~<REMOTE> -> delete @2- wide:!1=deletefile
    1=config 2=show|dump -> prints-secret ; read credentials rclone config
""",
    curl=curl,
    wget=wget,
    httpie=httpie,
    netcat=_netcat,
    socat=_socat,
    ssh=_ssh,
    scp=_scp,
    ftp=_ftp,
    lookup=_lookup,
    mail=_mail,
)
"""`logger -n` tells another host; through a tunnel the world reaches a port of this machine."""
