"""What git does besides versioning: it throws work away, rewrites what others have, sends code to
hosts and runs programs from its settings."""

import re

import msgspec

from policy.effects.network import host_of
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.file_commands import is_remote
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows

_GLOBAL = tuple(
    "-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix".split()
)
_VALUED = tuple(
    """
    -m -C -c -b -B -o -u -s -X -n -S -e -j --message --depth --branch --origin --upload-pack
    --format --output --output-directory --export-marks --author --date --since --until --grep
    --push-option --receive-pack --exec --config --template --reference --repo --file --onto
    --strategy --max-count --index-filter --tree-filter --msg-filter --env-filter --commit-filter
""".split()
)


def _git(command: Command, args: Args, findings: Findings) -> None:
    words = list(command.words[1:])
    while words and words[0].known.startswith("-"):
        option = words.pop(0)
        name, equals, path = option.known.partition("=")
        if name in _GLOBAL and not equals and words:
            config = words.pop(0)
            if name == "-c":
                # for this run alone; what it runs stands in the list by itself
                _set("leads", config, findings)
        elif name == "--exec-path" and path:
            findings.add("execute", findings.place(Word(path)).scope, path)
    if not words:
        return
    verb = words[0].known
    sub = Command("git", tuple(words), cwd=command.cwd)
    sub_args = args_of(sub, [name for name in _VALUED if name != "-u" or verb != "push"])
    if verb in _VERBS:
        _VERBS[verb](sub, sub_args, findings)
    outputs = "--output|--output-directory|--export-marks"
    findings.write(*sub_args.all(f"{outputs}|-o" if verb == "format-patch" else outputs))
    for name, value in sub_args.values:
        # of `rebase` it is a command for this machine, which stands in the list by itself
        if (
            verb != "rebase"
            and name in ("--upload-pack", "--receive-pack", "--exec")
            and value.known not in ("git-upload-pack", "git-receive-pack")
        ):
            findings.add("execute", "unknown", value.known)


def _set(row: str, setting: Word, findings: Findings) -> None:
    """A setting as `NAME=VALUE`."""
    words = tuple(map(Word, setting.known.partition("=")[::2]))
    _SETTINGS[row](findings.command, Args((), (), words), findings)


def _config(command: Command, args: Args, findings: Findings) -> None:
    verbs = ("set", "get", "list", "unset")
    operands = tuple(word for word in args.operands if word.known not in verbs)
    _SETTINGS["config"](command, msgspec.structs.replace(args, operands=operands), findings)


_SETTINGS: dict[str, Handler] = rows(
    r"""
ASKS := (?:--get|--list|--unset|--edit|--remove|-l|-e).*
KEYS := (?i)(?:credential|http\..*extraheader).*
NO_TLS := (?i)http(?:\..*)?\.sslverify
THERE := (?!/|\./|\x7e)(?:(?:[\w.-]+@)?[\w.\[\]-]{2,}::?(?!//?\Z).*|[a-z]+://.*|[^@]*+@[^:]*+:.*)
RUNS := (?i)(?:core\.(?:pager|editor|sshcommand|fsmonitor|hookspath|gitproxy|askpass)|alias\..*
        |credential\..*helper|credential\.helper|sequence\.editor|pager\..*|diff\.(?:external
        |.*\.(?:textconv|command))|merge\..*\.driver|filter\..*\.(?:clean|smudge|process)
        |gpg\.program|gpg\..*\.program|ssh\.variant|uploadpack\.packobjectshook
        |remote\..*\.(?:uploadpack|receivepack|proxy)|protocol\.ext\.allow|init\.templatedir
        |url\..*\.(?:insteadof|pushinsteadof)|(?:difftool|mergetool|browser|man|web)\..*\.(?:cmd
        |path)|receive\..*|submodule\..*\.update|include(?:if\..*)?\.path|trailer\..*\.(?:cmd
        |command))
OWN_NAME := (?i)(?:alias\.[\w-]+|pager\.\w+|core\.(?:pager|editor|sshcommand)|credential\.helper
        |sequence\.editor|(?:difftool|mergetool)\..*)
PROGRAM := '(?:ssh(?: -[io46Fp] ?\S+| -o \S+)*|[a-z][\w-]*(?:\s+[^!;|&`$()]*)?|less.*|cat|delta|vim?
        |nvim|nano|emacs|code( --wait)?|true|false|osxkeychain|store|cache.*|manager(?:-core)?
        |libsecret|wincred|)'

config
    + 1~<KEYS> words~<ASKS> !words=--unset -> prints-secret
    + 1~<KEYS> !2 !words=--unset -> prints-secret
    words~<ASKS> -> nothing
    2 -> call setting
leads
    + 1~<NO_TLS> 2~(?i)false|0|no|off -> defence unknown {1}={2}
    + 1~(?i)remote\.\S{1,200}\.(?:push)?url 2~<THERE> -> fetches remote:* 2
    + 1~(?i)url\.<THERE>\.(?:push)?insteadof -> fetches remote:* 1:(?i)url\.(.*)\.(?:push)?insteadof
    1~(?i)include(?:if\..*)?\.path|core\.hookspath !2=/dev/null @2=temp|unknown
        -> unsure 'name: settings of git that may hold commands'
setting
    + -> call leads
    1~(?i)core\.hookspath 2~(?!/|\.git/).* @2=project -> execute project {2}
    1~<OWN_NAME> 2~<PROGRAM> -> nothing
    1~<RUNS> -> persistence startup {1}={2}
""",
    leads=lambda command, args, findings: _SETTINGS["leads"](command, args, findings),
    setting=lambda command, args, findings: _SETTINGS["setting"](command, args, findings),
)
"""What settings of git do, as `NAME VALUE`."""


