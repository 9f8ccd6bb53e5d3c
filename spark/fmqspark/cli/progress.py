"""Show how far a long job is, on standard error.

A terminal gets one line that is overwritten, a pod's log or a file plain lines now and then. Leaves
nothing on disk.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 30.0
"""Seconds between two plain lines; a job that is shorter has none."""


def progress(what: str, now_s: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """Return a callback for how many segments are done, of how many; `what`: was done to them."""
    if sys.stderr.isatty():
        return lambda done, of: _write_over(f"{what} {done} of {of} segments", last=done == of)
    reported_s = now_s()

    def report(done: int, of: int) -> None:
        nonlocal reported_s
        if done < of and now_s() - reported_s >= INTERVAL_S:
            reported_s = now_s()
            sys.stderr.write(f"{what} {done} of {of} segments\n")
            sys.stderr.flush()

    return report


def _write_over(text: str, *, last: bool) -> None:
    sys.stderr.write(f"\r{text}\x1b[K" + ("\r" if last else ""))
    sys.stderr.flush()
