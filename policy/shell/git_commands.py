"""What git does besides versioning: it throws work away, rewrites what others have, sends code to
hosts and runs programs from its settings."""

import re

from policy.network import host_of
from policy.shell.args import Args, args_of
from policy.shell.commands import Command, Word
from policy.shell.file_commands import is_remote
from policy.shell.findings import Findings, Handler

_GLOBAL = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
    "--super-prefix",
)
_VALUED = (
    "-m",
    "-C",
    "-c",
    "-b",
    "-B",
    "-o",
    "-u",
    "-s",
    "-X",
    "-n",
    "-S",
    "-e",
    "-j",
    "--message",
    "--depth",
    "--branch",
    "--origin",
    "--upload-pack",
    "--format",
    "--output",
    "--output-directory",
    "--export-marks",
    "--author",
    "--date",
    "--since",
    "--until",
    "--grep",
    "--push-option",
    "--receive-pack",
    "--exec",
    "--config",
    "--template",
    "--reference",
    "--repo",
    "--file",
    "--onto",
    "--strategy",
    "--max-count",
    "--index-filter",
    "--tree-filter",
    "--msg-filter",
    "--env-filter",
    "--commit-filter",
)
_RUNS = re.compile(
    r"(?i)(?:core\.(?:pager|editor|sshcommand|fsmonitor|hookspath|gitproxy|askpass)|alias\..*"
    r"|credential\..*helper|credential\.helper|"
    r"sequence\.editor|pager\..*|"
    r"diff\.(?:external|.*\.(?:textconv|command))|merge\..*\.driver|filter\..*\.(?:clean|smudge"
    r"|process)|gpg\.program|gpg\..*\.program|"
    r"ssh\.variant|"
    r"uploadpack\.packobjectshook|remote\..*\.(?:uploadpack|receivepack|proxy)"
    r"|protocol\.ext\.allow|init\.templatedir|"
    r"url\..*\.(?:insteadof|pushinsteadof)|"
    r"(?:difftool|mergetool|browser|man|web)\..*\.(?:cmd|path)|receive\..*|submodule\..*\.update"
    r"|include(?:if\..*)?\.path|"
    r"trailer\..*\.(?:cmd|command))"
)
"""Settings whose value git runs, or that lead elsewhere what goes to a remote."""
_HARMLESS_ALIAS = re.compile(
    r"(?i)(?:alias\.[\w-]+|pager\.\w+|core\.(?:pager|editor|sshcommand)|credential\.helper"
    r"|sequence\.editor|"
    r"(?:difftool|mergetool)\..*)"
)
_HARMLESS_VALUE = re.compile(
    r"(?:ssh(?: -[io46Fp] ?\S+| -o"
    r" \S+)*|[a-z][\w-]*(?:\s+[^!;|&`$()]*)?|less.*|cat|delta|vim?|nvim|nano|emacs|code("
    r" --wait)?|true|false|"
    r"osxkeychain|store|cache.*|manager(?:-core)?|libsecret|wincred|)"
)
_NO_TLS = re.compile(r"(?i)http(?:\..*)?\.sslverify")


def _git(command: Command, args: Args, findings: Findings) -> None:
    words = list(command.words[1:])
    while words and words[0].known.startswith("-"):
        option = words.pop(0)
        name, equals, path = option.known.partition("=")
        if name in _GLOBAL and not equals and words:
            config = words.pop(0)
            setting, _, chosen = config.known.partition("=")
            # for this run alone; what it runs stands in the list by itself
            if name in ("-c", "--config-env") and _NO_TLS.fullmatch(setting):
                _setting(setting, chosen, findings)
            elif name == "-c":
                _leads(setting, chosen, findings)
        elif name == "--exec-path" and path:
            findings.add("execute", findings.place(Word(path)).scope, path)
    if not words:
        return
    verb = words[0].known
    sub_args = args_of(
        Command("git", tuple(words), cwd=command.cwd),
        [name for name in _VALUED if name != "-u" or verb != "push"],
    )
    handler = _VERBS.get(verb)
    if handler is not None:
        handler(sub_args, [word.known for word in words[1:]], findings)
    findings.write(
        *sub_args.all(
            "--output",
            "--output-directory",
            "--export-marks",
            *(("-o",) if verb == "format-patch" else ()),
        )
    )
    for name, value in sub_args.values:
        # of `rebase` it is a command for this machine, which stands in the list by itself
        if (
            verb != "rebase"
            and name in ("--upload-pack", "--receive-pack", "--exec")
            and value.known not in ("git-upload-pack", "git-receive-pack")
        ):
            findings.add("execute", "unknown", value.known)


