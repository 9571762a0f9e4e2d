"""What git does besides versioning: it throws work away, rewrites what others have, sends code to
hosts and runs programs from its settings."""

import re

from policy.network import host_of
from policy.shell.args import Args, args_of
from policy.shell.commands import Command, Word
from policy.shell.file_commands import is_remote
from policy.shell.found import Found, Handler

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


def _git(command: Command, args: Args, found: Found) -> None:
    words = list(command.words[1:])
    while words and words[0].known.startswith("-"):
        option = words.pop(0)
        name, equals, path = option.known.partition("=")
        if name in _GLOBAL and not equals and words:
            given = words.pop(0)
            setting, _, chosen = given.known.partition("=")
            # for this run alone; what it runs stands in the list by itself
            if name in ("-c", "--config-env") and _NO_TLS.fullmatch(setting):
                _setting(setting, chosen, found)
            elif name == "-c":
                _leads(setting, chosen, found)
        elif name == "--exec-path" and path:
            found.add("execute", found.place(Word(path)).scope, path)
    if not words:
        return
    verb = words[0].known
    rest = args_of(
        Command("git", tuple(words), cwd=command.cwd),
        [name for name in _VALUED if name != "-u" or verb != "push"],
    )
    handler = _VERBS.get(verb)
    if handler is not None:
        handler(rest, [word.known for word in words[1:]], found)
    found.write(
        *rest.all(
            "--output",
            "--output-directory",
            "--export-marks",
            *(("-o",) if verb == "format-patch" else ()),
        )
    )
    for name, value in rest.values:
        # of `rebase` it is a command for this machine, which stands in the list by itself
        if (
            verb != "rebase"
            and name in ("--upload-pack", "--receive-pack", "--exec")
            and value.known not in ("git-upload-pack", "git-receive-pack")
        ):
            found.add("execute", "unknown", value.known)


def _leads(name: str, value: str, found: Found) -> None:
    """A setting that says where a remote lies, what stands for the beginning of its address, or
    where more settings and hooks lie."""
    if (
        remote := re.fullmatch(r"(?i)remote\.([^\s]{1,200})\.(?:push)?url", name)
    ) is not None and is_remote(Word(value)):
        found.downloads.append((f"remote:{remote[1]}", found.reach(Word(value))))
    elif (
        base := re.fullmatch(r"(?i)url\.(\S{1,500})\.(?:push)?insteadof", name)
    ) is not None and is_remote(Word(base[1])):
        found.downloads.append(("remote:*", found.reach(Word(base[1]))))
    elif (
        re.fullmatch(r"(?i)include(?:if\..*)?\.path|core\.hookspath", name)
        and value != "/dev/null"
        and found.place(Word(value)).scope in ("temp", "unknown")
    ):
        found.unsure.append("name: settings of git that may hold commands")


def _setting(name: str, value: str, found: Found) -> None:
    if (
        name.lower() == "core.hookspath"
        and found.place(Word(value)).scope == "project"
        and not value.startswith(("/", ".git/"))
    ):
        # the project's own, as its makefile is
        found.add("execute", "project", value)
        return
    if _NO_TLS.fullmatch(name):
        if value.lower() in ("false", "0", "no", "off"):
            found.add("defence", "unknown", f"{name}={value}")
    elif _RUNS.fullmatch(name) and not (
        _HARMLESS_ALIAS.fullmatch(name) and _HARMLESS_VALUE.fullmatch(value)
    ):
        found.add("persistence", "startup", f"{name}={value}")


def _config(args: Args, texts: list[str], found: Found) -> None:
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
            found.is_secret = True
        return
    _setting(operands[0], operands[1], found)
    _leads(operands[0], operands[1], found)


def _clean(args: Args, texts: list[str], found: Found) -> None:
    if args.has("-n", "--dry-run") or not args.has("-f", "--force"):
        return
    everything = args.has("-x") and not args.all("-e", "--exclude")
    # `-x` throws away what is ignored: settings and data, too
    found.add(
        "delete",
        "home" if everything and args.has("-d") and not args.operands else "project",
        ".",
        wide=True,
    )


def _reset(args: Args, texts: list[str], found: Found) -> None:
    if args.has("--hard", "--merge"):
        found.add("delete", "project", "uncommitted work", wide=True)


def _checkout(args: Args, texts: list[str], found: Found) -> None:
    if args.has("-b", "-B", "--orphan", "-c") or args.all("-b", "-B", "-c"):
        return
    if args.has("-f", "--force", "--discard-changes") or any(t in (".", "*", ":/") for t in texts):
        found.add("delete", "project", "uncommitted work", wide=True)
    elif "--" in texts:
        found.add("delete", "project", " ".join(texts[texts.index("--") + 1 :]))


