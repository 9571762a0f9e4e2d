"""What kind of place a path names: part of the project, temporary, somebody's home, a key, a
start-up file, the system, a device.

Only the text is examined. A symbolic link may lead from any of these places to any other, and a
gateway cannot see it: for that guarantee, run the tools in a sandbox.
"""

import re
from functools import lru_cache

import msgspec

from policy.claims.roots import HOMES, Root, below, spelled
from policy.effects.effect import Kind, Scope
from policy.effects.path_names import (
    CACHES,
    CREDENTIAL_NAMES,
    CREDENTIAL_PARTS,
    CREDENTIALS,
    MADE_AGAIN,
    PROJECT_SECRETS,
    STARTUP,
    STARTUP_NAMES,
    SYSTEM,
    TEMPORARY,
)
from policy.word_tables import by_word
from protocol.bytes.folding import fold

_MAX_CHARS = 4096
"""The longest path that systems take."""
_VARIABLES = re.compile(
    r"\$(?:\{(HOME|PWD|TMPDIR|USER|LOGNAME|OLDPWD|XDG_[A-Z]+_HOME)\}|(HOME|PWD|TMPDIR|USER|LOGNAME"
    r"|OLDPWD|XDG_[A-Z]+_HOME)\b)"
)
_VALUES = by_word("""
HOME : ~
PWD OLDPWD : .
TMPDIR : /tmp
USER LOGNAME : user
XDG_CONFIG_HOME : ~/.config
XDG_DATA_HOME : ~/.local/share
XDG_STATE_HOME : ~/.local/state
XDG_CACHE_HOME : ~/.cache
""")
_WINDOWS = re.compile(
    r"%(userprofile|homepath|temp|tmp|appdata|localappdata|systemroot|windir|programdata)%",
    re.IGNORECASE,
)
_WINDOWS_VALUES = by_word("""
userprofile homepath : ~
temp tmp : /tmp
appdata : ~/AppData/Roaming
localappdata : ~/AppData/Local
systemroot windir : /c:/windows
programdata : /c:/programdata
""")
_DRIVE = re.compile(r"(?://[?.]/)?([A-Za-z]:)(/|$)")
_PROC_ROOT = re.compile(r"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/root(?=/|$)")
_PROC_CWD = re.compile(r"/proc/(?:self|thread-self)/cwd(?=/|$)")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_FILE_URL = re.compile(
    r"(?:file|vscode-file|local):(?://(?:localhost|127\.0\.0\.1)?(?=/))?", re.IGNORECASE
)
_GLOB = re.compile(r"[*?\[{]")
_ALL = re.compile(r"(?:\*\*?|\.\*|\.\?\?\*|\.\[[!^]\.\]\*|\{\*,\.\*\}|\{,\.\}\*|\{\.,\}\*)")
"""A glob for everything in a folder."""
_OF_NOBODY = re.compile(
    r"/(?:opt|srv|var/(?:www|opt|backups|cache)|usr/(?:local|src|ports)(?!/s?bin))(?:/|$|\*)"
)
"""Where an operator puts software and data of their own: neither the system's nor known to be
anybody's."""
_HARMLESS_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|u?random|stdin|stdout|stderr|p?tty\d*|pty(?:/.*)?|pts(?:/.*)?"
    r"|fd(?:/.*)?|ptmx|console)"
)
_CHECKOUTS = re.compile(r"/(?:workspace|app|repo|code|project|testbed|workspaces/[^/]+)(/.*)?")
"""Where containers usually have their project: the default if none is configured."""
_BUILT = re.compile(r"(?:^|/)(?:" + "|".join(map(re.escape, MADE_AGAIN)) + r")(?:/|$)")
_CREDENTIALS = re.compile("|".join(CREDENTIALS))
_CREDENTIAL_NAMES = re.compile("|".join(CREDENTIAL_NAMES))
_CREDENTIAL_PARTS = re.compile("|".join(CREDENTIAL_PARTS))
_STARTUP = re.compile("|".join(STARTUP))
_STARTUP_NAMES = re.compile("|".join(STARTUP_NAMES))
_PROJECT_SECRETS = re.compile("|".join(PROJECT_SECRETS))