def _leads(name: str, value: str, findings: Findings) -> None:
    """A setting that says where a remote lies, what stands for the beginning of its address, or
    where more settings and hooks lie."""
    if (
        remote := re.fullmatch(r"(?i)remote\.([^\s]{1,200})\.(?:push)?url", name)
    ) is not None and is_remote(Word(value)):
        findings.downloads.append((f"remote:{remote[1]}", findings.reach(Word(value))))
    elif (
        base := re.fullmatch(r"(?i)url\.(\S{1,500})\.(?:push)?insteadof", name)
    ) is not None and is_remote(Word(base[1])):
        findings.downloads.append(("remote:*", findings.reach(Word(base[1]))))
    elif (
        re.fullmatch(r"(?i)include(?:if\..*)?\.path|core\.hookspath", name)
        and value != "/dev/null"
        and findings.place(Word(value)).scope in ("temp", "unknown")
    ):
        findings.unsure.append("name: settings of git that may hold commands")


def _setting(name: str, value: str, findings: Findings) -> None:
    if (
        name.lower() == "core.hookspath"
        and findings.place(Word(value)).scope == "project"
        and not value.startswith(("/", ".git/"))
    ):
        # the project's own, as its makefile is
        findings.add("execute", "project", value)
        return
    if _NO_TLS.fullmatch(name):
        if value.lower() in ("false", "0", "no", "off"):
            findings.add("defence", "unknown", f"{name}={value}")
    elif _RUNS.fullmatch(name) and not (
        _HARMLESS_ALIAS.fullmatch(name) and _HARMLESS_VALUE.fullmatch(value)
    ):
        findings.add("persistence", "startup", f"{name}={value}")


def _config(args: Args, texts: list[str], findings: Findings) -> None:
    operands = [t for t in args.texts if t not in ("set", "get", "list", "unset")]
    if (
        any(
            flag.startswith(("--get", "--list", "--unset", "--edit", "-l", "-e", "--remove"))
            for flag in args.flags
        )
        or len(operands) < 2
    ):
        if (
            operands
            and re.match(r"(?i)credential|http\..*extraheader", operands[0])
            and "--unset" not in args.flags
        ):
            findings.is_secret = True
        return
    _setting(operands[0], operands[1], findings)
    _leads(operands[0], operands[1], findings)


