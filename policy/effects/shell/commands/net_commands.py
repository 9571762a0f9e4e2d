"""Commands that talk to other hosts: what they fetch and where they put it, what they send, and who
gets a shell through them."""

import re

from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args
from policy.effects.shell.commands.file_commands import is_remote
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.effects.shell.commands.web_commands import curl, has_secret_variable, httpie, wget


def transfer(command: Command, args: Args, findings: Findings) -> None:
    """`scp`, `rsync`: to a host, or from one."""
    *sources, target = args.operands or (Word(""),)
    local = [word for word in sources if not is_remote(word)]
    findings.read(*local, wide=args.has("-r|-R|-a|--archive|--recursive"))
    if args.has("--remove-source-files"):
        findings.delete(*local, wide=True)
    for word in sources:
        if word not in local:
            scope, name = findings.reach(word), word.known.rpartition("/")[2]
            findings.downloads += [
                (findings.place(Word(path)).path, scope)
                for path in (target.known, f"{target.known}/{name}")
            ]
    if is_remote(target):
        findings.reach(target, sends=True, account=True)
    elif sources:
        findings.write(target)


def _ftp(command: Command, args: Args, findings: Findings) -> None:
    files = args.operands
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


HANDLERS: dict[str, Handler] = rows(
    r"""
REMOTE := (?s)[\w-]*:.*|:[a-z]+[,:].*
COPIES := copy|sync|move|copyto|moveto|bisync
ENDS := purge|delete|deletefile|rmdirs|cleanup
PRINTS := (?:.*/)?(?:echo|printf|date|hostname|uptime|true|yes|fortune|cat [^;|&]*)(?:\s[^;|&`$]*)?
PEER := (?i)(?:tcp|tcp4|tcp6|udp|udp4|udp6|openssl|ssl|sctp|socks\w*|proxy|dtls)(?:-connect|-client
        |-sendto)?:([^:,]+).*
LISTENS := (?i)(?:tcp|udp|openssl|ssl|sctp)\d?-(?:l|listen|recv\w*):.*
RUNS := (?is)(?:exec|system|shell):.*
TUNNEL := none|ssh |nc |ncat |connect |cloudflared access|aws ssm|sh -c .?aws ssm
DELETES := --delete|--delete-after|--delete-before|--delete-excluded|--delete-during|--del
        |--delete-delay
THERE := (?!/|\./|\x7e)(?:(?:[\w.-]+@)?[\w.\[\]-]{2,}::?(?!//?\Z).*|[a-z]+://.*|[^@]*+@[^:]*+:.*)

curl curlie : -d -F -T -o -H -u -x -A -e -b -c -K -m -X -w -r -C -E -U -y -Y -z -t -P --data --data-raw --data-binary
        --data-urlencode --data-ascii --json --form --form-string --upload-file --output --header --user --proxy
        --user-agent --referer --cookie --cookie-jar --config --max-time --request --write-out --range --cert --key
        --cacert --connect-timeout --retry --retry-delay --url --unix-socket --resolve --interface --limit-rate
        --output-dir --dump-header -D --oauth2-bearer --proxy-user --connect-to --dns-servers --netrc-file --trace
        --trace-ascii --max-redirs --next --ciphers --proto --tlsv --url-query --create-file-mode --max-filesize
        --speed-limit --hostpubsha256 --pass --preproxy --socks5 --socks5-hostname --variable --doh-url
        --abstract-unix-socket
    + -> reads -T|--upload-file:(?!-\Z|\.\Z)(.*) ; reads -K|--config|--netrc-file ; reads
        -H|--header:@(.*)
    + -> reads --variable:[^@]*@(.*) ; reads -b|--cookie:([^=]+)
    + --unix-socket=.*(?:docker|containerd)\.sock.* -> privilege system {line}
    + -X|--request=(?i)delete -> delete unknown {}
        wide:1-~(?:[a-z]+://)?[^/?]+/(?:[^?]*/)?(?:_all|\*|_all_dbs)?/?(?:\?.*)?
    -> call curl
wget wget2 aria2c axel lwp-download : -O -o -a -i -P -U -e -t -T -w -Q -l -A -R -D -I -X -B --output-document
        --output-file --input-file --directory-prefix --user-agent --header --post-data --post-file --body-data
        --body-file --method --user --password --load-cookies --save-cookies --timeout --tries --wait --limit-rate
        --level --accept --reject --domains --use-askpass --execute --ca-certificate --cut-dirs --include-directories
        --exclude-directories --base --config --referer --default-page --http-user --http-password
    + -> reads --post-file|--body-file|-i|--input-file|--load-cookies ; execute @--use-askpass
    + -> call wget
    -> writes -o|-a|--output-file|--save-cookies
http https xh xhs : -a --auth -o --output --session -A --verify --cert --timeout
    + -> call httpie
    -> writes -o|--output
nc ncat netcat nc.traditional nc.openbsd : -e -c --exec --sh-exec --lua-exec -p -s -w -i -q -x -X -I -O -T -V -o -g -G
        -m --proxy -P
    + -l|--listen|-L -> network unknown listens ; send unknown 'whoever connects' account
    + !-l|--listen|-L !1~\d+ -z -> reach 1
    + !-l|--listen|-L !1~\d+ !-z -> reach 1 sends:stdin
    -e|-c|--exec|--sh-exec|--lua-exec='(?s)(?!<PRINTS>\Z).*' -> execute other {line}
socat
    + -> reach words:<PEER> sends ; reads words:(?i)(?:file|open|gopen|create):([^,]+).*
    + words~<LISTENS> -> network unknown listens ; send unknown 'whoever connects' account
    words~<RUNS> words~<LISTENS> -> execute other {line}
    words~<RUNS> words~<PEER> !words~(?i)[\w-]+:(?:localhost|127\.[\d.]+|\[?::1\]?)[:,].* -> execute
        other {line}
ssh autossh : -p -i -l -o -F -J -L -R -D -W -w -b -c -e -m -S -E -O -Q -B -I -P
    + -> reach 1 sends account
    + -o='(?is)(?:proxycommand|localcommand|knownhostscommand|pkcs11provider)[ =]\s*+(?!<TUNNEL>).*'
        -> execute unknown {line}
    + -o='(?i)permitlocalcommand[ =]yes.*' -> execute unknown {line}
    -R -> defence unknown {line}
scp pscp : -P -i -o -F -l -c -J -S -b -X -B -R -s -D
    + -> call transfer
    -S|-D=(?s).* -> execute unknown {line}
rsync : -e --rsh -f --filter --exclude --include --exclude-from --files-from -T --port --bwlimit -B --log-file
    + -> call transfer ; writes --log-file
    + <DELETES> -> delete
        @last:[^:/]+:([/\x7e].*)=project|temp|home|system|startup|credentials|device|root wide
    + <DELETES> -> delete @last:[^:/]+:([/\x7e].*)=unknown wide:1-~.*empty.*
    <DELETES> last~[^:/]+:[^/\x7e].* -> delete unknown {line} wide:1-~.*empty.*
    !<DELETES> -> nothing
    last~<THERE> -> nothing
    + -> delete @last=project|temp|system|startup|credentials|device|root wide
    -> delete @last=home|unknown wide:1~.*empty.* wide:@1=temp|unknown wide:@last=home|unknown!!
sftp ftp lftp ncftp ncftpput ftpput tftp smbclient telnet : -u -p -e -c -P -m -U -f -l -d -o
    + name=ftpput|ncftpput|tftp|smbclient -> reads -l ; reads 2-
    -> call ftp
dig drill nslookup host ping ping6 fping traceroute whois kdig delv dog doggo resolvectl getent mtr tracepath ntpdate
        finger arping nping hping3 dnsx : -c -i -W -w -s -p -t -I -q -x -b -k -f -m -n -M -Q -R -l -S -T -e
    + name=dig|fping -f=(?s).* -> reads -f ; send unknown names account
    + -> host operands:@?([^@]*[.:].*)
    -> call lookup
mail mailx mutt sendmail swaks sendemail msmtp : -s -a -A -c -b -r -S -t -u -f -m -o -xu -xp --attach --to --from
        --server --body
    + -> reads -a|-A|--attach ; reach operands:(.*@.*) sends ; reach --to|-t:(.*@.*) sends ; reach
        unknown sends
    name=sendmail|msmtp !1-~.*@.* !--to|-t=.*@.* -> send unknown {name}
logger : -n --server -P --port -f --file -p -t -i! --priority --tag
    -> reads -f|--file ; reach -n|--server sends
cloudflared
    line~'--url\b|tunnel .*\brun\b|--hello-world|--unix-socket' -> defence other {line}
    -> network other {line}
tailscale
    -> network other {line}
ngrok lt localtunnel bore frpc chisel
    1=verify|version|help|update|config|authtoken|diagnose|completion|service -> network other
        {line}
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
    transfer=transfer,
    ftp=_ftp,
    lookup=_lookup,
)
"""`logger -n` tells another host; through a tunnel the world reaches a port of this machine."""
