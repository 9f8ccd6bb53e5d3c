"""Report every failure of a job as one line on standard error and an exit code.

No failure is a traceback; `FMQ_DEBUG=1` shows one.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import typer

from fmqadapters.process.signals import ending_signals
from fmqcore.errors import (
    CorruptJournal,
    DirectoryLocked,
    FmqError,
    InvalidArgument,
    Unavailable,
)
from fmqspark.check.job import INCOMPLETE, INCONSISTENT

USAGE: Final = 64
UNAVAILABLE: Final = 69
INTERRUPTED: Final = 130


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: a job ends as by Ctrl-C, with its own exit code."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.code = 128 + number


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `Terminated` in the main thread within the context.

    By default they would end this process at once, and its pool's semaphores and folders would stay
    behind, with a warning. An inherited `nohup` stays.
    """

    def end(number: int, _: object) -> None:
        if number == signal.SIGHUP:  # kernel and shell both send it: once is enough
            signal.signal(number, signal.SIG_IGN)
        raise Terminated(number)

    before = [(number, signal.signal(number, end)) for number in ending_signals()]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def errors_reported() -> Iterator[None]:
    """Turn every failure into one line and an exit code, here and under `fmq`."""
    try:
        yield
    except Terminated as ended:
        raise typer.Exit(ended.code) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(INCOMPLETE) from None
    except (FmqError, OSError) as error:
        if os.environ.get("FMQ_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        say(sentence(error))
        raise typer.Exit(exit_code(error)) from None
    except Exception as error:  # noqa: BLE001  # a mistake of ours is one line, and no verdict
        if os.environ.get("FMQ_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        say(mistake(error))
        raise typer.Exit(INCOMPLETE) from None


def mistake(error: Exception) -> str:
    """Return a line about a bug in this program: what a person needs to report it."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} in {Path(where.filename).name} line {where.lineno}: {error}"
    return f"a mistake of this program ({place}); FMQ_DEBUG=1 shows more, please report it"


def sentence(error: Exception) -> str:
    """Return what went wrong, and where."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def exit_code(error: Exception) -> int:
    """Return the exit code of a job that could not do its work."""
    if isinstance(error, InvalidArgument):
        return USAGE
    if isinstance(error, CorruptJournal):
        return INCONSISTENT
    return UNAVAILABLE if isinstance(error, Unavailable | DirectoryLocked) else INCOMPLETE


def write(text: str) -> None:
    """Write data to standard output. Raises `OSError`: without the data there is no verdict."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output could not be written: it is closed")
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a folder whose name is no text, a terminal that knows ASCII alone
        encoding = sys.stdout.encoding or "ascii"
        text = os.fsencode(text).decode(errors="backslashreplace")
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def say(text: str) -> None:
    """Write a message to standard error."""
    sys.stderr.write(f"fmq job: {text}\n")
    sys.stderr.flush()
    leave(text)


def leave(text: str) -> None:
    """Append text to the file `FMQ_LAST_WORDS`, if set: a container's termination log."""
    if path := os.environ.get("FMQ_LAST_WORDS"):
        line = "; ".join(line.strip() for line in text.splitlines())
        with suppress(OSError), open(path, "a", errors="backslashreplace") as file:
            file.write(f"{line}\n")