def _restore(args: Args, texts: list[str], found: Found) -> None:
    if args.has("-S", "--staged") and not args.has("-W", "--worktree"):
        return
    found.add(
        "delete", "project", "uncommitted work", wide=any(t in (".", "*", ":/") for t in texts)
    )


def _branch(args: Args, texts: list[str], found: Found) -> None:
    if args.has("-D") or (args.has("-d", "--delete") and args.has("-f", "--force")):
        found.add("delete", "project", " ".join(args.texts), wide=len(args.operands) > 1)


def _stash(args: Args, texts: list[str], found: Found) -> None:
    if args.starts("clear") or args.starts("drop"):
        found.add("delete", "project", "stash", wide=args.starts("clear"))


def _rewrite(args: Args, texts: list[str], found: Found) -> None:
    found.add("delete", "project", "history", wide=True)


def _reflog(args: Args, texts: list[str], found: Found) -> None:
    if (
        args.starts("expire")
        and any(t in ("--expire=now", "--expire-unreachable=now", "--expire=all") for t in texts)
    ) or args.starts("delete"):
        found.add("delete", "home", "reflog", wide=True)


def _gc(args: Args, texts: list[str], found: Found) -> None:
    if any(t in ("--prune=now", "--prune=all") for t in texts):
        found.add("delete", "project", "unreachable objects", wide=True)


def _update_ref(args: Args, texts: list[str], found: Found) -> None:
    if args.has("-d"):
        found.add("delete", "project", " ".join(args.texts))


_SHARED = re.compile(
    r"(?:refs/heads/)?(?:main|master|develop|dev|staging|production|prod|release.*|trunk|stable|\*"
    r"|refs/heads/\*)"
)
"""Branches that others build on."""


def _push(args: Args, texts: list[str], found: Found) -> None:
    remote = args.operands[0] if args.operands else Word("origin")
    # the name of a remote says nothing of its host; it was chosen by whoever set it up
    is_url = is_remote(remote) or "/" in remote.known
    if is_url and not remote.known.startswith(("/", ".", "~", "file:")):
        scope = found.reach(remote, sends=True)
        if scope == "other":
            found.add("secret", "other", f"the project to {host_of(remote.known)}", wide=True)
    else:
        named = (f"remote:{remote.known}", "remote:*")
        added = found.downloaded(named[0]) or next(
            (scope for path, scope in found.downloads if path in named), None
        )
        found.add("network", "unknown" if remote.text is None else added or "listed", remote.known)
        if added == "other":
            found.add("secret", "other", f"the project to {remote.known}", wide=True)
    refs = args.texts[1:]
    forced = args.has("-f", "--force") or any(ref.startswith("+") for ref in refs)
    gentle = any(t.startswith("--force-with-lease") or t == "--force-if-includes" for t in texts)
    if args.has("--mirror", "--prune"):
        found.add("delete", "unknown", remote.known, wide=True)
    elif forced:
        # a branch of one's own is rewritten every day
        shared = not refs or any(
            _SHARED.fullmatch(ref.lstrip("+").rpartition(":")[2]) for ref in refs
        )
        found.add("delete", "unknown", " ".join(refs), wide=shared)
    elif gentle:
        found.add("delete", "listed", " ".join(refs))
    elif args.has("-d", "--delete") or any(ref.startswith(":") for ref in refs):
        protected = any(_SHARED.fullmatch(ref.lstrip(":")) for ref in refs)
        found.add("delete", "unknown" if protected else "listed", " ".join(refs), wide=protected)


def _remote(args: Args, texts: list[str], found: Found) -> None:
    if args.starts("add") or args.starts("set-url"):
        for word in args.operands[2:3]:
            if is_remote(word):
                found.downloads.append((f"remote:{args.texts[1]}", found.reach(word)))


def _clone(args: Args, texts: list[str], found: Found) -> None:
    for word in args.operands[:1]:
        if word.known.startswith("ext::"):
            found.add("execute", "unknown", word.known)
        elif is_remote(word) or word.text is None:
            found.reach(word)
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
        found.write(target)
        # a folder whose name nobody knows is `?`
        found.downloads.append(
            (
                found.place(target).path if target.text is not None else "?",
                found.scope_of_host(args.operands[0]),
            )
        )
    for value in args.all("-c", "--config"):
        _setting(value.known.partition("=")[0], value.known.partition("=")[2], found)
    for template in args.all("--template"):
        found.add("persistence", "startup", template.known)