_INDEX, _HISTORY = (PathTarget(f"git:{name}", "project") for name in ("index", "history"))
"""Where git keeps what is added and what is committed, for who follows what is in it."""
_ALL = PathTarget("./*", "project", wide=True)
_COMMITTED_KEYS = re.compile(
    r"(?:^|/)\.env(?:\.(?:local|live|staging|prod(?:uction)?))?(?:\.local)?$|(?:^|/)id_(?:rsa"
    r"|dsa|ecdsa|ed25519)$"
    r"|(?:^|/)\.(?:netrc|pgpass|pypirc|git-credentials|aws/credentials|ssh/.*)$|\.(?:p12|pfx|jks"
    r"|kdbx)$"
    r"|(?:^|/)(?:credentials|service[-_]account(?:[-_]key)?)\.(?:json|csv)$|(?:^"
    r"|/)[\w.-]*private[\w.-]*\.(?:pem|key)$",
    re.IGNORECASE,
)
"""Files that hold keys wherever they lie; others among a project's settings are meant to be
committed."""
_OF_TESTS = re.compile(
    r"(?:^|/)(?:tests?|spec|fixtures?|examples?|testdata|mocks?)/", re.IGNORECASE
)


def _add(command: Command, args: Args, findings: Findings) -> None:
    """What is added is in the index: whoever commits and pushes sends it."""
    for word in args.operands:
        if word.known.rstrip("/*") in ("", ".", ":"):
            findings.reads.append(_ALL)
            continue
        for place in findings.places(word):
            is_key = _COMMITTED_KEYS.search(place.path[-160:]) is not None and not _OF_TESTS.search(
                place.path
            )
            findings.reads.append(PathTarget(place.path, place.scope, place.wide, is_key))
    if args.has("-A|--all|-u|--update"):
        findings.reads.append(_ALL)
    findings.writes.append(_INDEX.path)


def _commit(command: Command, args: Args, findings: Findings) -> None:
    """What is committed is there for good, and goes with the next push."""
    findings.reads.append(_INDEX)
    if args.has("-a|--all"):
        findings.reads.append(_ALL)
    findings.sent += args.all("-m|--message")
    _name(command, args, findings)
    findings.writes.append(_HISTORY.path)
    findings.sends.append(("listed", "a commit", True))


def _name(command: Command, args: Args, findings: Findings) -> None:
    """What a branch or an author is called goes with the next push, too."""
    findings.sent += [word for word in command.words if word.text is None]
    findings.sends.append(("listed", "a commit", True))


def _push(command: Command, args: Args, findings: Findings) -> None:
    """Where it pushes to; the table says what it does to branches there."""
    findings.reads.append(_HISTORY)
    is_whole = args.has("--all|--mirror")
    remote = args.operands[0] if args.operands else Word("origin")
    # the name of a remote says nothing of its host; it was chosen by whoever set it up
    is_url = is_remote(remote) or "/" in remote.known
    if is_url and not remote.known.startswith(("/", ".", "~", "file:")):
        scope = findings.reach(remote, sends=True)
        if scope == "other" or (is_whole and scope == "listed"):
            findings.add("secret", "other", f"the project to {host_of(remote.known)}", wide=True)
    else:
        anew = dict(findings.downloads).get("remote:*") or findings.downloaded("remote:*")
        added = findings.downloaded(f"remote:{remote.known}") or anew
        findings.add(
            "network", "unknown" if remote.text is None else added or "listed", remote.known
        )
        findings.sends.append(("listed", remote.known, True))
        is_another = is_whole and added == "listed" and remote.known not in _OWN_REMOTES
        if added == "other" or is_another:
            findings.add("secret", "other", f"the project to {remote.known}", wide=True)


