"""Whose program a command runs: what others may have put into the folder it builds, the store it
prints, or the index it installs from.

`policy/effects/shell/following` finds where data goes; this finds where programs come from, if no
download in this text is piped into them.

The attack: a stranger's repository, index or image that is built or run in the next step
(`tests/unit/test_coding_agent.py:STRANGERS`). No labelled call does.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from policy.effects.effect import Scope
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.findings import Findings

_BUILDERS = frozenset(
    """make gmake just task rake gradle gradlew mvn mvnw ant sbt bazel tox invoke fab cmake ctest ninja meson pytest nox jest mocha vitest
    java ansible-playbook terraform tofu terragrunt pulumi docker podman nerdctl docker-compose
    podman-compose helm helmfile skaffold nix
    nix-shell nix-build dotnet npm yarn pnpm bun npx pip pip3 uv poetry pdm pipenv hatch cargo go
    bundle composer pre-commit deno mix stack
    kubectl oc cabal swift zig flutter scons waf rails vagrant""".split()
)
"""Programs that run what lies in the present folder, or in those that they are given."""
_LOADERS = re.compile(
    r"(?:psql|mysql|mariadb|sqlite3|n?vim|vi|ex|emacs|ssh|scp|sftp|curl|gdb|lldb|make|gmake"
    r"|docker(?:-compose)?|ansible-playbook)"
)
_LOADS = tuple(
    "-f -u -F -S -K -l -x -init --file --config --load --command --makefile --init-file".split()
)
"""Options of these whose value is a file that is run, or says what is."""
_SETTINGS = frozenset(
    "ssh -F,scp -F,sftp -F,curl -K,curl --config,vim -S,nvim -S,vim -u,nvim -u,emacs -l".split(",")
)
_USUAL = re.compile(r"(?:^|[/._-])(?:\.?ssh|config|curl(?:rc)?)(?:[/._-]|\Z)|^/dev/null$|^none$")
_BUILD_FILES = re.compile(
    r"(?i)\./(?:(?:gnu)?makefile|.*\.mk|justfile|rakefile|gemfile|dockerfile|containerfile"
    r"|(?:docker-)?compose\.ya?ml|package\.json|"
    r"(?:setup|conftest|noxfile|build)\.(?:py|rs)|setup\.cfg|pyproject\.toml|tox\.ini"
    r"|requirements\.txt|cargo\.toml|cmakelists\.txt|pom\.xml|"
    r"build\.(?:gradle(?:\.kts)?|xml|sbt)|.*\.tf|\.npmrc|\.pre-commit-config\.yaml|composer\.json)"
)
_NAMES_CODE = re.compile(
    r"(?:(?:docker|podman|nerdctl)(?: buildx| image)? build|ansible-(?:pull|galaxy)|nix"
    r" (?:run|shell|develop|build|profile)|"
    r"nix-(?:shell|build|env)|(?:terraform|tofu) init|code|cursor|codium|poetry source add|brew"
    r" tap|conda|mamba|micromamba|bundle)\b"
)
"""Commands in whose words an address names code, a list of it, or a recipe."""
_RUNS_CODE = re.compile(
    r"(?:npm|pnpm|yarn|bun) (?:exec|x|dlx|create|init|run)\b|deno (?:run|install|serve|x)\b|uv"
    r" (?:tool )?run\b|pipx run\b"
)
"""The same, up to the program's name: what follows are its own words."""
_ADDRESS = re.compile(r"(?:--?[\w-]+=)?(?:git\+|git::)?((?:https?|git|ssh|ftp)://\S+)")
_ADDRESSES = re.compile(r"(?:https?|git|ssh|ftp)://[^\s,|\"']+")
_ELSEWHERE = re.compile(
    r"aws s3(?:api)? (?:cp|mv|sync|get-object)|gsutil (?:cat|cp|rsync)|gcloud storage (?:cat|cp)|az"
    r" storage \w+ download|"
    r"(?:rclone|s3cmd|s5cmd|mc|azcopy|b2) (?:cat|copy|copyto|get|cp|pipe|download)|(?:gh|glab)"
    r" (?:api|gist|snippet|release download)|"
    r"(?:svn|hg)"
    r" (?:cat|export)|(?:lynx|w3m|links|elinks|ipfs|lftp|ftp|sftp|tftp|curlftpfs|telnet|psql|mysql"
    r"|mariadb|redis-cli|mongosh?|"
    r"dig|drill|host|nslookup|whois|finger|kcat|mosquitto_sub|nats)\b|git archive|(?:kubectl|oc)"
    r" (?:get|logs)|(?:etcdctl|consul kv) get"
)
"""Commands that print or copy what lies where others may write: stores, repositories, databases,
names."""
_SOURCES = re.compile(
    r"(?i)(?:pip|uv|pdm|poetry|npm_config|yarn|pnpm|bun|cargo|gem|bundle|go|conda|mamba|homebrew"
    r"|rustup|nvm|composer|deno|jsr|hex)_?\w*"
    r"(?:index|registr|mirror|proxy|find_links|domain|source|channel|dist_server|repositor|cdn)\w*"
)
"""Variables that name the index from which packages come."""
_OF_GO = re.compile(
    r"(?:[\w-]+\.)*(?:golang\.org|google\.golang\.org|k8s\.io|honnef\.co|uber\.org|mvdan\.cc"
    r"|gotest\.tools|gopkg\.in|opentelemetry\.io|entgo\.io|"
    r"buf\.build|goa\.design|gorm\.io|gocloud\.dev|modernc\.org|filippo\.io|rsc\.io"
    r"|cloud\.google\.com|etcd\.io|kubebuilder\.io|istio\.io|"
    r"cuelang\.org|go\.dev|dagger\.io|pulumi\.com|hashicorp\.com|temporal\.io|knative\.dev"
    r"|grpc\.io|goreleaser\.com|step\.sm|"
    r"tools\.ietf\.org|github\.com|gitlab\.com|bitbucket\.org|codeberg\.org)"
)
"""Names below which well-known modules of Go lie: they are names in the usual index, as those of
other languages are."""
_MAX_WORDS = 200
_STRANGERS = ("other", "metadata")


