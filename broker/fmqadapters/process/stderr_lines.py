"""Whole lines on standard error, for writers that must never wait for a reader.

A collector or a terminal that stops reading fills the pipe, and the next write would hold the
event loop for as long as that lasts: a master would lose its lease over a log line. Here a line is
written at once while there is room. Else it waits in a backlog of `BACKLOG_BYTES`, which a thread
writes out; lines beyond it are dropped, and one line reports how many.
"""

import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

BACKLOG_BYTES: Final = 1024 * 1024
"""Maximum bytes that wait for the reader."""


class StderrLines:
    """Writes lines in their order. Any thread may call it; no call waits, but `flush`."""

    def __init__(self, describe_dropped: Callable[[int], str]) -> None:
        """`describe_dropped` returns the line that reports a number of dropped lines."""
        self._describe_dropped = describe_dropped
        self._lock = threading.Lock()
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None  # there while there is a backlog

    def write(self, line: str) -> None:
        """Write the line, now or later, or lose it: a full disk loses it, too."""
        data = f"{line}\n".encode(errors="backslashreplace")
        try:
            fd = sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):  # closed, or a buffer of a test
            with suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(f"{line}\n")
            return
        with self._lock:
            if self._thread is None:
                data = _write_what_fits(fd, data)
            if data:
                self._keep(fd, data)

    def flush(self, timeout_s: float) -> None:
        """Wait until the backlog is written, for at most `timeout_s` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _keep(self, fd: int, data: bytes) -> None:
        if self._thread is not None and self._backlog_bytes + len(data) > BACKLOG_BYTES:
            self._dropped += 1
            return
        self._report_dropped()
        self._append(data)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_backlog, args=(fd,), name="stderr", daemon=True
            )
            self._thread.start()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._append(f"{self._describe_dropped(self._dropped)}\n".encode())
            self._dropped = 0

    def _append(self, data: bytes) -> None:
        self._backlog.append(data)
        self._backlog_bytes += len(data)

    def _write_backlog(self, fd: int) -> None:
        while True:
            with self._lock:
                if not self._backlog:
                    self._report_dropped()
                if not self._backlog:
                    self._thread = None
                    return
                data = self._backlog[0]
            _write_all(fd, data)
            with self._lock:
                self._backlog.popleft()
                self._backlog_bytes -= len(data)


def _write_what_fits(fd: int, data: bytes) -> bytes:
    """Write without waiting; return what there was no room for. A failed write loses the rest."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    try:
        # POSIX: a pipe that polls as writable takes PIPE_BUF bytes at once.
        while data and poll.poll(0):
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
    except BlockingIOError:  # somebody made the descriptor non-blocking
        return data
    except OSError:
        return b""
    return data


def _write_all(fd: int, data: bytes) -> None:
    """Write all, waiting for the reader. A failed write loses the rest."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    with suppress(OSError):
        while data:
            poll.poll()
            with suppress(BlockingIOError):
                data = data[os.write(fd, data) :]
