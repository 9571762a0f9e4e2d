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
    options = [_option(filter_) for filter_ in filters_of(asked)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command_signature = signature(command)
        parameters = [
            p
            for parameter in command_signature.parameters.values()
            for p in (options if parameter.name == "chosen" else [parameter])
        ]

        @wraps(command)
        def called(**arguments: Any) -> None:
            values = {option.name: arguments.pop(option.name) for option in options}
            command(chosen=[(name, value) for name, value in values.items() if value], **arguments)

        called.__signature__ = command_signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


def _option(filter_: Filter) -> Parameter:
    names = [
        f"--{filter_.name.replace('_', '-')}",
        *(["--call"] if filter_.name == "call_id" else []),
    ]
    values = list(filter_.values)
    typer_option = typer.Option(
        *names,
        help=filter_.help.format(forms=FORMS),
        show_default=bool(filter_.default),
        metavar="NUMBER" if filter_.name == "limit" else None,
        autocompletion=(lambda: values) if values else None,
    )
    return Parameter(
        filter_.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=filter_.default,
        annotation=Annotated[str, typer_option],
    )
