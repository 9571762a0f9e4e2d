"""Commands that run program text: shells, interpreters, and tools with an option that is a
command."""

import re

from policy.effects.shell.command import Program, Word
from policy.effects.shell.run.indirect_options import run_make_variables
from policy.effects.shell.run.interpreters import LANGUAGES, after
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_text, run_values
from policy.effects.shell.run.state import Invocation, Out, base_name, texts
from policy.effects.shell.run.values import Field, is_known
from policy.effects.shell.run.wrapper_table import after_options

SHELLS = frozenset(
    "sh bash dash zsh ksh ksh93 mksh pdksh lksh ash rbash fish yash posh csh tcsh osh elvish"
    " xonsh nu".split()
)


_GDB_RUNS = re.compile(
    r"^\s*(?:shell|!|pipe)\s*(.+)$|^\s*(?:call|print|p)\b.*system\s*\(\s*\"([^\"]+)\""
)


def file_of_text(machine: Machine, call: Invocation, text: str) -> Out:
    """Run a file as a command that the text wrote itself: by its first line it is a script of some
    language."""
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        words = first[2:].split()
        name = next(
            (
                word.rpartition("/")[2]
                for word in words
                if not word.endswith("/env") and not word.startswith("-")
            ),
            "sh",
        )
        if name not in SHELLS:
            language = LANGUAGES.get(name, (name, ""))[0]
            return machine.noted(call, Program(language, machine.word(text), "file"))
    return run_text(
        machine,
        call,
        text,
        "file",
        is_child=True,
        arguments=call.words,
        zero=call.at(0),
    )


_TAR_RUNS = (
    "--to-command|--use-compress-program|--rsh-command|--info-script|--new-volume-script|-I|-F"
)


def of_tar(words: list[str]) -> list[str]:
    """The commands in options of `tar`."""
    actions = after(words, "--checkpoint-action")
    return [
        *(text[5:] for text in actions if text.startswith("exec=")),
        *after(words, _TAR_RUNS),
    ]


def debugger(machine: Machine, call: Invocation) -> Out:
    """`gdb -ex 'shell ...'`, and what stands behind `--args`."""
    words = call.words
    commands = after(words, "-ex|-iex|--ex|--eval-command")
    programs = [Program("gdb", machine.word(text), "argument") for text in commands]
    if call.stdin is not None:
        programs.append(Program("gdb", machine.word(call.stdin.text), "stdin"))
    place = machine.emit(call, *programs)
    run_values(
        machine,
        call,
        [
            next(group for group in match.groups() if group)
            for text in commands
            if (match := _GDB_RUNS.match(text))
        ],
        "gdb",
    )
    if "--args" in words:
        machine.dispatch(machine, call.inner(call.fields[words.index("--args") + 2 :], "gdb"))
    return machine.unknown_output(place)


def make(machine: Machine, call: Invocation) -> Out:
    """`make`: its file, if the text wrote it or it is what it reads."""
    run_make_variables(machine, call)
    path = next(iter(after(call.words, "-f|--file|--makefile")), "")
    known = (
        call.stdin
        if path in ("-", "/dev/stdin")
        else machine.read(path or "Makefile") or machine.read("makefile")
    )
    if statements := after(call.words, "--eval|-E"):
        known = Out("\n".join([*statements, known.text if known else ""]))
    if known is None:
        return machine.unknown_output(
            machine.emit(call, *([Program("make", Word(None), "file")] if path else []))
        )
    place = machine.emit(
        call, Program("make", machine.word(known.text), "file", is_read=is_known(known.text))
    )
    machine.budget.spend(8 * len(known.text))
    lines = [
        command
        for line in known.text.replace("\\\n", " ").splitlines()
        if (command := _of_make(line))
    ]
    run_values(machine, call, ["\n".join(lines)], "make")
    return machine.unknown_output(place)


def _of_make(line: str) -> str:
    """Return the command of a line of a makefile: a recipe's, or one whose output is a value; "" if
    it has none."""
    if line.startswith("\t"):
        return line.lstrip("\t@-+ ").replace("$$", "$")
    before, sign, remainder = line.partition("$(shell ")
    if sign and "#" not in before:
        return remainder.partition(")")[0]
    before, sign, remainder = line.partition("!=")
    if sign and re.fullmatch(r"[\w.-]{1,200}[ \t]{0,9}", before):
        return remainder
    target, sign, remainder = line.partition(";")
    return (
        remainder
        if sign and ":" in target and not target.startswith(("#", "\t")) and "=" not in target
        else ""
    )