_RIGHTS = re.compile(
    r"^(?:/private)?/etc/(?:sudoers(?:\.d(?:/|$)|$|\.tmp)|passwd-?$|shadow-?$|group-?$|gshadow-?$"
    r"|pam\.d(?:/|$)|pam\.conf|security/|polkit-1/|doas\.conf|"
    r"ssh/sshd_config|sub[ug]id|login\.defs|nsswitch\.conf|kubernetes/manifests"
    r"|docker/daemon\.json|krb5\.conf|sssd/)"
)
"""Files that say who may do what."""
_GUARDS = re.compile(
    r"^/(?:etc/(?:selinux|audit|apparmor|rsyslog|syslog|ufw|iptables|nftables|firewalld|fail2ban"
    r"|hosts\.(?:allow|deny)|ossec|falco|sysctl|logrotate|"
    r"clamav|crypto-policies|ca-certificates|ssl/certs)|var/log|sys/fs/selinux|sys/kernel/security"
    r"|proc/sys/kernel|usr/local/share/(?:ca-certificates|certs))"
)
"""Settings of guards, and traces."""


_TO_THE_ROOT = 3
_FIRST_FOLDERS = frozenset(
    "etc proc sys root boot dev usr var home bin sbin lib lib64 run opt".split()
)


class PathTarget(msgspec.Struct, frozen=True):
    """Where a path leads. `path`: without dots and variables; `wide`: many files by a glob;
    `secret`: holds keys, wherever it lies.

    The project's own folder, its history and what lies above it are of the scope `home`: they are
    no part of the project that can be made again. `whole`: it names the whole of a root, a home, a
    project or a part of the system, not something in it.
    """

    path: str
    scope: Scope
    wide: bool = False
    secret: bool = False
    whole: bool = False


def place(
    text: str, *, home: str = "~", project: tuple[str, ...] = (), cwd: str = ""
) -> PathTarget:
    """Return where the path leads. Linear in its length, never raises.

    `home` and the roots of `project`: absolute paths, where they are known. `cwd`: where a relative
    path begins, if it is not the first root.
    """
    return _place(text, home, project, cwd)


@lru_cache(maxsize=4096)
def _place(text: str, home: str, project: tuple[str, ...], cwd: str) -> PathTarget:
    if len(text) > _MAX_CHARS:
        return PathTarget(text[:64], "unknown", wide=True)
    plain = normal(text, home=home, project=project, cwd=cwd)
    wide = bool(_GLOB.search(plain))
    scope = _scope_of(plain)
    secret = scope == "credentials" or bool(_PROJECT_SECRETS.search(plain.casefold()))
    return PathTarget(plain, scope, wide, secret, _is_whole(plain))


def normal(text: str, *, home: str = "~", project: tuple[str, ...] = (), cwd: str = "") -> str:
    """Return the path with one spelling: `/...` from the root, `~/...` from home, `./...` of the
    project, `../...` above it."""
    folder = normal(cwd, home=home, project=project) if cwd and text[:1] not in ("/", "~") else ""
    path = _shortened(spelled_out(text, cwd=folder), home, project)
    if not project or not path.startswith(".."):
        return path
    # a neighbour of the folder in which the agent works may be another root, or in one
    first, roots = _roots(project, home)
    begins = spelled_out(cwd, cwd=first) if cwd else first
    return below(spelled_out(text, cwd=begins), roots) or path


def spelled_out(text: str, *, cwd: str = "") -> str:
    """Return the path without variables, dots and the ways of Windows. `cwd` is such a path."""
    path = fold(text).strip() if not text.isascii() else text.strip()
    if (url := _FILE_URL.match(path)) is not None:
        path = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), path[url.end() :])
    path = _WINDOWS.sub(lambda match: _WINDOWS_VALUES[match[1].lower()], path)
    path = _VARIABLES.sub(lambda match: _VALUES[match[1] or match[2]], path)
    if "\\" in path:
        path = path.replace("\\", "/")
    if (drive := _DRIVE.match(path)) is not None:
        path = f"/{drive[1].lower()}/" + path[drive.end() :]
    if path.startswith("~") and len(path) > 1 and path[1] not in "/+-":
        # another's home, `~root/x`
        path = "/home/" + path[1:]
    elif path[:2] in ("~+", "~-"):
        path = "." + path[2:]
    if not path.startswith(("/", "~")) and cwd:
        path = f"{cwd}/{path}"
    path = _dotless(path)
    path = _PROC_CWD.sub(".", path, count=1) if path.startswith("/proc/") else path
    while path.startswith("/proc/") and (root := _PROC_ROOT.match(path)) is not None:
        path = path[root.end() :] or "/"
    return path


