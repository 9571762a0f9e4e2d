"""The shell's own commands that change what comes after them: `cd`, `export`, `set`, `read`,
`alias`, `eval`, `source`, `trap`, ..."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from policy.effects.shell.parse.tree import Lit
from policy.effects.shell.run import decoding
from policy.effects.shell.run.command_texts import quietly
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_environment, run_text, source
from policy.effects.shell.run.state import Invocation, Out
from policy.effects.shell.run.values import HOME, is_known

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)


def change_folder(machine: Machine, call: Invocation) -> Out:
    """`cd` and `pushd`: what follows runs there."""
    place = machine.emit(call)
    paths = [
        field.text
        for field in call.fields[1:]
        if not re.fullmatch(r"-[LPe@]+|--|[+-]\d+", field.text)
    ]
    path = paths[0] if paths else HOME
    values = machine.variables.values
    old = machine.expander.plain("PWD")
    if path == "-":
        previous = values.get("OLDPWD")
        path = previous if isinstance(previous, str) else machine.unknowns.make(("OLDPWD",))
    elif isinstance(search := values.get("CDPATH"), str) and re.match(
        r"\.?[^./]", path.replace(HOME, "/")
    ):
        # Where it is looked for: a folder that is named there may be meant.
        path = next((f"{folder}/{path}" for folder in search.split(":") if folder.strip(".")), path)
    values["PWD"] = machine.path(path) if path else old
    values["OLDPWD"] = old
    return Out("", [place])


def declare(machine: Machine, call: Invocation) -> Out:
    """`export`, `declare`, `local`, `readonly`, `typeset`: assignments and marks."""
    variables = machine.variables
    is_exported = call.at(0) == "export" or any(
        re.fullmatch(r"-[a-zA-Z]*x[a-zA-Z]*", field.text) for field in call.fields[1:]
    )
    is_other = any(
        re.fullmatch(r"-[a-zA-Z]*[nliu][a-zA-Z]*", field.text) for field in call.fields[1:]
    )
    assigns = list(call.assigns)
    for field in call.fields[1:]:
        match = _ASSIGNED.fullmatch(field.text)
        if match:
            old = variables.values.get(match[1], "") if match[2] else ""
            value = (old if isinstance(old, str) else " ".join(old)) + match[3]
            variables.values[match[1]] = machine.expander.bounded(value)
            if is_other:
                # perhaps another name for the variable whose name is the value
                variables.note(value)
            assigns.append((match[1], value))
        name = match[1] if match else field.text
        if not match and not name.startswith("-") and not _NAME.fullmatch(name):
            # whatever it stands for is set
            variables.note(name)
        if is_other and _NAME.fullmatch(name):
            # A name for another variable, or one whose letters change: what it holds is not what is
            # written.
            variables.values[name] = machine.unknowns.make((name,))
        if is_exported and _NAME.fullmatch(name):
            variables.exported.add(name)
    place = machine.emit(replace(call, assigns=assigns))
    run_environment(machine, call, assigns[len(call.assigns) :])
    return _printed(machine, call, place)


def _printed(machine: Machine, call: Invocation, place: int) -> Out:
    """Without a name, or with `-p`, they print the variables that there are."""
    words = call.words
    return (
        machine.unknown_output(place)
        if "-p" in words or all(word.startswith("-") for word in words)
        else Out("", [place])
    )


def unset(machine: Machine, call: Invocation) -> Out:
    """`unset`: the variable is empty from here on, and a function is gone."""
    for text in call.words:
        if _NAME.fullmatch(text):
            machine.variables.values[text] = ""
        machine.aliases.pop(text, None)
        if call.at(1) == "-f":
            machine.functions.pop(text, None)
    return machine.silent(call)


def set_arguments(machine: Machine, call: Invocation) -> Out:
    """`set -- a b`: the arguments."""
    words = call.words
    at = next(
        (
            place
            for place, word in enumerate(words)
            if word == "--" or not word.startswith(("-", "+"))
        ),
        None,
    )
    if at is not None and not (at and words[at - 1] in ("-o", "+o")):
        machine.variables.arguments = words[at + (words[at] == "--") :]
    place = machine.emit(call)
    return Out("", [place]) if words else machine.unknown_output(place)


def shift(machine: Machine, call: Invocation) -> Out:
    """`shift`: the first arguments go."""
    variables = machine.variables
    if variables.arguments:
        number = call.at(1)
        variables.arguments = variables.arguments[int(number[:4]) if number.isdigit() else 1 :]
    return machine.silent(call)


def alias(machine: Machine, call: Invocation) -> Out:
    """`alias name=text`: what the name becomes where it is a command."""
    for text in call.words:
        name, sign, value = text.partition("=")
        if sign and name and len(machine.aliases) < 64:
            machine.aliases[name] = value
            # a shell that goes on after this call knows it
            quietly(machine, call, value, "alias")
        elif sign:
            machine.unsure("size: more aliases than are kept")
    return machine.silent(call)


def evaluate(machine: Machine, call: Invocation) -> Out:
    """`eval`: its words are one program."""
    text = " ".join(call.words)
    return run_text(machine, call, text, "argument", is_child=False)


def trap(machine: Machine, call: Invocation) -> Out:
    """`trap 'commands' EXIT`: a program for later."""
    words = [text for text in call.words if text != "--"]
    if len(words) < 2 or words[0] in ("-", "", "-l", "-p"):
        return machine.silent(call)
    return run_text(machine, call, words[0], "argument", is_child=False)


def read(machine: Machine, call: Invocation) -> Out:
    """`read a b`: variables from what it reads."""
    variables = machine.variables
    names: list[str] = []
    at = 1
    is_array = False
    while at < len(call.fields):
        text = call.at(at)
        if re.fullmatch(r"-[a-zA-Z]*[aptnNdui]", text):
            is_array = is_array or text.endswith("a")
            if text.endswith("a"):
                names.append(call.at(at + 1))
            at += 2
            continue
        if not text.startswith("-"):
            names.append(text)
        at += 1
    variables.note(*names)
    names = [name for name in names if _NAME.fullmatch(name)] or ["REPLY"]
    place = machine.emit(call)
    line = call.stdin.text.partition("\n")[0] if call.stdin is not None else None
    if line is None or not is_known(line):
        for name in names:
            variables.set(
                name,
                machine.unknowns.make(
                    (name,), call.stdin.commands if call.stdin else (place,) if call.file else ()
                ),
            )
        return Out("", [place])
    ifs = machine.expander.plain("IFS")
    pieces = [
        piece
        for piece in re.split(
            f"[{re.escape(ifs)}]+" if ifs and is_known(ifs) else r"(?!)", line.strip(" \t")
        )
        if piece
    ]
    if is_array:
        variables.set(names[0], pieces)
        return Out("", [place])
    for number, name in enumerate(names):
        is_last = number == len(names) - 1
        value = (
            " ".join(pieces[number:])
            if is_last and len(names) > 1
            else line.strip(" \t")
            if is_last
            else "".join(pieces[number : number + 1])
        )
        variables.set(name, value)
    return Out("", [place])


def call_back(machine: Machine, call: Invocation) -> Out:
    """`mapfile -C`, `compgen -C`: commands that they call."""
    words = call.words
    at = words.index("-C") + 1 if "-C" in words else len(words)
    return (
        run_text(machine, call, words[at], "argument", is_child=False)
        if at < len(words)
        else machine.noted(call)
    )


def read_lines(machine: Machine, call: Invocation) -> Out:
    """`mapfile a`, `readarray a`: an array of the lines. `-C` runs a command for them."""
    place = machine.emit(call)
    if any(field.text == "-C" for field in call.fields):
        call_back(machine, call)
    name = (
        call.fields[-1].text
        if len(call.fields) > 1 and not call.fields[-1].text.startswith("-")
        else "MAPFILE"
    )
    if _NAME.fullmatch(name):
        is_few = (
            call.stdin is not None
            and is_known(call.stdin.text)
            and call.stdin.text.count("\n") <= 256
        )
        lines = (
            call.stdin.text.splitlines()
            if call.stdin and is_few
            else [machine.unknowns.make((name,), (place,))]
        )
        machine.variables.set(name, lines)
    return Out("", [place])


def printf(machine: Machine, call: Invocation) -> Out:
    """`printf`, which with `-v` sets a variable."""
    place = machine.emit(call)
    words = call.words
    name = words[1] if len(words) > 2 and words[0] == "-v" else ""
    made = decoding.printed("printf", words[2:] if name else words, None)
    text = machine.unknowns.blur(*words) if made is None else made
    if name:
        machine.variables.set(name, text)
        return Out("", [place])
    return Out(text, [place])


def let(machine: Machine, call: Invocation) -> Out:
    """`let x=1+2`: a sum."""
    for text in call.words:
        machine.expander.sum((Lit(text),))
    return machine.silent(call)


def remember(machine: Machine, call: Invocation) -> Out:
    """`hash -p path name`: a program under another name."""
    words = call.words
    if len(words) == 3 and words[0] == "-p":
        machine.links[words[2]] = words[1]
    return machine.silent(call)


def getopts(machine: Machine, call: Invocation) -> Out:
    """`getopts`: a variable that nobody knows."""
    for name in (call.at(2), "OPTARG"):
        if _NAME.fullmatch(name):
            machine.variables.set(name, machine.unknowns.make((name,)))
    return machine.silent(call)


def where(machine: Machine, call: Invocation) -> Out:
    """`pwd`: where it runs."""
    return Out(machine.expander.plain("PWD") + "\n", [machine.emit(call)])


BUILTINS: dict[str, Callable[[Machine, Invocation], Out]] = {
    "cd": change_folder,
    "pushd": change_folder,
    "chdir": change_folder,
    "export": declare,
    "declare": declare,
    "typeset": declare,
    "local": declare,
    "readonly": declare,
    "unset": unset,
    "unalias": unset,
    "set": set_arguments,
    "shift": shift,
    "alias": alias,
    "eval": evaluate,
    "source": source,
    ".": source,
    "trap": trap,
    "read": read,
    "mapfile": read_lines,
    "readarray": read_lines,
    "compgen": call_back,
    "complete": call_back,
    "printf": printf,
    "let": let,
    "hash": remember,
    "getopts": getopts,
    "pwd": where,
}