def _clean(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("-n", "--dry-run") or not args.has("-f", "--force"):
        return
    everything = args.has("-x") and not args.all("-e", "--exclude")
    # `-x` throws away what is ignored: settings and data, too
    findings.add(
        "delete",
        "home" if everything and args.has("-d") and not args.operands else "project",
        ".",
        wide=True,
    )


def _reset(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("--hard", "--merge"):
        findings.add("delete", "project", "uncommitted work", wide=True)


def _checkout(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("-b", "-B", "--orphan", "-c") or args.all("-b", "-B", "-c"):
        return
    if args.has("-f", "--force", "--discard-changes") or any(t in (".", "*", ":/") for t in texts):
        findings.add("delete", "project", "uncommitted work", wide=True)
    elif "--" in texts:
        findings.add("delete", "project", " ".join(texts[texts.index("--") + 1 :]))


def _restore(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("-S", "--staged") and not args.has("-W", "--worktree"):
        return
    findings.add(
        "delete", "project", "uncommitted work", wide=any(t in (".", "*", ":/") for t in texts)
    )


def _branch(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("-D") or (args.has("-d", "--delete") and args.has("-f", "--force")):
        findings.add("delete", "project", " ".join(args.texts), wide=len(args.operands) > 1)


def _stash(args: Args, texts: list[str], findings: Findings) -> None:
    if args.starts("clear") or args.starts("drop"):
        findings.add("delete", "project", "stash", wide=args.starts("clear"))


def _rewrite(args: Args, texts: list[str], findings: Findings) -> None:
    findings.add("delete", "project", "history", wide=True)


def _reflog(args: Args, texts: list[str], findings: Findings) -> None:
    if (
        args.starts("expire")
        and any(t in ("--expire=now", "--expire-unreachable=now", "--expire=all") for t in texts)
    ) or args.starts("delete"):
        findings.add("delete", "home", "reflog", wide=True)


def _gc(args: Args, texts: list[str], findings: Findings) -> None:
    if any(t in ("--prune=now", "--prune=all") for t in texts):
        findings.add("delete", "project", "unreachable objects", wide=True)


def _update_ref(args: Args, texts: list[str], findings: Findings) -> None:
    if args.has("-d"):
        findings.add("delete", "project", " ".join(args.texts))


_SHARED = re.compile(
    r"(?:refs/heads/)?(?:main|master|develop|dev|staging|production|prod|release.*|trunk|stable|\*"
    r"|refs/heads/\*)"
)
"""Branches that others build on."""


def _push(args: Args, texts: list[str], findings: Findings) -> None:
    remote = args.operands[0] if args.operands else Word("origin")
    # the name of a remote says nothing of its host; it was chosen by whoever set it up
    is_url = is_remote(remote) or "/" in remote.known
    if is_url and not remote.known.startswith(("/", ".", "~", "file:")):
        scope = findings.reach(remote, sends=True)
        if scope == "other":
            findings.add("secret", "other", f"the project to {host_of(remote.known)}", wide=True)
    else:
        named = (f"remote:{remote.known}", "remote:*")
        added = findings.downloaded(named[0]) or next(
            (scope for path, scope in findings.downloads if path in named), None
        )
        findings.add(
            "network", "unknown" if remote.text is None else added or "listed", remote.known
        )
        if added == "other":
            findings.add("secret", "other", f"the project to {remote.known}", wide=True)
    refs = args.texts[1:]
    forced = args.has("-f", "--force") or any(ref.startswith("+") for ref in refs)
    gentle = any(t.startswith("--force-with-lease") or t == "--force-if-includes" for t in texts)
    if args.has("--mirror", "--prune"):
        findings.add("delete", "unknown", remote.known, wide=True)
    elif forced:
        # a branch of one's own is rewritten every day
        shared = not refs or any(
            _SHARED.fullmatch(ref.lstrip("+").rpartition(":")[2]) for ref in refs
        )
        findings.add("delete", "unknown", " ".join(refs), wide=shared)
    elif gentle:
        findings.add("delete", "listed", " ".join(refs))
    elif args.has("-d", "--delete") or any(ref.startswith(":") for ref in refs):
        protected = any(_SHARED.fullmatch(ref.lstrip(":")) for ref in refs)
        findings.add("delete", "unknown" if protected else "listed", " ".join(refs), wide=protected)


def _remote(args: Args, texts: list[str], findings: Findings) -> None:
    if args.starts("add") or args.starts("set-url"):
        for word in args.operands[2:3]:
            if is_remote(word):
                findings.downloads.append((f"remote:{args.texts[1]}", findings.reach(word)))


def _clone(args: Args, texts: list[str], findings: Findings) -> None:
    for word in args.operands[:1]:
        if word.known.startswith("ext::"):
            findings.add("execute", "unknown", word.known)
        elif is_remote(word) or word.text is None:
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
    for value in args.all("-c", "--config"):
        _setting(value.known.partition("=")[0], value.known.partition("=")[2], findings)
    for template in args.all("--template"):
        findings.add("persistence", "startup", template.known)


def _fetch(args: Args, texts: list[str], findings: Findings) -> None:
    for word in args.operands[:1]:
        if word.known.startswith("ext::"):
            findings.add("execute", "unknown", word.known)
        else:
            scope = (
                findings.reach(word)
                if is_remote(word)
                else findings.downloaded(f"remote:{word.known}")
            )
            findings.downloads += (
                [(findings.place(Word(".")).path, scope)] if scope is not None else []
            )


def _submodule(args: Args, texts: list[str], findings: Findings) -> None:
    if args.starts("add"):
        _clone(Args(args.flags, args.values, args.operands[1:]), texts, findings)
    elif args.starts("deinit") and args.has("-f", "--force"):
        findings.add("delete", "project", "submodules", wide=args.has("--all"))


def _rm(args: Args, texts: list[str], findings: Findings) -> None:
    if not args.has("--cached", "-n", "--dry-run"):
        # what is committed is still in the history
        for word in args.operands:
            findings.add("delete", "project", findings.place(word).path, wide=args.has("-r"))


def _worktree(args: Args, texts: list[str], findings: Findings) -> None:
    if args.starts("remove"):
        for word in args.operands[1:]:
            findings.add("delete", "project", word.known, wide=args.has("-f", "--force"))


def _archive(args: Args, texts: list[str], findings: Findings) -> None:
    findings.read(Word("."), wide=True)
    findings.write(*args.all("-o", "--output"))


def _apply(args: Args, texts: list[str], findings: Findings) -> None:
    findings.write(*args.all("--directory"), wide=True)


def _mailed(args: Args, texts: list[str], findings: Findings) -> None:
    findings.sends.append(("unknown", "whom it is mailed to", True))


def _credential(args: Args, texts: list[str], findings: Findings) -> None:
    if args.starts("fill") or args.starts("get"):
        findings.is_secret = True
        findings.add("read", "credentials", "git credential fill")


_VERBS = {
    "config": _config,
    "clean": _clean,
    "reset": _reset,
    "checkout": _checkout,
    "switch": _checkout,
    "restore": _restore,
    "branch": _branch,
    "stash": _stash,
    "filter-branch": _rewrite,
    "filter-repo": _rewrite,
    "reflog": _reflog,
    "gc": _gc,
    "prune": _gc,
    "update-ref": _update_ref,
    "push": _push,
    "remote": _remote,
    "clone": _clone,
    "fetch": _fetch,
    "pull": _fetch,
    "ls-remote": _fetch,
    "submodule": _submodule,
    "rm": _rm,
    "worktree": _worktree,
    "apply": _apply,
    "am": _apply,
    "archive": _archive,
    "bundle": _archive,
    "credential": _credential,
    "send-email": _mailed,
}


_PUBLISHED = tuple(
    [noun]
    for noun in (
        "issue pr mr gist snippet release repo api discussion project label milestone".split()
    )
)
_PUBLISHING = tuple(
    [verb]
    for verb in "create new comment note edit update review upload close reopen merge".split()
)
_HUB = tuple(
    "-R --repo -t --title -b --body -F --body-file -f -H -X --method -d --desc -e --env --input -q"
    " --jq -L -n --notes --notes-file".split()
)


def _hub(command: Command, args: Args, findings: Findings) -> None:
    """`gh`, `glab`, `hub`: what they publish can be read by others, what they delete is gone for
    all."""
    args = args_of(command, _HUB)
    findings.add("network", "listed", "github.com" if command.name != "glab" else "gitlab.com")
    if args.texts[:1] in _PUBLISHED and (args.texts[1:2] in _PUBLISHING or args.starts("api")):
        findings.sends.append(("listed", "a page that others read", True))
    if (
        args.starts("gist", "create")
        or args.starts("snippet", "create")
        or args.starts("gist", "edit")
        or args.starts("release", "upload")
    ):
        findings.read(*args.operands[2:])
        findings.sends.append(("other", "a public page", False))
    elif args.starts("auth", "token") or (
        args.starts("auth", "status") and args.has("-t", "--show-token")
    ):
        findings.is_secret = True
        findings.add("read", "credentials", "token")
    elif args.starts("repo", "delete") or args.starts("project", "delete"):
        findings.add("delete", "unknown", " ".join(args.texts[2:]), wide=True)
    elif (
        args.starts("release", "delete")
        or args.starts("secret", "delete")
        or args.starts("secret", "remove")
        or args.starts("repo", "archive")
    ):
        findings.add("delete", "unknown", " ".join(args.texts), wide=args.starts("repo", "archive"))
    elif args.starts("repo", "edit") and any(
        word.known == "public" for word in args.all("--visibility")
    ):
        findings.add("secret", "other", "a repository made public", wide=True)
    elif args.starts("api"):
        method = args.first("-X", "--method")
        if method is not None and method.known.upper() == "DELETE":
            target = args.texts[1] if len(args.texts) > 1 else ""
            findings.add(
                "delete", "unknown", target, wide=bool(re.fullmatch(r"/?repos/[^/]+/[^/]+", target))
            )
    elif (
        args.starts("ssh-key", "add")
        or args.starts("gpg-key", "add")
        or args.starts("deploy-key", "add")
    ):
        findings.add("persistence", "listed", " ".join(args.texts))
    elif args.starts("alias", "set") and "!" in " ".join(args.texts[3:]):
        findings.add("persistence", "startup", " ".join(args.texts))
    elif args.starts("extension", "install"):
        findings.add("execute", "listed", " ".join(args.texts[2:]))


def _copy(command: Command, args: Args, findings: Findings) -> None:
    """`hg clone URL`, `svn checkout URL FOLDER`."""
    if args.operands and args.texts[0] in ("clone", "checkout", "co", "export", "branch"):
        _clone(Args(args.flags, args.values, args.operands[1:]), args.texts[1:], findings)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys("hg svn bzr jj fossil".split(), _copy),
    "git": _git,
    "gh": _hub,
    "glab": _hub,
    "hub": _git,
}