_OWN_REMOTES = ("origin", "upstream", "fork")
"""Names of remotes that a clone of one's own has: all of it goes there when it is set up."""


def _clone(command: Command, args: Args, findings: Findings) -> None:
    for word in args.operands[:1]:
        if (is_remote(word) or word.text is None) and not word.known.startswith("ext::"):
            findings.reach(word)
    target = (
        args.operands[1]
        if len(args.operands) > 1
        else (
            Word(re.sub(r"(?:\.git)?/*$", "", args.texts[0]).rpartition("/")[2])
            if args.operands
            else None
        )
    )
    if target is not None and args.operands:
        findings.write(target)
        # a folder whose name nobody knows is `?`
        findings.downloads.append(
            (
                findings.place(target).path if target.text is not None else "?",
                findings.scope_of_host(args.operands[0]),
            )
        )
    for value in args.all("-c|--config"):
        _set("setting", value, findings)


def _fetch(command: Command, args: Args, findings: Findings) -> None:
    for word in args.operands[:1]:
        named = f"remote:{word.known}"
        scope = findings.reach(word) if is_remote(word) else findings.downloaded(named)
        if scope is not None:
            findings.downloads.append((findings.place(Word(".")).path, scope))


def _clone_behind(command: Command, args: Args, findings: Findings) -> None:
    """`git submodule add URL`, `hg clone URL`, `svn checkout URL FOLDER`."""
    _clone(command, Args(args.flags, args.values, args.operands[1:]), findings)


_VERBS = rows(
    r"""
THERE := (?!/|\./|\x7e)(?:(?:[\w.-]+@)?[\w.\[\]-]{2,}::?(?!//?\Z).*|[a-z]+://.*|[^@]*+@[^:]*+:.*)
SHARED := (?:refs/heads/)?(?:main|master|develop|dev|staging|production|prod|release.*|trunk|stable
        |\*|refs/heads/\*)
FORCED := (?s)\+*(?:.*:)?(?:refs/heads/)?(?:main|master|develop|dev|staging|production|prod
        |release[^:]*|trunk|stable|\*|refs/heads/\*)

config
    -> call config
add stage
    -> call add
commit
    -> call commit
tag notes
    -> call commit
clean
    -n|--dry-run -> nothing
    !-f|--force -> nothing
    -x -d !-e|--exclude=(?s).* !1 -> delete home . wide
    -> delete project . wide
reset
    --hard|--merge -> delete project uncommitted work wide
checkout switch
    + -b|-B|--orphan|-c -> call name
    -b|-B|--orphan|-c -> nothing
    -f|--force|--discard-changes -> delete project uncommitted work wide
    words=.|*|:/ -> delete project uncommitted work wide
    words=-- -> delete project {--}
restore
    -S|--staged !-W|--worktree -> nothing
    -> delete project uncommitted work wide:words=.|*|:/
branch
    + -> call name
    -D -> delete project {} wide:2
    -d|--delete -f|--force -> delete project {} wide:2
stash
    1~(?i)clear -> delete project stash wide
    1~(?i)drop -> delete project stash
filter-branch filter-repo
    -> delete project history wide
reflog
    1~(?i)expire words=--expire=now|--expire-unreachable=now|--expire=all -> delete home reflog wide
    1~(?i)delete -> delete home reflog wide
gc prune
    words=--prune=now|--prune=all -> delete project unreachable objects wide
update-ref
    -d -> delete project {}
push
    + -> call push
    --mirror|--prune 1 -> delete unknown {1} wide
    --mirror|--prune -> delete unknown origin wide
    -f|--force !2 -> delete unknown {2-} wide
    -f|--force -> delete unknown {2-} wide:2-~<FORCED>
    2-~(?s)\+.* -> delete unknown {2-} wide:2-~<FORCED>
    words~(?s)--force-with-lease.*|--force-if-includes -> delete listed {2-}
    -d|--delete 2-~:*<SHARED> -> delete unknown {2-} wide
    2-~(?s):.* 2-~:*<SHARED> -> delete unknown {2-} wide
    -d|--delete -> delete listed {2-}
    2-~(?s):.* -> delete listed {2-}
remote
    1=add|set-url 3~<THERE> -> fetches remote:{2} 3
clone
    + 1~ext::.* -> execute unknown {1}
    + --template=(?s).* -> persistence startup {line}
    -> call clone
fetch pull ls-remote
    1~ext::.* -> execute unknown {1}
    1 -> call fetch
submodule
    1~(?i)add -> call submodule
    1~(?i)deinit -f|--force -> delete project submodules wide:--all
rm
    !--cached|-n|--dry-run -> delete project@operands wide:-r
worktree
    1~(?i)remove 2 -> delete project {2-} wide:-f|--force
apply am
    -> writes --directory wide
archive bundle
    + 1=create -> prints-much
    -> reads . wide ; writes -o|--output
credential
    1~(?i)fill|get -> prints-secret ; read credentials git credential fill
send-email
    -> send unknown 'whom it is mailed to' account
""",
    config=_config,
    add=_add,
    commit=_commit,
    name=_name,
    push=_push,
    clone=_clone,
    fetch=_fetch,
    submodule=_clone_behind,
)
"""`SHARED` are branches that others build on: one of one's own is rewritten every day. `clean -x`
throws away what is ignored: settings and data, too. What `rm` takes away and is committed is still
in the history."""


