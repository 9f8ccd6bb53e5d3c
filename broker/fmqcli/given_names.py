"""Names and addresses that a person gives to a command.

An empty text, as from an unset shell variable, is an error everywhere: an option that is left out
means every topic, the cluster of the file, or another default.
"""

from collections.abc import Callable

import typer

from fmqcore.names import is_name, no_name


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
