"""Key files that a command names: whatever the program is, giving it the path of one counts as a
read.

The tables list what known programs do with their operands; this examines all words of every
command, so that no program is a way around them. Exceptions: commands that only name a file or
change its permissions, and a key that is passed in order to be used, as by `ssh -i`.
"""

import re

from policy.effects.network import host_of
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Program, Word
from policy.effects.shell.commands.file_commands import is_remote, table
from policy.effects.shell.commands.findings import Findings

_NAMES = frozenset(
    "ls dir vdir lsd exa eza tree stat test [ [[ chmod chown chgrp mkdir rmdir touch file du df"
    " realpath readlink basename dirname which whereis type command hash cd pushd popd export"
    " declare local readonly typeset set unset alias echo printf find gfind fd fdfind locate namei"
    " lsattr chattr getfacl setfacl getfattr mountpoint rm grm unlink shred srm trash trash-put"
    " wipe man help tldr true false expr seq tr yes for case read mapfile readarray trap ssh-add"
    " ssh-agent ssh-copy-id ssh-keygen gpgconf ps pgrep pkill kill".split()
)
"""Who prints or changes no more than names, rights and times, or is described with all that its
options do."""
_OF_GIT = frozenset("add stage rm mv".split())
_USED = re.compile(
    r"--?[\w-]*(?:key|cert(?:ificate)?(?:-chain)?|cacert|-ca|capath|pem|identity|kubeconfig"
    r"|defaults(?:-extra)?-file|keyring|keystore|passfile|homedir|"
    r"vault-password|credentials?|token|password|secret|auth)(?:-?(?:file|path|bundle|material))?|"
    r"-?o?identityfile|-o|--?(?:[\w-]*-)?(?:out|output|exclude|ignore|skip|omit|filter)(?:-?file)?"
    r"|-x",
    re.IGNORECASE,
)
"""An option whose value is a key to be used, or no file that is read, by its name."""
_LOGINS = frozenset(
    "ssh scp sftp autossh mosh sshfs rsync age rage ansible ansible-playbook".split()
)
"""Who takes such a key behind `-i`."""
_TEXTS = frozenset("jq gojq jaq yq".split())
"""Whose first operand is no path, besides those whose table says so."""
MAX_WORDS = 300
"""Words that are looked at in all commands of one text: some 10 milliseconds."""
_MAX_CHARS = 4_096
_OPENED = re.compile(r"(?:^|[\s'\"(<=,@])((?:~|/)[^\s'\"\\;)}]{2,400})")
_SED_READS = re.compile(r"(?:^|[\s\d$/,!;{])[rRwW][ \t]{0,9}([^\s;}]{2,400})")
_MAX_OPENED = 50
_SIGNS = re.compile(r"[./~_]")
"""One of these is in every path that holds keys."""
_LISTS = {
    "cpio": "",
    "pax": "",
    "tar": "-T",
    "gtar": "-T",
    "bsdtar": "-T",
    "zip": "-@",
    "rsync": "--files-from",
    "7z": "@",
}
"""Who reads names of files from its input: with which option, if it needs one."""


def add_given(command: Command, findings: Findings, left: list[int], *, is_unknown: bool) -> None:
    """Add the files with keys among the words of a command, and all files if the program is
    unknown: it may open whatever it is given.

    `left`: how many words are looked at in all commands of the text.
    """
    if command.name in _NAMES or not command.name:
        return
    if command.name == "git" and not _OF_GIT.isdisjoint(command.texts[:3]):
        # what is added its own table says
        return
    roles = table().get(command.name, ((),))[0]
    has_text = command.name in _TEXTS or (roles[:1] == ("t",) and len(roles) > 1)
    programs = [program.text.text for program in command.programs]
    option = ""
    for word in command.words[1:]:
        text = word.known
        if text in programs:
            pass
        elif has_text and not text.startswith("-"):
            has_text = False
        elif _may_be_path(word, text, command.cwd is not None and command.name != "git"):
            left[0] -= 1
            if left[0] < 0:
                findings.unsure.append("size: more paths than are looked at")
                return
            name, sign, _ = text.partition("=")
            before = name if sign else option
            if not (_USED.fullmatch(before) or (before == "-i" and command.name in _LOGINS)):
                for place in _places(word, text, findings):
                    _read(place, findings, is_unknown=is_unknown)
        option = text if text.startswith("-") else ""
    _add_listed(command, findings)


def _may_be_path(word: Word, text: str, is_elsewhere: bool) -> bool:
    if len(text) > _MAX_CHARS or "\n" in text or (word.text is None and not (text or word.outputs)):
        return False
    if "://" in text:
        return text[:6].lower() in ("file:/", "fileb:")
    # looking at a path takes its time, and most words that are none look like this
    return (
        _SIGNS.search(text) is not None
        or word.outputs != ()
        or (is_elsewhere and not text.startswith("-"))
    )


def _places(word: Word, text: str, findings: Findings) -> list[PathTarget]:
    """Look at a word: as a path, and at what stands in it behind `=`, `@`, a scheme or the letter
    of an option."""
    if word.text is None:
        return findings.places(word) if " " not in text else []
    # `FROM:TO`, a list of paths, or one path
    forms = {*text.split(":")[:4]} if not text.startswith("-") else set()
    forms |= {text.rpartition(sign)[2] for sign in ("=", "@", "<") if sign in text}
    if text[:1] == "-" and text[2:3] in ("/", "~", "."):
        forms.add(text[2:])
    if "://" in text:
        forms = {text.partition("://")[2]}
    elif is_remote(word) and host_of(text) and "@" not in text[:2]:
        return []
    return [
        findings.place(Word(form, is_glob=word.is_glob))
        for form in sorted(forms)
        if form and " " not in form
    ]


def _read(place: PathTarget, findings: Findings, *, is_unknown: bool = False) -> None:
    if place.path in findings.writes:
        return
    if place.scope == "credentials":
        findings.add("read", "credentials", place.path)
    if (place.secret or is_unknown) and place not in findings.reads:
        findings.reads.append(place)


def _add_listed(command: Command, findings: Findings) -> None:
    """Names of files that a program reads from its input, a line each."""
    option = _LISTS.get(command.name)
    if (
        option is None
        or command.stdin.kind != "text"
        or (option and not any(word.known.startswith(option) for word in command.words))
    ):
        return
    for line in command.stdin.text.splitlines()[:_MAX_OPENED]:
        _read(findings.place(Word(line.strip())), findings)


def add_opened(program: Program, findings: Findings) -> None:
    """Add the files with keys that stand in a program text: `r FILE` of sed, `:r`, `.import`,
    `\\copy`, any text of a language."""
    text = (program.text.text or "")[: 4 * _MAX_CHARS]
    pattern = _SED_READS if program.language == "sed" else _OPENED
    for opened in list(pattern.finditer(text))[:_MAX_OPENED]:
        _read(findings.place(Word(opened[1])), findings)