HANDLERS: dict[str, Handler] = rows(
    r"""
CHANGES := '(?i)(?:-X|--method)[ =]?(?:put|post|patch|delete)\b|(?:^| )(?:-[fF]|--field|--raw-field
        |--input)\b'
GUARDS := (?i)/?.*(?:/protection|/rulesets?|/vulnerability-alerts|/automated-security-fixes
        |/code-scanning|/secret-scanning|/actions/permissions|/push_rule|/protected_branches)\b.*
PEOPLE := (?i)/?.*(?:/collaborators|/memberships?|/members|/teams|/keys|/hooks|/transfer
        |/invitations|/outside_collaborators|/deploy_keys|/installations)\b.*

hg svn bzr jj fossil
    1=clone|checkout|co|export|branch -> call copy
git hub
    -> call git
gh glab : -R --repo -t --title -b --body -F --body-file -f -H -X --method -d --desc -e --env --input -q --jq -L -n --notes --notes-file --visibility
    + name=gh -> network listed github.com
    + name=glab -> network listed gitlab.com
    + 1=issue|pr|mr|gist|snippet|release|repo|discussion|project|label|milestone
        2=create|new|comment|note|edit|update|review|upload|close|reopen|merge -> send listed 'a page that others read' account
    + 1=api -> send listed 'a page that others read' account
    1~(?i)gist 2~(?i)create|edit -> reads 3- ; send other 'a public page'
    1~(?i)snippet 2~(?i)create -> reads 3- ; send other 'a public page'
    1~(?i)release 2~(?i)upload -> reads 3-
    1~(?i)auth 2~(?i)token -> prints-secret ; prints-token
    1~(?i)auth 2~(?i)status -t|--show-token -> prints-secret ; read credentials token
    1~(?i)repo|project 2~(?i)delete -> delete unknown {3-} wide
    1~(?i)release|secret 2~(?i)delete -> delete unknown {}
    1~(?i)secret 2~(?i)remove -> delete unknown {}
    1~(?i)repo 2~(?i)archive|transfer -> delete unknown {} wide
    1~(?i)repo 2~(?i)edit --visibility=(?i)public -> secret other a repository made public wide
    1~(?i)variable 2~(?i)set -> send listed 'a setting that others read' account
    1~(?i)ruleset 2~(?i)delete|edit -> defence unknown {}
    1~(?i)workflow 2~(?i)disable -> defence unknown {}
    + 1~(?i)api line~<CHANGES> 2~<GUARDS> -> defence unknown {2}
    + 1~(?i)api line~<CHANGES> 2~<PEOPLE> -> privilege unknown {2}
    + 1~(?i)api line~<CHANGES> line~'(?:private=false|visibility=public)'
        -> secret other a repository made public wide
    1~(?i)api -X|--method=(?i)delete -> delete unknown {2} wide:2~/?repos/[^/]+/[^/]+
    1~(?i)ssh-key|gpg-key|deploy-key 2~(?i)add -> persistence listed {}
    1~(?i)alias 2~(?i)set 4-~(?s).*!.* -> persistence startup {}
    1~(?i)extension 2~(?i)install -> execute listed {3-}
""",
    copy=_clone_behind,
    git=_git,
)
"""What `gh` publishes can be read by others, and what it deletes is gone for all."""
