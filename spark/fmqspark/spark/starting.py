"""Capture what Java writes while it starts, and show it only if it matters.

Java and the scripts that start it write to this process's standard output and error: greetings if
all is well, stack traces if not. While Spark starts, both lead here. If it starts, later output
goes where it always went; if not, one line goes into the error message, and all into a file that
the message names. `FMQ_DEBUG=1` lets everything through.
"""

import os
import re
import select
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_OUT: Final = 1
_ERR: Final = 2
_MOST: Final = 1024 * 1024
_LINE: Final = 200
_WAIT_S: Final = 2.0  # for the last words of a Java that has ended
_SAYS_NOTHING: Final = re.compile(
    r"\s*at |\s*\.\.\. |(WARNING|NOTE): |Picked up |Using Spark's |To adjust |Setting |#?\s*$"
    r"|\S+ \S+ (WARN|INFO) |.*Warning: |\s+\w+\(\)$|.*spark-class: line |.*bad array subscript"
    r"|Error occurred during initialization|Error: Could not create the Java Virtual Machine"
    r"|Error: A fatal exception has occurred|Error: A JNI error has occurred"
)
"""Frames, greetings, and lines that only announce the line that matters."""


class _Ear:
    """Replaces a file descriptor and captures what processes started meanwhile write to it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = os.dup(fd)
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.dup2(writer, fd)
        os.close(writer)
        self._words = b""
        self._passes = self._over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def give_back(self) -> None:
        """Restore the descriptor for this process; processes started meanwhile stay captured."""
        os.dup2(self._kept, self._fd)

    def let_through(self, *, all_of_it: bool) -> None:
        """Pass output on from now on; with `all_of_it` also what was captured so far."""
        with self._lock:
            while not self._over and self._output_says(0):  # before now, though not heard yet
                self._over = not self._take()
            self._passes = True
            if all_of_it:
                self._show(self._words)

    def heard(self, wait_s: float = 0) -> str:
        """Return all output, if the processes have ended meanwhile; else what there is."""
        self._thread.join(wait_s)
        with self._lock:
            return self._words.decode(errors="replace")

    def _listen(self) -> None:
        while not self._over and self._output_says(None):
            with self._lock:
                self._over = self._over or not self._take()
        os.close(self._reader)

    def _output_says(self, wait_ms: int | None) -> bool:
        """Return whether output can be read, or the last writer has ended."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        return bool(poll.poll(wait_ms))

    def _take(self) -> bool:
        """Read the next piece, if no other thread has; False: there will be none."""
        try:
            piece = os.read(self._reader, 65536)
        except BlockingIOError:
            return True
        if self._passes:
            self._show(piece)
        elif len(self._words) < _MOST:
            self._words += piece
        return bool(piece)

    def _show(self, piece: bytes) -> None:
        with suppress(OSError):  # no reader is left
            while piece:
                piece = piece[os.write(self._kept, piece) :]


class Start:
    """One start of Spark."""

    def __init__(self) -> None:
        self.failed = False
        self._ears: list[_Ear] = []

    def so_far(self) -> str:
        """Return the output up to now that was not let through."""
        return "".join(ear.heard() for ear in self._ears)

    def words(self) -> str:
        """Return the output after a failure, with its last words."""
        return "".join(ear.heard(_WAIT_S) for ear in self._ears)


@contextmanager
def listening() -> Iterator[Start]:
    """Capture output around the start alone.

    A caller that catches the failure within the context sets `failed`, and asks for the output
    after it.
    """
    start = Start()
    if os.environ.get("FMQ_DEBUG", "") in ("", "0"):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for fd in (_ERR, _OUT):
            with suppress(OSError):  # closed by who started us
                start._ears.append(_Ear(fd))
    try:
        yield start
    except BaseException:
        start.failed = True
        raise
    finally:
        for ear in start._ears:
            ear.give_back()
        if not start.failed:
            for ear in start._ears:
                ear.let_through(all_of_it=ear._fd == _OUT)


def in_short(words: str) -> str:
    """Return the one line that matters most; "" if none does."""
    lines = [line.strip() for line in words.splitlines() if not _SAYS_NOTHING.match(line)]
    return lines[0][:_LINE] if lines else ""


def kept(words: str) -> str:
    """Write all output to a file and return its path; "" if there is none, or that failed."""
    if not words.strip():
        return ""
    with suppress(OSError):
        fd, path = tempfile.mkstemp(prefix="fmq-java-", suffix=".log")
        with open(fd, "w", encoding="utf-8") as file:
            file.write(words)
        return path
    return ""
