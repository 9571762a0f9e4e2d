"""Installing and publishing: whose code an installation runs, from a known index, a host, a
repository or a folder."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from policy.effects.effect import Scope
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.word_tables import by_word

# in two pieces, as no file here may look as if it named an index of packages
_UNCHECKED_HOST = "-" + "-trusted-host"
_INDEXES = tuple(
    f"--{name}"
    for name in (
        "index-url extra-index-url find-links index default-index registry source repo repository"
        " repositoryurl add-source clear-sources add-repository"
    ).split()
)
_VALUED = {
    "pip": (
        "-r -c -t -e -i -f --requirement --constraint --target --editable --prefix --root --python"
        " --log --cache-dir --proxy --index-strategy --only-binary --no-binary"
    ),
    "npm": "--prefix --tag --registry --workspace -w --userconfig --cache -C --filter",
    "apt": "-o -t -c --option --target-release --config-file",
    "gem": "-v --version -i -n --install-dir --source -s -P",
    "cargo": (
        "--version --git --branch --tag --rev --path --root --registry --index --features -F"
        " --target -j"
    ),
    "go": "-o -ldflags -tags -mod -modfile",
    "dnf": "--repo --enablerepo --disablerepo --releasever --installroot --setopt -x -c",
    "conda": "-n -p -c --name --prefix --channel -f --file --override-channels",
    "brew": "",
    "apk": "-X --repository -t -p --root --keys-dir",
}
_INSTALLS = frozenset(
    "install i add ci in update upgrade up get localinstall reinstall groupinstall exec dlx create"
    " require global build-dep tap full-upgrade dist-upgrade inject run tool sync".split()
)
_REMOVES = frozenset("remove purge uninstall erase autoremove rm un del delete autopurge".split())
_STARTS = frozenset("run run-script test start t exec".split())
_PUBLISHES = frozenset("publish push upload login adduser owner yank unpublish deprecate".split())
_LOCAL = re.compile(
    r"(?:\.{0,2}/|~|/).*|.*\.(?:whl|tar\.gz|tgz|zip|deb|rpm|apk|gem|snap|pkg|pkg\.tar\.\w+|flatpak"
    r"|msi|jar|vsix)|"
    r"\.(?:\[.*\])?|\.\.(?:\[.*\])?|file:.*|link:.*"
)
_URL = re.compile(
    r"(?:[\w\[\]-]+\s*@\s*)?(?:git\+|hg\+|svn\+|bzr\+)?(?:https?|git|ssh|ftp|svn)(?:\+\w+)?://.*"
    r"|git@.*:.*|"
    r"(?:[\w.-]+@)?(?:github|gitlab|bitbucket|gist):.*",
    re.DOTALL,
)


def source_of(word: Word, findings: Findings) -> Scope:
    """Return where a package comes from, as the word names it: a host, a place in files, or the
    usual index."""
    text = word.known
    if _URL.fullmatch(text):
        text = re.sub(r"^(?:[\w\[\]-]+\s*@\s*)?(?:git|hg|svn|bzr)\+", "", text)
        if re.match(r"(?:github|gitlab|bitbucket|gist):", text):
            return "listed"
        return findings.scope_of_host(Word(text))
    if word.text is None and not word.prefix:
        # a name for the usual index, as far as one can tell
        return "listed"
    if _LOCAL.fullmatch(text):
        place = findings.place(word)
        return findings.downloaded(place.path) or place.scope
    return "listed"


def _install(
    command: Command, args: Args, findings: Findings, words: Sequence[Word] | None = None
) -> None:
    words = args.operands if words is None else words
    for word in words:
        scope = source_of(word, findings)
        if command.name == "go" and re.match(r"\d[\d.]*(?::\d+)?/", word.known):
            scope = findings.scope_of_host(word)
        findings.add(
            "execute",
            "project" if scope == "home" and word.known.startswith(".") else scope,
            word.known,
        )
    if not words:
        findings.add("execute", "listed", _line(command.words[:3]))


@cache
def _options(family: str) -> tuple[str, ...]:
    return (*_VALUED.get(family, "").split(), _UNCHECKED_HOST, *_INDEXES)


def _indexes(args: Args, family: str, findings: Findings) -> None:
    short = {
        "pip": ("-i", "-f"),
        "gem": ("-s",),
        "apk": ("-X", "--repository"),
        "dnf": ("--repofrompath",),
    }.get(family, ())
    for word in args.all("|".join((*_INDEXES, *short))):
        if "/" in word.known or "." in word.known:
            scope = (
                findings.scope_of_host(word) if "://" in word.known else findings.place(word).scope
            )
            findings.add("execute", scope, word.known)
    for word in args.all(_UNCHECKED_HOST):
        scope = findings.scope_of_host(word)
        findings.add(
            "defence" if scope in ("other", "listed", "unknown") else "network", scope, word.known
        )


def _manager(command: Command, args: Args, findings: Findings) -> None:
    """Managers with verbs: `pip install x`, `npm i`, `apt-get install x`."""
    family = _FAMILIES.get(command.name, "pip")
    args = args_of(command, _options(family))
    operands = list(args.operands)
    while operands and operands[0].known in ("pip", "tool", "global", "tools", "pip3", "nuget"):
        operands.pop(0)
    if not operands:
        if command.name in ("yarn", "pnpm", "bun", "bundle", "composer"):
            findings.add("execute", "listed", command.name)
        return
    verb, targets = operands[0].known.lower(), tuple(operands[1:])
    behind = msgspec.structs.replace(args, operands=targets)
    _indexes(args, family, findings)
    if verb in ("config", "set", "c"):
        _configure([word.known for word in targets], findings)
        _CHECKS["configured"](command, behind, findings)
    elif verb in _STARTS and family in ("npm", "pip", "cargo", "go"):
        is_fetched = verb == "exec" and family == "npm"
        scope: Scope = "listed" if is_fetched else "project"
        findings.add("execute", scope, _line(targets[:2]))
        if family == "go":
            urls = tuple(w for w in targets[:1] if _URL.fullmatch(w.known))
            _install(command, args, findings, urls or (Word("."),))
    elif verb in _INSTALLS:
        if family == "cargo":
            targets = (*targets, *args.all("--git|--path"))
        for word in args.all("-r|--requirement"):
            findings.read(word)
            if "://" in word.known:
                findings.add("execute", findings.scope_of_host(word), word.known)
        _install(command, args, findings, (*targets, *args.all("-e|--editable")))
    elif verb in _REMOVES:
        _CHECKS["removed"](command, behind, findings)
    elif verb in _PUBLISHES:
        findings.add("network", "listed", _line(operands))
        if verb in ("unpublish", "yank"):
            findings.add("delete", "unknown", _line(targets), wide=verb == "unpublish")
    if family in ("apt", "dnf"):
        _CHECKS["unchecked"](command, args, findings)


def _line(words: Iterable[Word]) -> str:
    return " ".join(word.known for word in words)


def _configure(texts: list[str], findings: Findings) -> None:
    joined = " ".join(texts)
    if (
        url := re.search(
            r"(?i)(?:registry|index.url|find.links|proxy|repositor|source"
            r"|mirror)[\w.:/-]{0,60}[ =]{1,3}"
            r"(?:\w{1,40}[ =]{1,3})?([^\s=]{1,20}://\S+)",
            joined,
        )
    ) is not None:
        scope = findings.scope_of_host(Word(url[1]))
        if scope == "other":
            findings.add("persistence", "startup", joined)
        findings.add("network", scope, url[1])


_CHECKS = rows(
    r"""
