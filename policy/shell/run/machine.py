"""Simulates a shell text: in order, with its variables, functions and small files, noting each
command that would really run.

Nothing is run. All branches are taken, loops over known words run for each word, others twice; what
differs between branches is unknown after them. The commands' own ways of running others are in
`wrappers`, `programs` and `builtins`; this holds what the grammar does.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from policy.shell.parse.budget import MAX_DEPTH
from policy.shell.parse.parsing import Parser, parse
from policy.shell.parse.tree import (
    AndOrList,
    Array,
    Assign,
    CaseCommand,
    For,
    Func,
    GroupCommand,
    If,
    Lit,
    Node,
    Parts,
    Pipe,
    Proc,
    Redir,
    Seq,
    Simple,
    Test,
    While,
    counted,
    goes_on,
    reading,
)
from policy.shell.parse.words import ASSIGN
from policy.shell.run.decoding import KNOWN
from policy.shell.run.expanding import Expander, Value, Variables
from policy.shell.run.state import Invocation, Out, ShellState, texts
from policy.shell.run.values import MAX_VALUE, Field, as_text, is_known

MAX_TURNS = 16
"""Of a loop over numbers; in one with more they are one number that is not known."""

Dispatch: TypeAlias = Callable[["Machine", Invocation], Out]
"""Runs one command."""


class Machine(ShellState):
    """One reading of one text."""

    def __init__(self, home: str, project: str, dispatch: "Dispatch") -> None:
        super().__init__(home, project)
        self.expander = Expander(self)
        self.dispatch = dispatch

    def program(
        self,
        text: str,
        around: Invocation,
        *,
        is_child: bool = True,
        arguments: list[str] | None = None,
        zero: str = "",
    ) -> Out:
        """Run a program text within this one. `arguments` None: it has those of its surroundings. A
        child has copies of the variables."""
        if self.depth >= MAX_DEPTH:
            self.unsure("depth: programs within programs, deeper than is read")
            return Out(self.unknowns.make())
        self.budget.spend(1_024)
        body, errors = parse(as_text(text), self.budget)
        for error in errors:
            self.unsure(error)
        saved, kept_around = self.variables, self.around
        kept_arguments = saved.arguments
        if is_child:
            self.variables = saved.copy(is_child=True)
            self.variables.values |= dict(around.assigns)
            self.variables.exported |= {name for name, _ in around.assigns}
            self.variables.arguments = []
        if arguments is not None:
            self.variables.arguments = arguments
        if zero:
            self.variables.values["0"] = zero
        self.around = replace(around, fields=[], assigns=[], redirs=[], file=None)
        was_child, self.is_child = self.is_child, self.is_child or is_child
        self.depth += 1
        try:
            return self.run(body, around.stdin)
        finally:
            self.depth -= 1
            self.around, self.is_child = kept_around, was_child
            if is_child:
                self.variables = saved
            elif arguments is not None:
                self.variables.arguments = kept_arguments

    def function(self, name: str, call: Invocation) -> Out:
        """Run a function with its arguments."""
        if self.depth >= MAX_DEPTH:
            self.unsure("depth: a function that calls itself, or others too deep to be read")
            return Out(self.unknowns.make())
        self.called.add(name)
        kept_around = self.around
        kept_arguments = self.variables.arguments
        self.around = replace(call, fields=[], assigns=[], redirs=[], file=None)
        self.variables.arguments = texts(call.fields[1:])
        self.variables.values |= dict(call.assigns)
        self.depth += 1
        try:
            return self.run(self.functions[name], call.stdin)
        finally:
            self.depth -= 1
            self.around = kept_around
            self.variables.arguments = kept_arguments

    def output(self, body: Seq) -> str:
        """Run the commands of a substitution; return what they print, without the line ends behind
        it."""
        before = len(self.drafts)
        out = self.isolated(body, None)
        if not out.commands:
            out.commands = list(range(before, len(self.drafts)))[:4]
        return as_text(out.text).rstrip("\n")

    def named(self, part: Proc) -> str:
        """Run the commands of `<(...)`, or keep those of `>(...)` until something is known to go
        there; return a name for the file."""
        if part.op == ">":
            sign = self.unknowns.make((f">({len(self.sinks)})",))
            self.sinks[sign] = part.body
            return sign
        out = self.isolated(part.body, None)
        sign = self.unknowns.make((f"<({len(self.sources)})",), out.commands)
        self.sources[sign] = out
        return sign

    def drain(self, sign: str, out: Out) -> None:
        """Run what reads a `>(...)`, with what was written there."""
        if (body := self.sinks.pop(sign, None)) is not None:
            self.isolated(body, out)

    # Grammar

    def run(self, node: Node, stdin: Out | None) -> Out:
        """Run what the grammar found; return what it prints."""
        self.budget.spend()
        match node:
            case Simple():
                return self.simple(node, stdin)
            case Seq():
                outs = [self.run(item, stdin) for item, _ in node.items]
                return outs[0] if len(outs) == 1 else self.together(outs)
            case AndOrList():
                return self.chain(node, stdin)
            case Pipe():
                return self.pipe(node, stdin)
            case Func():
                self.functions[node.name] = node.body
                return Out()
            case _:
                stdin, redirs = self.expanded(node.redirs, stdin)
                stdin = self.read_around(redirs, stdin)
                out = self.compound(node, stdin)
                self.write_around(redirs, out)
                return self.written(out, redirs)

    def compound(
        self, node: GroupCommand | If | While | For | CaseCommand | Test, stdin: Out | None
    ) -> Out:
        """Run a command that is made of others; return what they print."""
        match node:
            case GroupCommand():
                return (
                    self.isolated(node.body, stdin)
                    if node.is_subshell
                    else self.run(node.body, stdin)
                )
            case If():
                for test, _ in node.branches:
                    self.run(test, stdin)
                choices = [body for _, body in node.branches] + ([node.other] if node.other else [])
                return self.together(
                    self.branches(choices, stdin, is_complete=node.other is not None)
                )
            case While():
                return self.loop_while(node, stdin)
            case For():
                return self.loop_for(node, stdin)
            case CaseCommand():
                self.expander.text(node.word)
                for pattern in (
                    pattern for patterns, _, _ in node.branches for pattern in patterns
                ):
                    self.expander.text(pattern)
                return self.together(
                    self.branches([body for _, body, _ in node.branches], stdin, is_complete=False)
                )
            case Test():
                for word in node.words:
                    text = self.expander.text(word)
                    self.look_at_index(text)
                    if node.kind == "count":
                        self.expander.sum((Lit(text),))
                return Out()

    def together(self, outs: list[Out]) -> Out:
        """Join what several print."""
        text = "".join(out.text for out in outs)
        commands = [place for out in outs for place in out.commands]
        if len(text) > 4 * MAX_VALUE:
            self.budget.spend(len(text))
            text = self.unknowns.make((), commands)
        return Out(text, commands[-8:])

    def chain(self, node: AndOrList, stdin: Out | None) -> Out:
        """Run commands with `&&` and `||` between them."""
        outs = [self.run(node.first, stdin)]
        is_sure = goes_on(node.first)
        ends: list[Variables] = []
        for op, item in node.links:
            if op == "&&":
                if not is_sure:
                    # What follows may not run; but if it does, it sees what is before it.
                    ends.append(self.variables)
                    self.variables = self.copied()
                outs.append(self.run(item, stdin))
                is_sure = goes_on(item)
            else:
                ends.append(self.variables)
                self.variables = self.merged(ends)
                ends = []
                outs += self.branches([item], stdin, is_complete=False)
                is_sure = False
        if ends:
            self.variables = self.merged([*ends, self.variables])
        return self.together(outs)

    def copied(self) -> Variables:
        """Copy the variables; that is work too."""
        self.budget.spend(8 * len(self.variables.values))
        return self.variables.copy()

    def pipe(self, node: Pipe, stdin: Out | None) -> Out:
        """Run commands of which each reads what the one before prints."""
        out = stdin
        for place, item in enumerate(node.items):
            start = len(self.drafts)
            fed = out
            out = self.isolated(item, fed) if place < len(node.items) - 1 else self.run(item, fed)
            if fed is not None and place:
                for index in fed.commands:
                    if len(self.drafts) > start and self.drafts[index].feeds is None:
                        self.drafts[index].feeds = start
        return out or Out()

    def isolated(self, node: Node, stdin: Out | None) -> Out:
        """Run something whose variables end with it."""
        saved = self.variables
        self.variables = saved.copy()
        self.budget.spend(8 * len(saved.values))
        aliases, functions = self.aliases, self.functions
        self.aliases, self.functions = dict(aliases), dict(functions)
        try:
            return self.run(node, stdin)
        finally:
            self.variables = saved
            self.aliases = aliases
            self.functions = functions | self.functions

    def branches(
        self, choices: list[Node] | list[Seq], stdin: Out | None, *, is_complete: bool
    ) -> list[Out]:
        """Run each from the same beginning; what differs in the end is unknown."""
        start = self.variables
        ends: list[Variables] = [] if is_complete else [start]
        outs = []
        for choice in choices:
            self.variables = start.copy()
            self.budget.spend(8 * len(start.values))
            outs.append(self.run(choice, stdin))
            ends.append(self.variables)
        self.variables = self.merged(ends) if ends else start
        return outs

    def merged(self, ends: list[Variables]) -> Variables:
        """Join what variables hold at the ends of branches."""
        new = ends[0].copy()
        for other in ends[1:]:
            new.exported |= other.exported
            if other.arguments != new.arguments:
                new.arguments = None
            for name in other.values.keys() | new.values.keys():
                first, second = new.values.get(name), other.values.get(name)
                if name == "PWD" and (not first or not second):
                    # A folder that may have been entered: what follows is written for that.
                    new.values[name] = first or second or ""
                elif first != second:
                    new.values[name] = self.either(name, first, second)
        return new

    def either(self, name: str, first: Value | None, second: Value | None) -> str:
        """Make the value of a variable that differs between branches: not known, but one of a
        few."""
        texts_ = [
            text for value in (first, second) for text in self.choices.get(str(value), (value,))
        ]
        known = [text for text in texts_ if isinstance(text, str) and is_known(text)]
        sign = self.unknowns.make(
            (name, *dict.fromkeys(known))
            if len(known) == len(texts_) and len(known) <= 4
            else (name,)
        )
        if len(known) == len(texts_) and 1 < len(known) <= 4:
            self.choices[sign] = tuple(dict.fromkeys(known))
        return sign

    def turns(self, body: Seq, stdin: Out | None) -> list[Out]:
        """Run a loop's body as often as it takes to see what a turn makes of the one before: twice,
        if it changes variables."""
        before = dict(self.variables.values)
        outs = self.branches([body], stdin, is_complete=False)
        if self.variables.values != before:
            outs += self.branches([body], stdin, is_complete=False)
        return [self.blurred(out) for out in outs]

    def blurred(self, out: Out) -> Out:
        """Return an output that is printed again and again."""
        return Out(self.unknowns.make((), out.commands[:4]), out.commands) if out.text else out

    def loop_while(self, node: While, stdin: Out | None) -> Out:
        """Run `while`."""
        reads = reading(node.test)
        if (
            reads is not None
            and stdin is not None
            and is_known(stdin.text)
            and stdin.text.count("\n") <= MAX_TURNS
        ):
            outs = []
            for line in stdin.text.splitlines():
                outs += [
                    self.run(node.test, Out(line + "\n", stdin.commands)),
                    self.run(node.body, None),
                ]
            return self.together(outs)
        self.run(node.test, stdin)
        outs = self.turns(node.body, stdin)
        return self.together(outs)

    def loop_for(self, node: For, stdin: Out | None) -> Out:
        """Run `for`."""
        if not node.name:
            for name in counted(self.expander.text(node.parts)):
                self.variables.set(name, self.unknowns.make((name,)))
            return self.together(self.turns(node.body, stdin))
        if node.words is None:
            known = self.expander.lookup("@")
            fields = [Field(text) for text in known] if isinstance(known, list) else []
        else:
            fields = [field for word in node.words for field in self.expander.fields(word)]
        turns = fields
        outs = []
        if len(fields) > MAX_TURNS or any(field.is_many for field in fields):
            # One turn for all that are not known, or are numbers; one for each other.
            first = fields[0] if len(fields) == 1 else None
            self.variables.set(
                node.name,
                first.text if first else self.unknowns.blur(*(field.text for field in fields)),
            )
            outs = self.turns(node.body, stdin)
            turns = [field for field in fields if is_known(field.text) and not field.text.isdigit()]
        for field in turns:
            self.budget.spend(1_024)
            self.variables.set(node.name, field.text)
            outs.append(self.run(node.body, stdin))
        return self.together(outs)

    # Simple commands

    def simple(self, node: Simple, stdin: Out | None) -> Out:
        """Run one simple command."""
        first = node.words[0] if node.words else ()
        name = (
            first[0].text
            if len(first) == 1 and isinstance(first[0], Lit) and not first[0].is_quoted
            else ""
        )
        aliased = self.aliased(name, node, stdin) if name in self.aliases else None
        fields: list[Field] = []
        for word in node.words:
            fields += self.expander.fields(word) if len(word) == 1 else self.fields(word)
        call = replace(self.around, fields=fields, assigns=[])
        for assign in node.assigns:
            value = self.assigned(assign)
            if not node.words:
                self.set(assign, value)
            call.assigns.append((assign.name, flat(value)))
        call.stdin, call.redirs = self.expanded(
            node.redirs, stdin if stdin is not None else self.around.stdin
        )
        files = [target for op, fd, target in call.redirs if op in ("<", "<>") and fd == 0]
        call.file = files[-1] if files else None
        if not call.fields and not call.assigns and [op for op, _, _ in call.redirs] == ["<"]:
            # `$(<file)`: what the file holds.
            place = self.emit(call, name="")
            return call.stdin if call.stdin is not None else self.unknown_output(place)
        if not (call.fields or call.assigns or call.redirs):
            return Out()
        out = self.dispatch(self, call)
        if aliased is not None:
            # Either may be what runs; a name that no program has prints nothing without its alias.
            out = self.together([aliased, out]) if name in KNOWN else aliased
        return self.written(out, call.redirs)

    def fields(self, word: Parts) -> list[Field]:
        """Expand one word; `name=(a b)` behind `declare` is an assignment."""
        match = (
            ASSIGN.fullmatch(word[0].text)
            if len(word) == 2 and isinstance(word[0], Lit) and isinstance(word[1], Array)
            else None
        )
        if match is None:
            return self.expander.fields(word)
        assign = Assign(match[1], "", bool(match[3]), word[1:])
        self.set(assign, self.assigned(assign))
        return [Field(match[1])]

    def aliased(self, name: str, node: Simple, stdin: Out | None) -> Out:
        """Run what an alias makes of the command; not every shell does, so the command itself runs
        too."""
        text = self.aliases.pop(name)
        remainder = node.remainder
        if (
            text[-1:] in (" ", "\t")
            and (match := re.match(r"\s*([^\s;&|]+)", remainder)) is not None
            and match[1] in self.aliases
        ):
            # A blank at its end: the next word is looked up, too.
            remainder = self.aliases[match[1]] + remainder[match.end() :]
        try:
            return self.program(
                f"{text} {remainder}", replace(self.around, stdin=stdin), is_child=False
            )
        finally:
            self.aliases[name] = text

    def assigned(self, assign: Assign) -> Value:
        """Return what an assignment gives."""
        if "$" in assign.index or "`" in assign.index:
            assign.index = self.expander.text(Parser(assign.index, self.budget).quoted_parts())
        assign.index = assign.index.strip("\"'")
        if len(assign.value) == 1 and isinstance(assign.value[0], Array):
            value: Value = self.elements(assign.name, self.expander.value(assign.value[0]))
        else:
            value = self.expander.text(assign.value)
        old = self.variables.values.get(assign.name)
        if assign.is_more and not assign.index:
            old = "" if old is None else old
            if isinstance(old, list) or isinstance(value, list):
                return (old if isinstance(old, list) else [old]) + (
                    value if isinstance(value, list) else [value]
                )
            return self.expander.bounded(old + value)
        return value

    def elements(self, name: str, values: Value) -> Value:
        """Take `[key]=value` in an array apart: under a number in its order, under a word as a
        variable of its own."""
        if not isinstance(values, list) or not any(value.startswith("[") for value in values):
            return values
        made = []
        for value in values:
            key, sign, text = value.removeprefix("[").partition("]=")
            if sign and value.startswith("[") and not key.isdigit():
                self.keyed(name, key, text)
            made.append(text if sign and value.startswith("[") else value)
        return made

    def set(self, assign: Assign, value: Value) -> None:
        """Do an assignment."""
        values = self.variables.values
        if not assign.index:
            values[assign.name] = value
            return
        old = values.get(assign.name, [])
        old = old if isinstance(old, list) else [old]
        if assign.index.isdigit() and int(assign.index[:4]) < 256:
            at = int(assign.index[:4])
            values[assign.name] = [*old[:at], *[""] * (at - len(old)), flat(value), *old[at + 1 :]]
        else:
            self.keyed(assign.name, assign.index, flat(value))

    def keyed(self, name: str, key: str, text: str) -> None:
        """Set an element of an array under a word. Two arrays of bash hold aliases, and where
        commands lie."""
        self.variables.values[f"{name}[{key}]"] = text
        if name == "BASH_ALIASES" and len(self.aliases) < 64:
            self.aliases[key] = text
        elif name == "BASH_CMDS" and len(self.links) < 32:
            self.links[key] = text

    # Redirects

    def expanded(
        self, redirs: list[Redir], stdin: Out | None
    ) -> tuple[Out | None, list[tuple[str, int, Field]]]:
        """Expand redirects; return what is read then."""
        made = []
        for redir in redirs:
            if redir.body is not None:
                target = Field(self.expander.text(redir.body))
            elif redir.op == "<<<":
                target = Field(self.expander.text(redir.target))
            elif redir.op in ("<<", "<<-"):
                target = Field("")
            else:
                fields = self.expander.fields(redir.target)
                target = fields[0] if fields else Field("")
            made.append((redir.op, redir.fd, target))
            if redir.op in ("<<", "<<-", "<<<"):
                known: Out | None = Out(target.text + ("\n" if redir.op == "<<<" else ""))
            elif redir.op in ("<", "<>"):
                known = self.read(target.text)
            elif redir.op == "<&" and target.text.isdigit():
                number = int(target.text[:3])
                known = self.descriptors.get(number, Out(self.unknowns.make((f"&{number}",))))
            else:
                continue
            if redir.fd == 0:
                stdin = known
            elif known is not None:
                self.descriptors[redir.fd] = known
        return stdin, made

    def written(self, out: Out, redirs: list[tuple[str, int, Field]]) -> Out:
        """Put what is printed where redirects send it; return what is left."""
        for op, fd, target in redirs:
            if op in (">", ">>", ">|", "&>", "&>>", ">&") and fd in (1, -1):
                if op == ">&" and (target.text.isdigit() or target.text == "-"):
                    continue
                if target.text in self.sinks:
                    self.drain(target.text, out)
                elif target.text not in ("/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1"):
                    self.write(target.text, out.text, is_more=">>" in op)
                out = Out("", out.commands)
        return out

    # The end

    def finish(self) -> None:
        """Run functions that nobody called: something may that is not in the text."""
        for name in [name for name in self.functions if name not in self.called]:
            self.variables.arguments = None
            self.run(self.functions[name], None)
        for sign in list(self.sinks):
            self.drain(sign, Out(self.unknowns.make()))


def flat(value: Value) -> str:
    """Return a value as one text."""
    return value if isinstance(value, str) else " ".join(value)