_OF_PROGRAMS = re.compile(
    r"(?:/usr(?:/local)?/s?bin|/s?bin|/opt/(?:[\w.-]+/)?bin|~/(?:\.local/|\.cargo/|go/"
    r"|\.npm-global/)?bin)/([^/]+)"
)
"""Where programs lie that are found by their name."""
_BASIC = frozenset(
    """sudo su doas ssh scp sftp git ls ps cat cp mv rm grep find sed awk tar id passwd login
    bash sh zsh env which gpg openssl systemctl service crontab make gcc cc g++ ld python
    python3 pip pip3 perl ruby node npm npx curl wget less vi vim nano top kill mount ip
    ifconfig dig ping""".split()
)
"""What a system has, and nobody puts there by hand."""
_FETCHED_BY_HAND = frozenset(
    """kubectl helm terraform docker aws gcloud az gh go cargo rustc java mvn gradle php composer
    yarn pnpm bun deno uv claude codex""".split()
)
_VENDORS = frozenset(
    """dl.k8s.io cdn.dl.k8s.io get.helm.sh releases.hashicorp.com dl.google.com nodejs.org
    awscli.amazonaws.com packages.microsoft.com aka.ms get.docker.com download.docker.com
    dl.min.io astral.sh releases.astral.sh deno.land dl.deno.land bun.sh static.rust-lang.org
    sh.rustup.rs go.dev uploader.codecov.io cli.codecov.io get.pulumi.com install.duckdb.org
    dl.yarnpkg.com getcomposer.org phar.phpunit.de cs.symfony.com mise.run mise.jdx.dev
    starship.rs taskfile.dev just.systems get.k3s.io kind.sigs.k8s.io fly.io apt.llvm.org
    ziglang.org mirror.openshift.com raw.githubusercontent.com gist.githubusercontent.com
    objects.githubusercontent.com release-assets.githubusercontent.com get.sdkman.io
    dl.filippo.io binaries.sonarsource.com dl.dagger.io packages.cloud.google.com""".split()
)
"""Hosts from which the makers of programs give them out."""


def is_vendor(host: str) -> bool:
    """Do the makers of programs give them out there?"""
    return host in _VENDORS


