"""Finds what a written file will run later: scripts, lines of start-up files, package hooks, build
steps; and what it will fetch.

A file is not a command, but some files are read by programs that run their content, often with more
rights and unattended: a shell's start-up file at the next login, `postinstall` at the next
installation, a workflow step with the secrets of the repository.

Only the text that is written is examined, which may be part of a file.
"""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from policy.effects.effect import Effect, Scope
from policy.effects.network import LISTED, host_scope
from policy.effects.paths import place

MAX_CHARS = 65_536
"""Of a file that are looked at."""
_MAX_SCRIPTS = 64
_MAX_SOURCES = 500
"""Addresses in one line that are looked at."""
_SCRIPT_NAMES = re.compile(
    r"\.(?:sh|bash|zsh|ksh|command)\Z|(?:^|/)(?:\.husky/[\w-]+|\.git/hooks/[\w-]+|hooks/(?:pre"
    r"|post|commit)[\w-]*|entrypoint|configure)\Z"
)
_SHEBANG = re.compile(r"#![^\n]*\b(?:ba|z|k|da)?sh\b")
_SHELL_STARTUP = re.compile(
    r"(?:^|/)(?:\.?(?:ba|z|k)?sh(?:rc|env)|\.?(?:bash_|z)?(?:profile|login|logout|aliases)|\.envrc"
    r"|[\w.-]+\.sh|rc\.local)\Z"
)
_CRON = re.compile(r"(?:^|/)(?:crontab|cron\.(?:d|hourly|daily|weekly|monthly)/|var/spool/cron)")
_CRON_LINE = re.compile(
    r"^[ \t]*(?:@\w+[ \t]+|(?:[\d*/,-]+[ \t]+){5})(?:(?:root|[a-z_][\w-]*)[ \t]+)?(\S.*)$",
    re.MULTILINE,
)
_UNIT = re.compile(r"\.(?:service|timer|socket|path|desktop)\Z")
_UNIT_LINE = re.compile(r"^(?:Exec\w*)[ \t]*=[ \t]*[-@:+!]*(\S.*)$", re.MULTILINE)
_PACKAGE = re.compile(r"(?:^|/)(?:package\.json|composer\.json|deno\.jsonc?)\Z")
_HOOK = re.compile(
    r'"(?:pre|post)?(?:install|publish|prepare|pack|uninstall|version|update|autoload-dump'
    r'|install-cmd|update-cmd|start|build|test)"'
    r'\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_SCRIPTS = re.compile(r'"scripts"\s{0,9}:\s{0,9}\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)')
