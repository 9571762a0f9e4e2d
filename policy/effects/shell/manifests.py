"""Finds what a description of containers hands over of the machine that runs them: a compose file,
a manifest of a cluster, a development container.

Only texts that describe containers are examined, and only for what gives the whole machine away:
all of its rights, its processes, its root or its container engine. A folder of the project or a
named volume is everyday.
"""

import re
from collections.abc import Iterator
from itertools import islice

from policy.effects.effect import Effect
from policy.effects.paths import place

_FIRST_LOOK = re.compile(
    r"privileged|host(?:PID|IPC|Network|Path)|\.sock\b|cap_add|capabilities|: ?[\"']?host\b|runArgs"
    r"|cluster-admin|system:masters|volumes"
)
_DESCRIBES = re.compile(
    r"\bapiVersion[\"']?\s*:|^[\"'{ \t]{0,40}services[\"']?\s*:|\brunArgs[\"']?\s*:"
    r"|\bcontainerDefinitions[\"']?\s*:|\bsecurityContext[\"']?\s*:",
    re.MULTILINE,
)
_FLAGS = re.compile(
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
_MAX_FOUND = 50


def handed_over(content: str, *, is_applied: bool = False) -> Iterator[Effect]:
    """Yield what a description of containers hands over. `is_applied`: it takes effect now. Linear
    in the content, which is bounded."""
    if _FIRST_LOOK.search(content) is None or _DESCRIBES.search(content) is None:
        return
    for flag in islice(_FLAGS.finditer(content), _MAX_FOUND):
        yield Effect.of("privilege", "root", " ".join(flag[0].split())[:80], by="manifest")
    for mount in islice(_MOUNTS.finditer(content), _MAX_FOUND):
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
