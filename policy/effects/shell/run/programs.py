"""Commands that run program text: shells, interpreters, and tools with an option that is a
command."""

import re

from policy.effects.shell.command import Program, ProgramSource, Word
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
    """`make`: a makefile that the text makes is read as one that it writes."""
    run_make_variables(machine, call)
    path = next(iter(after(call.words, "-f|--file|--makefile")), "")
    known = call.stdin if path in ("-", "/dev/stdin") else machine.read(path) if path else None
    texts_of_it = [*after(call.words, "--eval|-E"), "" if known is None else known.text]
    if any(texts_of_it):
        machine.write("./Makefile", "\n".join(texts_of_it))
        machine.unsure("language: a makefile that the text makes")
    programs = [Program("make", Word(None), "file")] if path else []
    return machine.unknown_output(machine.emit(call, *programs))


def later(machine: Machine, call: Invocation) -> Out:
    """`at`, `batch`, `crontab`: what they read runs later."""
    is_table = base_name(call) == "crontab"
    path = next(iter(call.words[-1:] if is_table else after(call.words, "-f")), "")
    known = (machine.read(path) if path else None) or call.stdin
    if known is None:
        return machine.silent(call)
    if is_table:
        machine.write("./crontab", known.text)
        return machine.silent(call)
    source: ProgramSource = "command" if known.commands else "stdin"
    return run_text(machine, call, known.text, source, is_child=True)


_OF_TMUX = frozenset(
    "new-session new new-window neww split-window splitw send-keys send run-shell run"
    " respawn-pane".split()
)


def terminal(machine: Machine, call: Invocation) -> Out:
    """`tmux`, `screen`: the command that a new window runs, and the keys that are sent."""
    place = machine.emit(call)
    name = machine.drafts[place].name
    fields, is_tmux = call.fields, name == "tmux"
    at = next((p for p, f in enumerate(fields) if is_tmux and f.text in _OF_TMUX), 0)
    start = after_options(fields, at + 1, "stncxyFeSTphcX" if is_tmux else "SsTtehpxc", ())
    keys = texts(fields[start:])
    if fields[at].text in ("send-keys", "send"):
        typed = [key for key in keys if key not in ("Enter", "C-m", "C-j", "KPEnter")]
        run_values(machine, call, ["".join(" " if k == "Space" else k for k in typed)], name)
    elif keys[:1] == ["stuff"] or (len(keys) == 1 and (at or not is_tmux)):
        run_values(machine, call, keys[-1:], name)
    elif keys and (at or not is_tmux):
        machine.dispatch(machine, call.inner(fields[start:], name))
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
