"""Shared by the commands of `fmq`: options, the client, the loop, results, exit codes.

Data goes to standard output, messages to standard error. A user sees a stack trace only with
`--debug` (or FMQ_DEBUG=1): every failure is one line, and an exit code:

    0 done   1 it did not work, or its output could not be written   64 wrong usage
    69 no broker answers, or `consume -e` does not reach the end   129 its terminal closed
    130 interrupted   141 no reader for the output   143 terminated
"""

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import typer

from fmqadapters.process.signals import ending_signals
from fmqcli.given_names import text_parser
from fmqcli.stdio.reader_watch import ReaderWatch
from fmqclient.address import DEFAULT_PORT, DEFAULT_URL
from fmqclient.settings import Start
from fmqcore.error_spec import EXIT_FAILED, EXIT_UNAVAILABLE, EXIT_USAGE, spec_of
from fmqcore.errors import FmqError, InvalidArgument
from fmqport.transport import TransportError

T = TypeVar("T")

FAILED: Final = EXIT_FAILED
USAGE: Final = EXIT_USAGE
UNAVAILABLE: Final = EXIT_UNAVAILABLE
INTERRUPTED: Final = 130
NO_READER: Final = 141
TERMINATED: Final = 143
HUNG_UP: Final = 129


class NotWritten(OSError):
    """Standard output could not be written: a full disk, a closed descriptor."""

    def __init__(self, error: OSError) -> None:
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        super().__init__(
            f"standard output could not be written: {reason}; what is there is not all"
        )


class Output(Enum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Brokers = Annotated[
    str,
    typer.Option(
        "--brokers",
        "-b",
        envvar="FMQ_BROKERS",
        metavar="URL",
        parser=text_parser("address of the brokers"),
        help="fmq://host:port[,host:port...]",
    ),
]
BROKERS: Final = DEFAULT_URL
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="how to print results")]


class Terminated(BaseException):
    """SIGTERM came, or SIGHUP: the terminal was closed."""

    def __init__(self, code: int = TERMINATED) -> None:
        super().__init__(code)
        self.code = code


class ReaderGone(Exception):
    """Standard output has no reader any more: `fmq ... | head` has seen enough."""


def talk(text: str) -> None:
    """Print a message for the person at the terminal."""
    sys.stderr.write(f"fmq: {text}\n")
    sys.stderr.flush()


def counted(number: int, what: str) -> str:
    """Return `1 message`, `2,000 messages`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def exit_code(error: BaseException) -> int | None:
    """Return the exit code of an expected error; None: a bug in FMQ."""
    if isinstance(error, TransportError):
        return UNAVAILABLE
    if isinstance(error, FmqError):
        return spec_of(error).exit_code
    return FAILED if isinstance(error, OSError) else None


def run(work: Callable[[], Coroutine[Any, Any, T]], *, while_read: bool = False) -> T:
    """Run a command's coroutine and return its result.

    Ctrl-C, SIGTERM and SIGHUP cancel it, so that it ends in order. SIGHUP is left alone if it was
    ignored at the start: `nohup` does that.

    `while_read`: the end of the last reader of the output cancels it too, with `ReaderGone`.
    """
    return asyncio.run(_terminable(work, while_read=while_read))


async def _terminable(work: Callable[[], Coroutine[Any, Any, T]], *, while_read: bool) -> T:
    task = asyncio.ensure_future(work())
    endings: list[BaseException] = []

    def end(ending: BaseException) -> None:
        endings.append(ending)
        task.cancel()

    def hang_up() -> None:
        # The kernel and the shell both send it: the second must not end the clean-up.
        if not endings:
            end(Terminated(HUNG_UP))

    loop = asyncio.get_running_loop()
    numbers = ending_signals()
    loop.add_signal_handler(signal.SIGTERM, end, Terminated())
    if signal.SIGHUP in numbers:
        loop.add_signal_handler(signal.SIGHUP, hang_up)
    reader = ReaderWatch(sys.stdout.fileno(), partial(end, ReaderGone())) if while_read else None
    try:
        return await task
    except asyncio.CancelledError:
        if endings:
            raise endings[0] from None
        task.cancel()
        await asyncio.wait([task])
        raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        if reader is not None:
            reader.stop()


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` beside the block, and cancel it at the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def confirm(question: str, refused: str = "nothing was done") -> None:
    """Ask the person at the terminal; unless the answer is yes, print `refused` and exit."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        answer = "no text at all"
    if not answer:
        sys.stderr.write("\n")
        raise InvalidArgument(
            "standard input ended without an answer: give --yes to proceed without being asked"
        )
    if answer.strip().lower() not in ("y", "yes"):
        talk(refused)
        raise typer.Exit(FAILED)


@asynccontextmanager
async def client(url: str) -> "AsyncIterator[Any]":
    """Yield a connected client, named `fmq` in the brokers' lists."""
    import fmqclient  # only now: `fmq --help` needs no gRPC

    async with fmqclient.connect(_known(url), timeout_s=3, name="fmq") as connected:
        yield connected


def _known(url: str) -> str:
    """Add the brokers of a `fmq dev` cluster to the default URL, if that names one of them.

    The default broker may be the very one that was killed to see what happens.
    """
    if url != DEFAULT_URL:
        return url
    from fmqdev.cluster_plan import broker_ports, state_folder

    try:
        ports = broker_ports(state_folder("dev"))
    except InvalidArgument:  # there is no home directory
        return url
    others = "".join(f",127.0.0.1:{p}" for p in ports if p != DEFAULT_PORT)
    return url + others if DEFAULT_PORT in ports else url


def write(data: bytes) -> None:
    """Write data to standard output, at once. Raises `ReaderGone`, `NotWritten`."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except NotWritten:
        raise
    except OSError as error:
        raise NotWritten(error) from None


def discard_output() -> None:
    """Redirect the closed standard output, so that nothing tries to write to it at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(output: Output, columns: Sequence[str], rows: Iterable[Sequence[Any]], data: Any) -> None:
    """Print rows as a table, or `data` as JSON."""
    if output is Output.JSON:
        write(json.dumps(data, indent=2, default=str).encode() + b"\n")
        return
    from fmqcli.output.tables import table

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    header, *lines = table(columns, rows, width)
    if terminal and os.environ.get("TERM", "dumb") != "dumb":
        header = f"\x1b[1m{header}\x1b[0m"
    write("".join(f"{line}\n" for line in (header, *lines)).encode())


def moment(text: str) -> Start:
    """Parse `earliest`, `latest`, an ISO 8601 time (local without a zone), or milliseconds."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is neither 'earliest' nor 'latest', nor a time like 2026-01-31T12:00, "
            "nor milliseconds since 1970 UTC"
        ) from None
