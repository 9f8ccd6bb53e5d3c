"""Standard output and standard error, for every writer: click, rich, a broker's log, Python.

A failed write to standard output is reported as such: data are missing. A failed write to standard
error is dropped: a full disk below a log, or a reader that has gone, must not end what the log is
about. A non-blocking descriptor (some programs set that on a terminal or a pipe, and then it is so
for all who share it) is waited for, as if it blocked. Leaves nothing on disk.
"""

import io
import os
import select
import sys
from typing import Any

from fmqcli.common import NotWritten


class Output(io.FileIO):
    """Standard output. `write` raises `NotWritten`, or `BrokenPipeError` without a reader."""

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        try:
            while (count := super().write(data)) is None:
                wait_for(self.fileno(), select.POLLOUT)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise NotWritten(error) from None
        return count


class Talk(io.FileIO):
    """Standard error. `write` never fails."""

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        try:
            while (count := super().write(data)) is None:
                wait_for(self.fileno(), select.POLLOUT)
        except OSError:
            return memoryview(data).nbytes
        return count


def stand_in() -> None:
    """Replace Python's own standard output and standard error by these.

    If the parent process closed standard output (`fmq ... >&-`), writing to it fails, as it would;
    writing to a closed standard error does not.
    """
    error = sys.stderr
    if error is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the exit
    else:
        talk = io.BufferedWriter(Talk(error.fileno(), "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(talk, error.encoding, error.errors, line_buffering=True)
    out = sys.stdout
    fd = os.open(os.devnull, os.O_RDONLY) if out is None else out.fileno()
    data = io.BufferedWriter(Output(fd, "wb", closefd=False))
    encoding, errors = (out.encoding, out.errors) if out is not None else ("utf-8", "strict")
    sys.stdout = io.TextIOWrapper(data, encoding, errors, line_buffering=os.isatty(fd))


def wait_for(fd: int, event: int) -> None:
    """Wait until `fd` can be read (POLLIN) or written (POLLOUT), or its other end has gone."""
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()
