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

from policy.effects.shell.parse.budget import MAX_DEPTH
from policy.effects.shell.parse.parsing import parse
from policy.effects.shell.parse.tree import (
    AndOrList,
    CaseCommand,
    For,
    Func,
    GroupCommand,
    If,
    Lit,
    Node,
    Pipe,
    Proc,
    Seq,
    Simple,
    Test,
    While,
    counted,
    goes_on,
    reading,
)
from policy.effects.shell.run.assigning import AssigningState, flat
from policy.effects.shell.run.decoding import KNOWN
from policy.effects.shell.run.expanding import Expander
from policy.effects.shell.run.state import Invocation, Out
from policy.effects.shell.run.values import Field, as_text, is_known
from policy.effects.shell.run.variables import Variables

MAX_TURNS = 16
"""Of a loop over numbers; in one with more they are one number that is not known."""


Dispatch: TypeAlias = Callable[["Machine", Invocation], Out]
"""Runs one command."""


class Machine(AssigningState):
    """One reading of one text."""

    def __init__(self, home: str, project: str, dispatch: "Dispatch") -> None:
        super().__init__(home, project)
        self.expander = Expander(self)
        self.dispatch = dispatch
        self.is_past = False
        """Does it run what ran before the text?"""

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
        self.variables.arguments = call.words
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

    # Grammar

    def run(self, node: Node, stdin: Out | None) -> Out:
        """Run what the grammar found; return what it prints."""
        self.budget.spend()
        match node:
            case Simple():
                return self.simple(node, stdin)
            case Seq():
                outs = [
                    self.isolated(item, stdin) if is_aside else self.run(item, stdin)
                    for item, is_aside in node.items
                ]
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

    def pipe(self, node: Pipe, stdin: Out | None) -> Out:
        """Run commands of which each reads what the one before prints."""
        out = stdin
        for place, item in enumerate(node.items):
            start = len(self.drafts)
            fed = out
            # few shells run the last one themselves: that counts where it makes a text worse
            is_aside = self.is_past or place < len(node.items) - 1
            out = self.isolated(item, fed) if is_aside else self.run(item, fed)
            if fed is not None and place:
                for index in fed.commands:
                    if len(self.drafts) > start and self.drafts[index].feeds is None:
                        self.drafts[index].feeds = start
        return out or Out()

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

    # Redirects

    # The end

    def finish(self) -> None:
        """Run functions that nobody called: something may that is not in the text."""
        for name in [name for name in self.functions if name not in self.called]:
            self.variables.arguments = None
            self.run(self.functions[name], None)
        for sign in list(self.sinks):
            self.drain(sign, Out(self.unknowns.make()))