def is_program(path: str) -> bool:
    """Is it a path by which a program is found?"""
    return _OF_PROGRAMS.fullmatch(path) is not None


def takes_name(path: str) -> bool:
    """Is a text that is written there found in place of a program of the system's?"""
    program = _OF_PROGRAMS.fullmatch(path)
    return program is not None and program[1] in _BASIC | _FETCHED_BY_HAND


def put_in_place(command: Command, findings: Findings, written: Sequence[str]) -> None:
    """A program that is written where one of the system's names is found first, or a folder with
    one that comes first. `written`: what commands before have written."""
    for path in findings.writes:
        if (program := _OF_PROGRAMS.fullmatch(path)) is not None and _takes_name(
            command, program[1], findings
        ):
            findings.add("persistence", "startup", path)
    for name, value in command.assignments:
        if name != "PATH":
            continue
        folders = [findings.place(Word(text)).path for text in value.known.split(":")[:4] if text]
        for path in written:
            folder, _, program_name = path.rpartition("/")
            if folder in folders and program_name in _BASIC | _FETCHED_BY_HAND:
                findings.add("persistence", "startup", path)


def _takes_name(command: Command, program: str, findings: Findings) -> bool:
    if command.name in ("cp", "ln", "mv", "install", "ginstall"):
        sources = [word for word in command.words[1:] if not word.known.startswith("-")][:-1]
        # one of the system's own under another name, as `python` for `python3`
        is_own = any(
            word.text is None or re.search(r"(?:^|/)s?bin/", findings.place(word).path)
            for word in sources
        )
        return program in _BASIC and not is_own
    is_fetched = any(path.endswith(f"/{program}") for path, _ in findings.downloads)
    return program in _BASIC or (program in _FETCHED_BY_HAND and not is_fetched)


def comes_from_elsewhere(command: Command) -> bool:
    """Is what it prints or copies what others may have put there?"""
    words = [word.known for word in command.words[1:9] if not word.known.startswith(("-", "+"))]
    # the values of two options may stand before the verb
    return any(
        _ELSEWHERE.match(" ".join([command.name, *words[start:]]))
        for start in range(min(3, len(words) + 1))
    )


def copied(command: Command, findings: Findings) -> None:
    """Note the files that such a command makes."""
    words = command.words[1:]
    name = next((word.known.rpartition("/")[2] for word in words if "/" in word.known), "")
    for before, word in pairwise((Word(""), *words)):
        if "://" not in word.known and (
            word is words[-1] or before.known in ("-f", "-O", "-o", "--file", "--output")
        ):
            paths = (
                [f"{word.known}/{name}"]
                if word.known in (".", "./")
                else [word.known, f"{word.known}/{name}"]
            )
            findings.downloads += [(findings.place(Word(path)).path, "unknown") for path in paths]


def built(
    command: Command, findings: Findings, origins: Callable[[Sequence[int]], list[Scope]]
) -> None:
    """Add that a program runs what others have written. `origins`: whose the output of commands is,
    as of `<(curl ...)` among its words."""
    words = command.words[1:]
    is_python = command.name.startswith("python") and any(word.text == "-m" for word in words[:3])
    is_builder, is_loader = (
        command.name in _BUILDERS or is_python,
        _LOADERS.fullmatch(command.name) is not None,
    )
    if is_builder and findings.earlier.fetched:
        _by_folder(command, findings)
    if is_loader:
        _by_option(command, findings)
    if is_builder or is_loader:
        fed = (
            (command.stdin.command,)
            if command.stdin.kind == "command" and any(word.text == "-" for word in words)
            else ()
        )
        if outputs := [*(output for word in words for output in word.outputs), *fed]:
            _add([*origins(outputs)], "what a command prints", findings)
    _by_name(command, findings)


def _by_folder(command: Command, findings: Findings) -> None:
    """The present folder, those that are named, and the files that say how to build."""
    nowhere = command.cwd is not None and command.cwd.text is None
    places = [
        "?" if nowhere else findings.place(Word("x")).path,
        *(place.path for place in _named(command.words[1:], findings)),
    ]
    whose = [findings.downloaded(path) for path in places]
    near = findings.place(Word(".")).path.rstrip("/") + "/"
    whose += [
        scope
        for path, scope in findings.earlier.fetched
        if path.startswith(near) and _BUILD_FILES.fullmatch("./" + path[len(near) :])
    ]
    _add(whose, near, findings)