def _fetch(args: Args, texts: list[str], found: Found) -> None:
    for word in args.operands[:1]:
        if word.known.startswith("ext::"):
            found.add("execute", "unknown", word.known)
        else:
            scope = (
                found.reach(word) if is_remote(word) else found.downloaded(f"remote:{word.known}")
            )
            found.downloads += [(found.place(Word(".")).path, scope)] if scope is not None else []


def _submodule(args: Args, texts: list[str], found: Found) -> None:
    if args.starts("add"):
        _clone(Args(args.flags, args.values, args.operands[1:]), texts, found)
    elif args.starts("deinit") and args.has("-f", "--force"):
        found.add("delete", "project", "submodules", wide=args.has("--all"))


def _rm(args: Args, texts: list[str], found: Found) -> None:
    if not args.has("--cached", "-n", "--dry-run"):
        # what is committed is still in the history
        for word in args.operands:
            found.add("delete", "project", found.place(word).path, wide=args.has("-r"))


def _worktree(args: Args, texts: list[str], found: Found) -> None:
    if args.starts("remove"):
        for word in args.operands[1:]:
            found.add("delete", "project", word.known, wide=args.has("-f", "--force"))


def _archive(args: Args, texts: list[str], found: Found) -> None:
    found.read(Word("."), wide=True)
    found.write(*args.all("-o", "--output"))


def _apply(args: Args, texts: list[str], found: Found) -> None:
    found.write(*args.all("--directory"), wide=True)


def _mailed(args: Args, texts: list[str], found: Found) -> None:
    found.sends.append(("unknown", "whom it is mailed to", True))


def _credential(args: Args, texts: list[str], found: Found) -> None:
    if args.starts("fill") or args.starts("get"):
        found.is_secret = True
        found.add("read", "credentials", "git credential fill")


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


def _hub(command: Command, args: Args, found: Found) -> None:
    """`gh`, `glab`, `hub`: what they publish can be read by others, what they delete is gone for
    all."""
    args = args_of(command, _HUB)
    found.add("network", "listed", "github.com" if command.name != "glab" else "gitlab.com")
    if args.texts[:1] in _PUBLISHED and (args.texts[1:2] in _PUBLISHING or args.starts("api")):
        found.sends.append(("listed", "a page that others read", True))
    if (
        args.starts("gist", "create")
        or args.starts("snippet", "create")
        or args.starts("gist", "edit")
        or args.starts("release", "upload")
    ):
        found.read(*args.operands[2:])
        found.sends.append(("other", "a public page", False))
    elif args.starts("auth", "token") or (
        args.starts("auth", "status") and args.has("-t", "--show-token")
    ):
        found.is_secret = True
        found.add("read", "credentials", "token")
    elif args.starts("repo", "delete") or args.starts("project", "delete"):
        found.add("delete", "unknown", " ".join(args.texts[2:]), wide=True)
    elif (
        args.starts("release", "delete")
        or args.starts("secret", "delete")
        or args.starts("secret", "remove")
        or args.starts("repo", "archive")
    ):
        found.add("delete", "unknown", " ".join(args.texts), wide=args.starts("repo", "archive"))
    elif args.starts("repo", "edit") and any(
        word.known == "public" for word in args.all("--visibility")
    ):
        found.add("secret", "other", "a repository made public", wide=True)
    elif args.starts("api"):
        method = args.first("-X", "--method")
        if method is not None and method.known.upper() == "DELETE":
            target = args.texts[1] if len(args.texts) > 1 else ""
            found.add(
                "delete", "unknown", target, wide=bool(re.fullmatch(r"/?repos/[^/]+/[^/]+", target))
            )
    elif (
        args.starts("ssh-key", "add")
        or args.starts("gpg-key", "add")
        or args.starts("deploy-key", "add")
    ):
        found.add("persistence", "listed", " ".join(args.texts))
    elif args.starts("alias", "set") and "!" in " ".join(args.texts[3:]):
        found.add("persistence", "startup", " ".join(args.texts))
    elif args.starts("extension", "install"):
        found.add("execute", "listed", " ".join(args.texts[2:]))


def _copy(command: Command, args: Args, found: Found) -> None:
    """`hg clone URL`, `svn checkout URL FOLDER`."""
    if args.operands and args.texts[0] in ("clone", "checkout", "co", "export", "branch"):
        _clone(Args(args.flags, args.values, args.operands[1:]), args.texts[1:], found)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys("hg svn bzr jj fossil".split(), _copy),
    "git": _git,
    "gh": _hub,
    "glab": _hub,
    "hub": _git,
}