def _dotless(path: str) -> str:
    """Take `.`, `..` and doubled slashes away."""
    first = path[:1]
    if first not in ("/", "~"):
        first = "."
    segments: list[str] = []
    above = 0
    for piece in (path if first != "~" else path[1:]).split("/"):
        if piece in ("", "."):
            continue
        if piece != "..":
            segments.append(piece)
        elif segments:
            segments.pop()
        elif first != "/":
            above += 1
    if (
        above >= _TO_THE_ROOT
        and first == "."
        and segments
        and segments[0].casefold() in _FIRST_FOLDERS
    ):
        # that deep lies no project: who climbs so far and names a folder of the root means that one
        return "/" + "/".join(segments)
    if above:
        # above a home lies the folder of all homes
        first = ".." if first == "." else "/home" if above == 1 else "/"
    relative = "/".join(segments)
    return first + relative if first == "/" else f"{first}/{relative}" if relative else first


def _shortened(path: str, home: str, project: tuple[str, ...]) -> str:
    """Say `~` and `.` for the folders that are known."""
    if project and (inside := below(path, _roots(project, home)[1])) is not None:
        return inside
    known = home.rstrip("/")
    if known.startswith(("/", "~/")) and (path == known or path.startswith(known + "/")):
        return "~" + path[len(known) :]
    if not project and (checkout := _CHECKOUTS.fullmatch(path)) is not None:
        return "." + (checkout[1] or "")
    return path


@lru_cache(maxsize=256)
def _roots(project: tuple[str, ...], home: str) -> tuple[str, tuple[Root, ...]]:
    """The first root, and the spellings of all."""
    plain = [spelled_out(root) for root in project]
    return plain[0], spelled(plain, home)


def _scope_of(path: str) -> Scope:
    low = path.casefold()
    if low in ("/", "/*", "/.", "/c:", "/c:/", "/c:/*") or (
        low.startswith("/") and _ALL.fullmatch(low[1:])
    ):
        return "root"
    if low.startswith("/dev/"):
        return _device(low)
    home = HOMES.fullmatch(low)
    home_relative = "~" + (home[2] or home[3] or "") if home is not None else low
    if _is_key(low, home_relative):
        return "credentials"
    if _STARTUP.search(home_relative) or _STARTUP_NAMES.search(home_relative):
        return "startup"
    if low.startswith(TEMPORARY) or low in ("/tmp", "/var/tmp", "/private/tmp"):
        return "temp"
    is_home = home_relative.startswith("~")
    if not is_home and (low.startswith(SYSTEM) or f"{low}/" in SYSTEM):
        return "unknown" if _OF_NOBODY.match(low) else "system"
    if low.startswith(".") and not low.startswith(".."):
        return _within_project(low)
    if _BUILT.search(home_relative) or f"{home_relative}/".startswith(CACHES):
        return "temp"
    is_home = is_home or low.startswith("..") or f"{low}/".startswith(("/home/", "/users/"))
    return "home" if is_home else "unknown"


def _within_project(path: str) -> Scope:
    inside = path[2:]
    if (
        not inside
        or _ALL.fullmatch(inside)
        or inside == ".git"
        or re.fullmatch(r"\.git/(?:objects|refs)(?:/.*)?", inside)
    ):
        return "home"
    return "project"


def _is_key(low: str, home_relative: str) -> bool:
    if _CREDENTIALS.search(home_relative):
        return True
    if home_relative.startswith("."):
        # keys of tests and examples lie in projects
        return bool(_CREDENTIAL_NAMES.search(home_relative)) and not re.search(
            r"(?:^|/)(?:tests?|fixtures?|examples?|testdata|mocks?)/", home_relative
        )
    return bool(_CREDENTIAL_NAMES.search(home_relative) or _CREDENTIAL_PARTS.search(home_relative))


def _device(low: str) -> Scope:
    if low.startswith("/dev/shm/"):
        return "temp"
    if low in ("/dev/mem", "/dev/kmem", "/dev/port"):
        return "credentials"
    return "temp" if _HARMLESS_DEVICES.fullmatch(low) else "device"


def _is_whole(path: str) -> bool:
    """Is it a root, a home, the project or the first folder of the system itself?"""
    base = re.sub(r"/(?:\*\*?|\.\*|\{[^/]*\})$", "", path) or "/"
    return base in (".", "~", "..", "/", "*") or bool(
        re.fullmatch(
            r"(?:/[^/]*|/(?:home|Users|var|usr|mnt|media|c)/[^/]+|\.\./?[^/]*|\*|\./\*)", base
        )
    )


def written(where: PathTarget) -> tuple[Kind, ...]:
    """Return what writing this file is besides a write: more rights for somebody, a program that
    runs later, a guard or a trace less."""
    low = where.path.casefold()
    if _RIGHTS.search(low):
        return ("privilege",)
    if where.scope == "startup":
        return ("persistence",)
    return ("defence",) if _GUARDS.search(low) else ()
