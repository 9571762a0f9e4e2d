"""Files that are changed by a program text in the command: `sed -i`, `perl -pi`, `awk
'{print > "x"}'`, `yq -i`.

The attack: a line into a file of the system, as `perl -pi -e 's/x/y/' /etc/sudoers`
(`tests/unit/test_coding_agent.py:OPTIONS`). No labelled call does.
"""

import re

from policy.effects.patches import files_of
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows


def _sed(command: Command, args: Args, findings: Findings) -> None:
    """What a script of `sed` writes besides."""
    for script in args.all("-e|--expression") or args.operands[:1]:
        for target in re.findall(r"(?:^|[;}\n/gp0-9\s])w\s+([^\s;}]+)", script.known):
            findings.write(Word(target))


_AWK_WRITES = re.compile(r">{1,2}\s{0,9}(ENVIRON\[\"HOME\"\]\s{0,9})?\"([^\"]{1,400})\"")


def in_place(command: Command, findings: Findings) -> None:
    """Interpreters that edit the files they are given, and files that a program of `awk` writes."""
    if command.name in ("perl", "ruby"):
        args = args_of(command, ("-e", "-E", "-M", "-m", "-I", "-r", "-C", "-F"))
        if args.has("-i"):
            findings.write(*args.operands)
    elif command.name.endswith("awk"):
        args = args_of(command, ("-i", "-v", "-F", "-f", "-e", "--include"))
        if any(word.known == "inplace" for word in args.all("-i|--include")):
            findings.write(*args.operands[1:])
        for program in command.programs:
            for home, path in _AWK_WRITES.findall(program.text.known[:16_384]):
                findings.write(Word(f"~{path}" if home else path))


HANDLERS: dict[str, Handler] = rows(
    r"""
SCRIPTS := -e|-f|--expression|--file

sed gsed : -e -f -l --expression --file
    + <SCRIPTS> -> reads operands
    + !<SCRIPTS> -> reads 2-
    + -i|--in-place <SCRIPTS> -> writes operands
    + -i|--in-place !<SCRIPTS> -> writes 2-
    -> call sed
yq : -o -p -I --output-format --from-file
    + -> reads 2-
    -i|--inplace|--in-place -> writes 2-
""",
    sed=_sed,
)


_PATCHING = frozenset("patch gpatch apply_patch applypatch git".split())
_MAX_PATCHED = 200


def patched(command: Command, findings: Findings) -> None:
    """Add what a patch changes that a program reads or is given: `apply_patch`, `patch`, `git
    apply`."""
    if command.name not in _PATCHING or (
        command.name == "git" and not any(text in ("apply", "am") for text in command.texts[:6])
    ):
        return
    texts = [command.stdin.text] if command.stdin.kind == "text" else []
    if command.name.startswith("apply"):
        texts += command.texts[:1]
    changes = [change for text in texts for change in files_of(text)]
    if len(changes) > _MAX_PATCHED:
        findings.unsure.append("size: a patch of more files than are looked at")
    for path, does, added in changes[:_MAX_PATCHED]:
        if does == "delete":
            findings.delete(Word(path))
        else:
            findings.write(Word(path))
            findings.files.append((findings.place(Word(path)).path, added))