_SCRIPT = re.compile(r'"[^"\\\n]{1,80}"\s{0,9}:\s{0,9}"((?:[^"\\]|\\.)*)"')
"""Scripts of any name, which somebody runs by it."""
_WORKFLOW = re.compile(
    r"(?:^|/)(?:\.github/(?:workflows|actions)/|\.gitlab-ci|\.circleci/|\.drone|\.travis"
    r"|azure-pipelines|bitbucket-pipelines|cloudbuild)"
)
_RUN_LINE = re.compile(
    r"^([ \t]*)(?:-[ \t]+)?(?:run|script|before_script|after_script|command|bash|sh|cmds?|"
    r"(?:ansible\.builtin\.)?(?:shell|command|raw))[ \t]*:[ \t]*(.*)$",
    re.MULTILINE,
)
_DOCKER = re.compile(r"(?:^|/|\.)(?:dockerfile|containerfile)(?:\.|\Z)", re.IGNORECASE)
_DOCKER_LINE = re.compile(
    r"^[ \t]*(?:RUN|CMD|ENTRYPOINT)[ \t]+((?:[^\\\n]|\\.|\\\n)*)", re.MULTILINE | re.IGNORECASE
)
_MAKE = re.compile(r"(?:^|/)(?:gnu)?makefile\Z|\.mk\Z|(?:^|/)justfile\Z", re.IGNORECASE)
_MAKE_LINE = re.compile(r"^\t[@-]*((?:[^\\\n]|\\.|\\\n)*)", re.MULTILINE)
_JUST_LINE = re.compile(r"^[ \t]{1,8}[@-]*((?:[^\\\n]|\\.|\\\n)*)", re.MULTILINE)
_MAKE_VALUE = re.compile(
    r"^(?:export[ \t]+)?([A-Za-z_]\w{0,60})[ \t]*[:?+]?=[ \t]*([^\n]{0,200})$", re.MULTILINE
)
_MAKE_NAME = re.compile(
    r"\$\$|\$[({](?:(shell)[ \t]+)?([^(){}$\n]{1,200})[)}]|\$[@<^*?+]|\{\{[^{}\n]{1,80}\}\}"
)
_OF_THE_ENVIRONMENT = frozenset("HOME USER PWD TMPDIR SHELL PATH".split())
_PYTHON = re.compile(r"(?:^|/)(?:setup|conftest|sitecustomize|usercustomize)\.py\Z|\.pth\Z")
_TASKS = re.compile(
    r"(?:^|/)(?:\.vscode/(?:tasks|settings|launch)\.json|\.devcontainer[/\w.-]*\.json"
    r"|\.pre-commit-config\.ya?ml|\.?mcp\.json|(?:claude_desktop_config|mcp_settings"
    r"|cline_mcp_settings)\.json|\.claude/settings[\w.]*\.json)\Z"
)
_STARTS_ITSELF = re.compile(r'"runOn"\s{0,9}:\s{0,9}"folderOpen"')
_COMMAND_FIELD = re.compile(
    r'"?(?:command|postCreateCommand|postStartCommand|postAttachCommand|initializeCommand'
    r'|onCreateCommand|entry)"?\s*:\s*"?((?:[^"\\\n]|\\.)*)"?'
)
_COMMAND_WITH_ARGUMENTS = re.compile(
    r'"command"\s{0,9}:\s{0,9}"([\w./-]{1,200})"\s{0,9},\s{0,99}"args"\s{0,9}:\s{0,9}\[('
    r"[^\[\]]{0,2000})\]"
)
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_STRUCTURED = re.compile(r"\.(?:ya?ml|jsonc?)\Z", re.IGNORECASE)
_YAML = re.compile(r"\.ya?ml\Z", re.IGNORECASE)
_PLAYBOOK = (
    re.compile(r"(?m)^[ \t-]{0,20}(?:hosts|version):"),
    re.compile(r"(?m)^[ \t]{0,20}tasks:"),
)
"""Of Ansible, and a Taskfile."""
_JENKINS = re.compile(
    r"(?:^|/)(?:Jenkinsfile(?:\.|\Z)|(?:Rake|Vagrant|Fast|Guard)file\Z)|\.(?:jenkinsfile|rake)\Z",
    re.IGNORECASE,
)
_JENKINS_STEP = re.compile(
    r"""\b(?:sh|system|inline:)(?![\w.])[ \t]*(?:\([ \t]*)?(?:script:[ \t]*)?"""
    r"""(?:'{3}|"{3}|["'])((?:[^"'\\]|\\.|["'](?!\s*(?:[)},]|\n|\Z)))+)"""
)
_TOX = re.compile(r"(?:^|/)tox\.ini\Z")
_TOX_COMMANDS = re.compile(r"(?m)^commands(?:_pre|_post)?[ \t]*=[ \t]*([^\n]*(?:\n[ \t]+[^\n]+)*)")
_TERRAFORM = re.compile(r"\.tf\Z")
_LOCAL_COMMAND = re.compile(r'\bcommand[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_PROCFILE = re.compile(r"(?:^|/)Procfile(?:\.\w+)?\Z")
_PROCFILE_LINE = re.compile(r"(?m)^[\w-]{1,40}:[ \t]*(\S.*)$")
_PUT_IN = re.compile(r"\$\{\{([^}]{0,400})\}\}")
_OWN_NAME = re.compile(
    r"\$\{?BASH_SOURCE(?:\[0\])?\}?|(?<![\w'{ ])\$0(?!\w)|(?<=[(\" ])\$\{?0\}?(?=[)\" ])"
)
_PLAIN_PATH = re.compile(r"[\w./-]{1,300}", re.ASCII)
_MANIFESTS = re.compile(
    r"(?:^|/)(?:package(?:-lock)?\.json|\.npmrc|\.yarnrc(?:\.yml)?|pip\.conf|pip\.ini"
    r"|requirements[\w.-]*\.(?:txt|in)|constraints[\w.-]*\.txt|"
    r"pyproject\.toml|setup\.cfg|poetry\.lock|pipfile(?:\.lock)?|gemfile(?:\.lock)?|cargo\.toml"
    r"|config\.toml|go\.mod|composer\.json|"
    r"\.gitmodules|sources\.list|[\w.-]+\.(?:list|sources|repo)|pnpm-lock\.yaml|yarn\.lock"
    r"|environment\.ya?ml|build\.gradle(?:\.kts)?|pom\.xml|"
    r"settings\.xml|nuget\.config|\.condarc)\Z",
    re.IGNORECASE,
)
_SOURCE = re.compile(r"(?:git\+)?(?:https?|ssh|git|ftp|file)://[^\s\"'<>,;)\]}#]+", re.IGNORECASE)
_FETCHES = re.compile(
    r"git\+|\.(?:tgz|tar\.gz|tar\.bz2|zip|whl|gem|crate|jar)(?:$|[?#&'\"])|(?:registry"
    r"|index[_-]url|extra-index|find-links|trusted-host|"
    r"repository|baseurl|mirror|source|url|replace|\bdeb\b|-e|resolved)\W",
    re.IGNORECASE,
)
"""What makes an address in a list of packages one from which code is fetched, and not a home
page."""

_ABOUT = re.compile(
    r'"(?:url|web|homepage|repository|bugs|funding|author|license'
    r'|email)"\s{0,9}:\s{0,9}"[^"]{0,100}\Z'
)
"""What a package says of itself, which nobody fetches, before an address."""
_ARCHIVE = re.compile(r"\.(?:tgz|tar\.gz|zip|whl|gem|crate|jar)(?:$|[?#&])")


class StoredTexts(msgspec.Struct, frozen=True):
    """What a file will run when it is used, as texts for a shell, and what it will fetch."""

    scripts: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    is_inside: bool = False
    """Its scripts run in an image that is built: what they delete and change is the image's own."""
    is_whole: bool = True
    """All that it will run is among `scripts`; False: it is too long, or has more of them than are
    read."""

    def keeps(self, effect: Effect) -> bool:
        """Does an effect of its scripts reach out of where they run?"""
        return not self.is_inside or effect.kind in ("execute", "secret", "network")


def stored_in(path: str, scope: Scope, content: str) -> StoredTexts:
    """Return what a file at `path` with this content will do later. Linear."""
    looked_at = content[:MAX_CHARS]
    scripts = [text for text in _scripts(path, scope, looked_at) if text.strip()]
    is_whole = len(scripts) <= _MAX_SCRIPTS and (len(content) <= MAX_CHARS or not scripts)
    return StoredTexts(
        tuple(scripts[:_MAX_SCRIPTS]),
        (*_sources(path, looked_at), *(handed_over(looked_at) if _STRUCTURED.search(path) else ())),
        _DOCKER.search(path) is not None,
        is_whole,
    )


def _scripts(path: str, scope: Scope, content: str) -> Iterator[str]:
    if _CRON.search(path):
        yield from _found(_CRON_LINE, content)
    elif _UNIT.search(path):
        yield from (re.sub(r"%[a-zA-Z]", "x", text) for text in _found(_UNIT_LINE, content))
    elif _JENKINS.search(path):
        yield from (
            text.replace('\\"', '"').replace("\\'", "'") for text in _found(_JENKINS_STEP, content)
        )
    elif _TOX.search(path):
        yield from (line for block in _found(_TOX_COMMANDS, content) for line in block.split("\n"))
    elif _TERRAFORM.search(path):
        yield from (
            text.replace('\\"', '"').replace("\\\\", "\\")
            for text in _found(_LOCAL_COMMAND, content)
        )
    elif _PROCFILE.search(path):
        yield from _found(_PROCFILE_LINE, content)
    elif (
        _SHEBANG.match(content)
        or _SCRIPT_NAMES.search(path)
        or (scope == "startup" and _SHELL_STARTUP.search(path))
    ):
        # where the script lies is known
        yield _OWN_NAME.sub(path, content) if _PLAIN_PATH.fullmatch(path) else content
    elif _PACKAGE.search(path):
        block = _SCRIPTS.match(content, max(content.find('"scripts"'), 0))
        texts = [*_found(_HOOK, content), *(_found(_SCRIPT, block[1]) if block else ())]
        yield from (text.replace('\\"', '"').replace("\\\\", "\\") for text in dict.fromkeys(texts))
    elif _WORKFLOW.search(path) or (
        _YAML.search(path) and all(pattern.search(content) for pattern in _PLAYBOOK)
    ):
        yield from _steps(content)
    elif _DOCKER.search(path):
        yield from (
            text for text in _found(_DOCKER_LINE, content) if not text.lstrip().startswith("[")
        )
    elif _MAKE.search(path):
        yield from _recipes(
            content, _JUST_LINE if path.lower().endswith("justfile") else _MAKE_LINE
        )
    elif _PYTHON.search(path):
        yield "python3 -c '" + content.replace("'", "'\\''") + "'"
    elif _TASKS.search(path):
        yield from (
            text.replace('\\"', '"').replace("\\\\", "\\")
            for text in _found(_COMMAND_FIELD, content)
        )
        for command, arguments in _COMMAND_WITH_ARGUMENTS.findall(content):
            words = [
                text.replace('\\"', '"').replace("\\\\", "\\") for text in _found(_TEXT, arguments)
            ]
            yield " ".join([command, *(f"'{word}'" for word in words if "'" not in word)])


def _found(pattern: re.Pattern[str], content: str) -> Iterator[str]:
    for match in pattern.finditer(content):
        yield match[match.lastindex or 0]


def _steps(content: str) -> Iterator[str]:
    """The commands of a workflow: behind `run:`, or the lines below it that are indented
    further."""
    lines = content.split("\n")
    number = 0
    while number < len(lines):
        match = _RUN_LINE.match(lines[number])
        number += 1
        if match is None:
            continue
        command = match[2].strip()
        if command and command[0] not in "|>":
            yield _filled(command.strip("\"'") if command[0] in "\"'" else command)
            continue
        block = []
        while number < len(lines) and (
            not lines[number].strip()
            or len(lines[number]) - len(lines[number].lstrip()) > len(match[1])
        ):
            # a list of commands has one behind each dash
            block.append(re.sub(r"^[ \t]*-[ \t]+", "", lines[number]).lstrip())
            number += 1
        # what the system puts in before a shell reads it
        yield _filled("\n".join(block).rstrip())


def _filled(text: str) -> str:
    """The text with something in the place of what a workflow puts in: all secrets at once are the
    whole environment."""

    def value(match: re.Match[str]) -> str:
        name = re.fullmatch(r"[ \t]*secrets\.(\w{1,80})[ \t]*", match[1])
        variable = (
            f"${name[1]}"
            if name
            else "$(env)"
            if re.search(r"toJSON\(\s*secrets\s*\)", match[1], re.IGNORECASE)
            else ""
        )
        if not variable:
            return "$WORKFLOW_VALUE"
        # it is put in before a shell reads the line, so single quotes keep nothing from it
        is_quoted = text.count("'", text.rfind("\n", 0, match.start()) + 1, match.start()) % 2
        return f"'\"{variable}\"'" if is_quoted else variable

    return _PUT_IN.sub(value, text)


def _recipes(content: str, line: re.Pattern[str]) -> Iterator[str]:
    """The lines of recipes, with the values of variables that stand in the file. What another file
    says is a plain name."""
    values = {name: value.strip() for name, value in _MAKE_VALUE.findall(content)}

    def filled(match: re.Match[str], depth: int = 0) -> str:
        if match[0] == "$$":
            return "$"
        name = match[2] or ""
        if match[1]:
            return f"$({name})"
        if name in values and depth < 4:
            return _MAKE_NAME.sub(lambda inner: filled(inner, depth + 1), values[name])
        return f"${name}" if name in _OF_THE_ENVIRONMENT else "make-value"

    return (_MAKE_NAME.sub(filled, text) for text in _found(line, content))


def _sources(path: str, content: str) -> Iterator[Effect]:
    """Code that a list of packages fetches from a place that is none of the usual ones; tasks that
    an editor starts by itself."""
    if _TASKS.search(path) and _STARTS_ITSELF.search(content):
        yield Effect.of("persistence", "startup", path, by="editor")
    if not _MANIFESTS.search(path):
        return
    about = _ABOUT if path.endswith("package.json") else None
    for line in content.split("\n"):
        # asked once a line, and not for each of its addresses
        fetches = _SOURCE.search(line) is not None and _FETCHES.search(line) is not None
        for match in islice(_SOURCE.finditer(line), _MAX_SOURCES) if fetches else ():
            if (
                about is not None
                and _ARCHIVE.search(match[0]) is None
                and about.search(line, max(0, match.start() - 200), match.start())
            ):
                continue
            if (scope := host_scope(match[0].removeprefix("git+"), LISTED)) not in (
                "listed",
                "loopback",
            ):
                yield Effect.of("execute", scope, match[0], by=path.rpartition("/")[2])


# -- what a description of containers hands over of the machine that runs them

_MAY_HAND_OVER = re.compile(
    r"privileged|host(?:PID|IPC|Network|Path)|\.sock\b|cap_add|capabilities|: ?[\"']?host\b|runArgs"
    r"|cluster-admin|system:masters|volumes"
)
_DESCRIBES_CONTAINERS = re.compile(
    r"\bapiVersion[\"']?\s*:|^[\"'{ \t]{0,40}services[\"']?\s*:|\brunArgs[\"']?\s*:"
    r"|\bcontainerDefinitions[\"']?\s*:|\bsecurityContext[\"']?\s*:",
    re.MULTILINE,
)
_HOST_FLAGS = re.compile(
    r"\bprivileged[\"']?\s*:\s*[\"']?(?:true|yes|on)\b|\bhost(?:PID|IPC"
    r"|Network)[\"']?\s*:\s*[\"']?true\b"
    r"|\b(?:pid|ipc|userns_mode|pidMode)[\"']?\s*:\s*[\"']?host\b|[\"']--privileged[\"']"
    r"|[\"']--pid=host[\"']"
    r"|\b(?:cap_add|add)[\"']?\s*:\s*(?:\[|-)[^:{}]{0,300}?\b(?:CAP_)?(?:ALL|SYS_ADMIN"
    r"|SYS_MODULE|SYS_RAWIO|"
    r"DAC_READ_SEARCH|BPF)\b"
)
_MOUNTS = re.compile(
    r"\bhostPath[\"']?\s{0,9}:\s{0,40}\{?\s{0,40}(?:[\"']?type[\"']?\s{0,9}:\s{0,9}[\w\"']{1,40}[\s,]{1,40})?[\"']?path[\"']?\s{0,9}:\s{0,9}"
    r"[\"']?([/~][^\s\"',}]{0,200})()"
    r"|\bsource(?:Path)?[\"']?\s{0,9}[:=]\s{0,9}[\"']?((?:[/~]|\$\{?HOME\}?)[^\s\"',}]{0,200})()"
    r"|(?:^|[\s\[,\"'])((?:[/~]|\$\{?HOME\}?)[^\s\"',:\]]{0,200}):/[^\s\"',:\]]{0,200}(:ro)?",
    re.MULTILINE,
)
_HOLES = re.compile(
    r"(?:/|/(?:etc|root|home|boot|dev|usr|bin|sbin|lib|var|var/lib|opt|run|var/run)"
    r"|/var/lib/(?:docker|kubelet|etcd|rancher)"
    r"|/etc/kubernetes|~|/home/\w+|/users/\w+)/?",
    re.IGNORECASE,
)
_ENGINE = re.compile(r"(?:docker|containerd|crio|podman)\.sock$")
_BINDS = re.compile(r"kind[\"']?\s*:\s*[\"']?(?:Cluster)?RoleBinding\b")
_MAX_HANDED = 50


def handed_over(content: str, *, is_applied: bool = False) -> Iterator[Effect]:
    """Yield what a description of containers hands over. `is_applied`: it takes effect now. Linear
    in the content, which is bounded."""
    if _MAY_HAND_OVER.search(content) is None or _DESCRIBES_CONTAINERS.search(content) is None:
        return
    for flag in islice(_HOST_FLAGS.finditer(content), _MAX_HANDED):
        yield Effect.of("privilege", "root", " ".join(flag[0].split())[:80], by="manifest")
    for mount in islice(_MOUNTS.finditer(content), _MAX_HANDED):
        where = place(mount[1] or mount[3] or mount[5])
        is_read_only = bool(mount[6])
        if _ENGINE.search(where.path) and not is_read_only:
            yield Effect.of("privilege", "root", where.path, by="manifest")
        elif where.scope == "root" or (_HOLES.fullmatch(where.path) and not is_read_only):
            yield Effect.of("privilege", where.scope, where.path, wide=True, by="manifest")
        elif where.scope == "credentials":
            yield Effect.of("read", "credentials", where.path, by="manifest")
    if (
        is_applied
        and _BINDS.search(content)
        and re.search(r"cluster-admin|system:masters", content)
    ):
        yield Effect.of("privilege", "service", "cluster-admin", by="manifest")