def later(machine: Machine, call: Invocation) -> Out:
    """`at`, `batch`, `crontab`: what they read runs later."""
    name = call.at(0).rpartition("/")[2]
    words = call.words
    known = call.stdin
    if name == "crontab":
        path = next(
            (
                text
                for text in texts(call.fields[after_options(call.fields, 1, "u", ()) :])
                if not text.startswith("-") or text == "-"
            ),
            "",
        )
        known = call.stdin if path in ("-", "") else machine.read(path)
        if known is not None:
            place = machine.emit(
                call,
                Program("cron", machine.word(known.text), "stdin", is_read=is_known(known.text)),
            )
            machine.budget.spend(8 * len(known.text))
            run_values(
                machine,
                call,
                ["\n".join(filter(None, map(_of_crontab, known.text.splitlines())))],
                "crontab",
            )
            return Out("", [place])
        return machine.silent(call)
    if (path := next(iter(after(words, "-f")), "")) and known is None:
        known = machine.read(path)
    if known is None:
        return machine.silent(call)
    return run_text(
        machine, call, known.text, "command" if known.commands else "stdin", is_child=True
    )


def _of_crontab(line: str) -> str:
    """Return the command of a line of a crontab."""
    line = line.strip()
    if not line or line.startswith("#") or re.match(r"\w+\s*=", line):
        return ""
    match = re.match(r"@\w+\s+(.*)|(?:\S+\s+){5}(.*)", line)
    return (match[1] or match[2] or "") if match else ""


def terminal(machine: Machine, call: Invocation) -> Out:
    """`tmux`, `screen`: the command that a new window runs, and the keys that are sent."""
    words = call.fields
    place = machine.emit(call)
    name = machine.drafts[place].name
    subs = (
        "new-session",
        "new",
        "new-window",
        "neww",
        "split-window",
        "splitw",
        "send-keys",
        "send",
        "run-shell",
        "run",
        "respawn-pane",
    )
    at = next((p for p in range(1, len(words)) if words[p].text in subs), 0)
    if name == "screen":
        at = 0
    start = after_options(words, at + 1, "stncxyFeSTphcX" if name == "tmux" else "SsTtehpxc", ())
    keys = texts(words[start:])
    if name == "tmux" and not at:
        return machine.unknown_output(place)
    if words[at].text in ("send-keys", "send"):
        keys = [key for key in keys if key not in ("Enter", "C-m", "C-j", "KPEnter")]
        run_values(machine, call, ["".join(key if key != "Space" else " " for key in keys)], name)
    elif len(keys) == 1:
        run_values(machine, call, keys, name)
    elif keys and keys[0] != "stuff":
        machine.dispatch(machine, call.inner(words[start:], name))
    elif keys:
        run_values(machine, call, keys[1:], name)
    return machine.unknown_output(place)


def package_runner(machine: Machine, call: Invocation) -> Out:
    """`npx tool words`, `npm exec -c text`: a package's program with its words, or a text for a
    shell."""
    place = machine.emit(call)
    name = base_name(call)
    if call.at(1) in ("pkg", "set-script"):
        settings = (
            [text for text in texts(call.fields[2:]) if text.startswith("scripts.")]
            if call.at(1) == "pkg"
            else [f"={call.at(3)}"]
        )
        run_values(machine, call, [text.partition("=")[2] for text in settings], name)
        return machine.unknown_output(place)
    start = 1 if name in ("npx", "bunx", "pnpx") else 2 if call.at(1) in ("exec", "x", "dlx") else 0
    if start:
        run_values(machine, call, after(call.words, "-c|--call"), name)
        at = after_options(call.fields, start, "pcw", ("package", "call", "workspace"))
        tool = re.sub(r"(?<=.)@[^/]*$", "", call.at(at))
        if at < len(call.fields) and is_known(tool) and re.fullmatch(r"[\w@./-]+", tool):
            return machine.dispatch(
                machine, call.inner([Field(tool.rpartition("/")[2]), *call.fields[at + 1 :]], name)
            )
    return machine.unknown_output(place)
