"""What assignments, redirects and the ends of branches do to the variables and files of a shell."""

from policy.effects.shell.parse.parsing import Parser
from policy.effects.shell.parse.tree import Array, Assign, Lit, Node, Parts, Redir, Seq
from policy.effects.shell.parse.words import ASSIGN
from policy.effects.shell.run.expanding import Expander
from policy.effects.shell.run.state import Out, ShellState
from policy.effects.shell.run.values import MAX_VALUE, Field, is_known
from policy.effects.shell.run.variables import Value, Variables


def flat(value: Value) -> str:
    """Return a value as one text."""
    return value if isinstance(value, str) else " ".join(value)


class AssigningState(ShellState):
    """A shell with variables that are set and files that are written."""

    expander: Expander
    """Gives words their values; of the whole machine."""

    def run(self, node: Node, stdin: Out | None) -> Out:
        """Run what the grammar found: the grammar's part."""
        raise NotImplementedError

    def drain(self, sign: str, out: Out) -> None:
        """Run what reads a `>(...)`, with what was written there."""
        if (body := self.sinks.pop(sign, None)) is not None:
            self.isolated(body, out)

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

    def turns(self, body: Seq, stdin: Out | None) -> list[Out]:
        """Run a loop's body as often as it takes to see what a turn makes of the one before: twice,
        if it changes variables."""
        before = dict(self.variables.values)
        outs = self.branches([body], stdin, is_complete=False)
        if self.variables.values != before:
            outs += self.branches([body], stdin, is_complete=False)
        return [self.blurred(out) for out in outs]

    def together(self, outs: list[Out]) -> Out:
        """Join what several print."""
        text = "".join(out.text for out in outs)
        commands = [place for out in outs for place in out.commands]
        if len(text) > 4 * MAX_VALUE:
            self.budget.spend(len(text))
            text = self.unknowns.make((), commands)
        return Out(text, commands[-8:])

    def copied(self) -> Variables:
        """Copy the variables; that is work too."""
        self.budget.spend(8 * len(self.variables.values))
        return self.variables.copy()

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

    def blurred(self, out: Out) -> Out:
        """Return an output that is printed again and again."""
        return Out(self.unknowns.make((), out.commands[:4]), out.commands) if out.text else out

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
