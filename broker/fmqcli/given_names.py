"""Names and addresses that a person gives to a command.

An empty text, as from an unset shell variable, is an error everywhere: an option that is left out
means every topic, the cluster of the file, or another default.
"""

from collections.abc import Callable
from typing import Any

import typer

from fmqcore.names import is_name, no_name


def name_option(what: str, help: str, *flags: str, metavar: str = "NAME") -> Any:
    """Return an option that names a `what`; without flags, its parameter has the flag's name."""
    return typer.Option(*flags, metavar=metavar, parser=name_parser(what), help=help)


def text_option(what: str, help: str, *flags: str, metavar: str) -> Any:
    """Return an option that may be left out, but not be empty: an address."""
    return typer.Option(*flags, metavar=metavar, parser=text_parser(what), help=help)


def name_parser(what: str) -> Callable[[str], str]:
    """Return the parser of an option or argument that names a `what`."""

    def parse(text: str) -> str:
        if not is_name(text):
            raise typer.BadParameter(no_name(what, text))
        return text

    return parse


def text_parser(what: str) -> Callable[[str], str]:
    """Return the parser of an option that may be left out, but not be empty: an address."""

    def parse(text: str) -> str:
        if not text:
            raise typer.BadParameter(f"the {what} is empty: give one, or leave the option out")
        return text

    return parse