def _by_option(command: Command, findings: Findings) -> None:
    """A file that an option names: whose it is, and whether it holds settings that nobody reads
    here."""
    words = command.words[1:]
    for option, word in [
        *((Word(_last(option.known)), word) for option, word in pairwise(words)),
        *map(_split, words),
    ]:
        if option.text not in _LOADS or not word.known:
            continue
        if findings.earlier.fetched:
            _add([findings.downloaded(findings.place(word).path)], word.known, findings)
        if f"{command.name} {option.text}" in _SETTINGS:
            of_editor = option.text in ("-S", "-l", "-u")
            if (
                findings.place(word).scope in ("temp", "unknown")
                if of_editor
                else not _USUAL.search(word.known)
            ):
                findings.unsure.append("name: a file of settings that may hold commands")


def _last(option: str) -> str:
    """The last of short options in one word, which takes the next: `-sSK`."""
    return (
        f"-{option[-1]}"
        if re.fullmatch(r"-[a-zA-Z]{2,9}", option) and option not in _LOADS
        else option
    )


def _split(word: Word) -> tuple[Word, Word]:
    option, _, value = (
        word.known.partition("=")
        if word.known.startswith("--")
        else (word.known[:2], "", word.known[2:])
    )
    return Word(option), Word(value)


def _by_name(command: Command, findings: Findings) -> None:
    """An address or a module that is named as the program."""
    words = command.words[1:]
    command_line = " ".join(
        [command.name, *[word.known for word in words[:3] if not word.known.startswith("-")]]
    )
    texts = (
        _until_program(words)
        if _RUNS_CODE.match(command_line)
        else [word.known for word in words]
        if _NAMES_CODE.match(command_line)
        else []
    )
    if len(texts) > _MAX_WORDS:
        findings.unsure.append("size: more words than are looked at")
    for text in texts[:_MAX_WORDS]:
        if (address := _ADDRESS.match(text)) is not None:
            _add([findings.scope_of_host(Word(address[1]))], text, findings)
    if command.name != "go":
        return
    for name, _, value in (
        word.known.partition("=")
        for word in words[:_MAX_WORDS]
        if command_line.startswith("go env")
    ):
        source_given(name, Word(value), findings)
    for word in words[1:_MAX_WORDS] if command_line.startswith(("go run ", "go install ")) else ():
        if (
            module := re.match(r"([\w-]+(?:\.[\w-]+)+)/\S*@", word.known)
        ) is not None and not _OF_GO.fullmatch(module[1].lower()):
            _add([findings.scope_of_host(Word(module[1]))], word.known, findings)


def _until_program(words: tuple[Word, ...]) -> list[str]:
    """The words up to the name of the program that runs."""
    texts = [word.known for word in words]
    verbs = 2 if texts[:1] == ["tool"] else 1
    for place in range(verbs, len(texts)):
        is_value = texts[place - 1].startswith("--") and texts[place - 1] != "--"
        if not texts[place].startswith("-") and (
            not is_value or re.search(r"\.(?:py|[cm]?[jt]sx?|sh)\Z", texts[place])
        ):
            return texts[: place + 1]
    return texts


def _named(words: tuple[Word, ...], findings: Findings) -> list[PathTarget]:
    """The places that words name, as operands or as values of options."""
    texts = [
        word.known.partition("=")[2] if word.known.startswith("-") else word.known
        for word in words[:40]
    ]
    return [findings.place(Word(text)) for text in texts if text and "://" not in text]


def _add(scopes: "list[Scope | None]", target: str, findings: Findings) -> None:
    scope = next((scope for scope in scopes if scope in _STRANGERS), None)
    if scope is not None:
        findings.add("execute", scope, target)


def source_given(name: str, value: Word, findings: Findings) -> None:
    """A variable that names where packages come from."""
    if _SOURCES.fullmatch(name):
        for address in _ADDRESSES.findall(value.known[:2_000]):
            _add([findings.scope_of_host(Word(address))], f"{name}={value.known}", findings)
