"""Paths that a person gives to a command: files to read, folders to work in.

`-` is standard input wherever a file is read (`./-` is a file of that name), and an error where a
folder is meant. An empty text, as from an unset shell variable, is an error everywhere: for
`pathlib` it is the working directory.
"""

import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer

from fmqcore.errors import InvalidArgument

STANDARD_INPUT: Final = Path("-")
_LOADS: Final = {".toml": tomllib.loads, ".json": json.loads}


def file_to_read(text: str) -> Path:
    """Return a file's path, or `STANDARD_INPUT`."""
    if not text:
        raise typer.BadParameter("the file's name is empty: name one, or - for standard input")
    if text == "-":
        return STANDARD_INPUT
    path = Path(text)
    return path.absolute() if path == STANDARD_INPUT else path  # `./-` is a file


def only_file(files: Sequence[Path]) -> Path:
    """Return the one file of an option. Raises `InvalidArgument` if it is given twice."""
    if len(files) > 1:
        names = ", ".join(map(name_of, files))
        raise InvalidArgument(f"--file is given {len(files)} times ({names}): run once for each")
    return files[0]


def folder(text: str) -> Path:
    """Return a folder's path."""
    if not text:
        raise typer.BadParameter("the folder's name is empty: name one, or . for this one")
    if text == "-":
        raise typer.BadParameter(
            "a folder is needed, - is standard input or output (a folder of that name: ./-)"
        )
    return Path(text)


def name_of(file: Path) -> str:
    """Return the file's name for messages."""
    return "standard input" if file == STANDARD_INPUT else str(file)


def require_input() -> None:
    """Raise `InvalidArgument` if the parent process closed standard input (`<&-`)."""
    if sys.stdin is None:
        raise InvalidArgument("standard input is closed: name a file")


def read_table(file: Path, what: str) -> dict[str, Any]:
    """Return the table in a .toml or .json file; standard input may hold either.

    `what` names the kind of file in messages. Raises `InvalidArgument`.
    """
    name = name_of(file)
    loads = _LOADS.get(file.suffix)
    if loads is None and file != STANDARD_INPUT:
        raise InvalidArgument(f"{name}: a {what} file ends in .toml or .json")
    try:
        text = _text(file)
        if loads is None:
            loads = json.loads if text.lstrip().startswith("{") else tomllib.loads
        data = loads(text)
    except RecursionError:
        raise InvalidArgument(f"{name}: is nested too deep") from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{name}: {unreadable(error)}") from None
    if not isinstance(data, dict):
        raise InvalidArgument(f"{name}: holds no table")
    return data


def _text(file: Path) -> str:
    if file != STANDARD_INPUT:
        return file.read_text()
    require_input()
    return sys.stdin.buffer.read().decode()


def unreadable(error: OSError | ValueError) -> str:
    """Return why a file of settings cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"is no text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