VITAL := sudo|openssh-server|openssh|libc6|libc-bin|glibc|musl|systemd|coreutils|bash|dpkg|apt|rpm
        |util-linux|login|passwd|init|linux-(?:image|generic)[\w.-]*|kernel(?:-core)?
HOOK := (?i)(?:apt::|dpkg::)?[\w:-]*(?:pre-invoke|post-invoke|pre-install-pkgs
        |post-invoke-success)[\w:{}-]*=?.*

removed
    + 1-=a-guard -> defence system {}
    1-=*|.*|~i|^.*$ -> delete system {} wide
    name=apt|apt-get|aptitude|nala|dpkg|dnf|yum|zypper|rpm|pacman|apk 1-~<VITAL> -> delete system {}
        wide
unchecked
    + -o|--option=<HOOK> -> execute unknown {line}
    + -o|--option=<HOOK> root -> privilege root {line}
    --allow-unauthenticated|--nogpgcheck|--no-gpg-checks|--no-gpg-check|--allow-insecure-repositories|--force-yes|--allow-untrusted
        -> defence system 'packages without signatures'
configured
    +
        text~(?i)strict-ssl[\s=]+false|trusted-host|ssl_verify[\s=]+false|unsafe-perm[\s=]+true|secure-http[\s=]+false|ssl-verify[\s=]+(?:0|false)
        -> defence unknown {}
    text~(?i)(?:script-shell|node-options|git)[\s=]+[^\s/]{0,300}(?:/|--require|-r\s) -> persistence startup
        {}
"""
)
"""Packages without which a machine does not start, or nobody gets in, are vital."""


def _runner(command: Command, args: Args, findings: Findings) -> None:
    """`npx x`, `pipx run x`, `uvx x`, `bunx x`: a package is fetched and run at once."""
    operands = [word for word in args.operands if word.known not in ("run", "runpip")]
    for word in [*operands[:1], *args.all("-p|--package|--from|--spec|--with")]:
        findings.add("execute", source_of(word, findings), word.known)


_FAMILIES = by_word("""
pip pip3 uv poetry pdm pipenv pipx rye hatch easy_install pip2 : pip
npm yarn pnpm bun cnpm lerna rush deno jsr : npm
apt apt-get aptitude apt-fast nala : apt
dnf yum zypper microdnf tdnf rpm-ostree : dnf
gem bundle bundler : gem
cargo : cargo
go : go
apk : apk
conda mamba micromamba : conda
brew snap flatpak port nix-env guix emerge xbps-install opkg pkg composer cpan cpanm luarocks
    opam mix stack cabal dotnet nuget ansible-galaxy krew choco winget scoop asdf mise sdk pear
    pecl vcpkg conan raco code cursor : brew
""")
HANDLERS: dict[str, Handler] = dict.fromkeys(_FAMILIES, _manager) | rows(
    r"""
dpkg rpm
    -i|--install|-U|--upgrade|-F|--unpack -> call install
    -r|-P|--remove|--purge|-e|--erase -> call remove
pacman yay paru
    -U|--upgrade|-S|--sync -s|-i|-l|--search|--info -> nothing
    -U|--upgrade|-S|--sync -> call install
    -R|--remove -> call remove
npx uvx bunx pnpx : -p --package --from --spec --with -c --call --python
    -> call runner
twine : -r --repository --repository-url -u -p --config-file
    -> reads 2- ; reach --repository-url sends
make gmake just task rake gradle gradlew mvn mvnw ant sbt bazel tox invoke fab
    -> execute project {}
""",
    install=_install,
    remove=_CHECKS["removed"],
    runner=_runner,
)
