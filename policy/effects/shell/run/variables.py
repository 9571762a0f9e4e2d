"""The variables of a shell, and what every shell sets."""

from policy.effects.shell.variable_names import OWN_NAME

Value = str | list[str]


class Variables:
    """The variables of a shell, and its arguments; None as arguments where they are not known."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.noted: set[str] = set()
        """What was set other than by an assignment, as by a loop, if programs may read it; of all
        copies together."""
        self.exported: set[str] = set()
        self.arguments: list[str] | None = []

    def copy(self, *, is_child: bool = False) -> "Variables":
        """Copy them; a child process has the exported ones alone, and begins in the same folder."""
        new = Variables()
        new.values = (
            {name: self.values[name] for name in (*self.exported, "PWD") if name in self.values}
            if is_child
            else dict(self.values)
        )
        new.exported = set(self.exported)
        new.arguments = self.arguments
        new.noted = self.noted
        return new

    def set(self, name: str, value: Value) -> None:
        """Set a variable, other than by an assignment."""
        self.values[name] = value
        self.note(name)

    def note(self, *names: str) -> None:
        """Note that variables are set."""
        self.noted.update(name for name in names if not OWN_NAME.fullmatch(name))
