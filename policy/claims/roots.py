"""The roots of a project: how a path is recognised as one in them, however it is written.

Must not know: which scopes there are, who named the roots.
"""

import re
from collections.abc import Iterable, Iterator

HOMES = re.compile(
    r"/(?:home|users|var/home|usr/home|export/home|mnt/[a-z]/users|[a-z]:/users)/([^/]+)(/.*)?"
    r"|/root(/.*)?"
)
"""Home folders, in lower case: whose, and what is behind."""
_ANY_CASE = re.compile(r"/(?:Users|Volumes|private)/|/[A-Za-z]:/")
"""Where macOS and Windows have their files, which take `App` and `app` for one name. Elsewhere, and
where the path does not say, they are two: that makes fewer paths the project's."""
_DRIVE = re.compile(
    r"/(?:([A-Za-z]):|(?:mnt|cygdrive)/([A-Za-z])|([A-Za-z])(?=/[Uu]sers(?:/|\Z)))(/.*)?"
)
_DRIVES = ("/{}:", "/{}", "/mnt/{}", "/cygdrive/{}")
"""One drive of Windows, as programs of it, Git's shell, Linux beside it and Cygwin write it."""

Root = tuple[str, bool]
"""One spelling of a root, folded where case does not matter; does it not?"""


def spelled(roots: Iterable[str], home: str) -> tuple[Root, ...]:
    """Return the spellings of roots, which are absolute and without dots. `home`: the home folder,
    where it is known."""
    return tuple(
        (form.casefold(), True) if _ANY_CASE.match(root) else (form, False)
        for root in roots
        if root.startswith(("/", "~/"))
        for form in spellings(root.rstrip("/"), home)
    )


def spellings(root: str, home: str) -> Iterator[str]:
    """Yield the ways in which a path from a root may be written."""
    yield root
    if (known := home.rstrip("/")).startswith("/") and root.startswith(f"{known}/"):
        yield "~" + root[len(known) :]
    elif (match := HOMES.fullmatch(root.lower())) is not None:
        yield "~" + root[len(root) - len(match[2] or match[3] or "") :]
    if (drive := _DRIVE.fullmatch(root)) is not None:
        letter = (drive[1] or drive[2] or drive[3]).lower()
        yield from (form.format(letter) + (drive[4] or "") for form in _DRIVES)


def below(path: str, roots: Iterable[Root]) -> str | None:
    """Return a path as one of the project, `./...`, if it is in one of the roots."""
    for root, is_folded in roots:
        subject = path.casefold() if is_folded else path
        if root and (subject == root or subject.startswith(f"{root}/")):
            return "/".join([".", *path.split("/")[root.count("/") + 1 :]])
    return None
