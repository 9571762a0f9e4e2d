"""The options of the commands on the record: the filters of `db.filters`, and options that several
commands share."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from db.filters import Asked, Filter, filters_of
from sluice.times import FORMS

Given = list[tuple[str, str]]
Chosen = Sequence[tuple[str, str]]
"""Filters that were given. A command with such a parameter `chosen` has options in its place
(`with_filters`)."""
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Go on with what is new, the newest last, until Ctrl-C; a call when it has ended.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def with_filters(asked: Asked) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each filter, in the place of its parameter `chosen`."""
    options = [_option(one) for one in filters_of(asked)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command)
        parameters = [
            p
            for one in own.parameters.values()
            for p in (options if one.name == "chosen" else [one])
        ]

        @wraps(command)
        def called(**arguments: Any) -> None:
            given = {option.name: arguments.pop(option.name) for option in options}
            command(chosen=[(name, value) for name, value in given.items() if value], **arguments)

        called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


def _option(one: Filter) -> Parameter:
    names = [f"--{one.name.replace('_', '-')}", *(["--call"] if one.name == "call_id" else [])]
    values = list(one.values)
    told = typer.Option(
        *names,
        help=one.help.format(forms=FORMS),
        show_default=bool(one.default),
        metavar="NUMBER" if one.name == "limit" else None,
        autocompletion=(lambda: values) if values else None,
    )
    return Parameter(
        one.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=one.default,
        annotation=Annotated[str, told],
    )
