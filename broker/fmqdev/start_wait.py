"""Waits for a cluster's start as long as it makes progress, and not for ever.

A step is something that was not seen before: a new line in a log (figures aside), another reason
why the cluster is not ready, or processor time of a process that has not logged anything yet. A
line that is logged again at each attempt is no step.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import psutil

from fmqcore.errors import Unavailable

IDLE_S: Final = 60.0
"""Seconds without a step after which a start has failed."""
MOST_S: Final = 600.0
"""Seconds that a start may take in all."""
QUIET_S: Final = 5.0
"""Seconds after which the wait reports what is missing."""
_POLL_S: Final = 0.05
_FIGURES: Final = re.compile(r"\S*\d\S*")


class ClusterFailed(Unavailable):
    """The cluster is not ready in time; the message names the process and its log."""


class Steps:
    """The steps of processes, from their logs and their processor time."""

    def __init__(self) -> None:
        self._logs: dict[Path, int] = {}  # read so far
        self._silent: dict[Path, int] = {}  # processes that have logged nothing yet

    def follow(self, log: Path, pid: int) -> None:
        """Count the steps of a process just started; what its log holds by now does not count."""
        self._logs[log] = log.stat().st_size if log.exists() else 0
        self._silent[log] = pid

    def seen(self) -> Iterator[str]:
        """Yield what the processes did since the last call."""
        for log, at in self._logs.items():
            with suppress(OSError), log.open("rb") as file:
                file.seek(at)
                lines = file.read()
                self._logs[log] = at + len(lines)
                for line in lines.decode(errors="replace").splitlines():
                    self._silent.pop(log, None)
                    yield f"{log}: {_FIGURES.sub('', line)}"
        for log, pid in self._silent.items():
            with suppress(psutil.Error):
                yield f"{log}: {psutil.Process(pid).cpu_times().user:.0f} s"


class StartWait:
    """One wait; `report` gets a line whenever something else is missing."""

    def __init__(
        self,
        steps: Steps,
        report: Callable[[str], object],
        idle_s: float = IDLE_S,
        most_s: float = MOST_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._steps = steps
        self._report = report
        self._idle_s = idle_s
        self._most_s = most_s
        self._clock = clock
        self._seen = set[str]()
        self._reported = ""
        self._start_s = self._step_s = clock()

    async def until(self, missing: Callable[[], Awaitable[str]]) -> None:
        """Wait until nothing is missing. Raises `ClusterFailed` with what is."""
        lacking = ""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    lacking = await missing()
            except TimeoutError:
                lacking = lacking or "nothing answers"
            if not lacking:
                return
            if reason := self.over(lacking):
                raise ClusterFailed(f"{reason}: {lacking}")
            await asyncio.sleep(_POLL_S)

    def over(self, lacking: str) -> str:
        """Take what is missing now; return why the wait is over, "" if it goes on."""
        now_s = self._clock()
        new = {*self._steps.seen(), _FIGURES.sub("", lacking)} - self._seen
        if new:
            self._seen |= new
            self._step_s = now_s
        if lacking != self._reported and now_s - self._start_s >= QUIET_S:
            self._reported = lacking
            self._report(f"waiting: {lacking}")
        if now_s - self._start_s >= self._most_s:
            return f"not ready after {self._most_s:g} s"
        if now_s - self._step_s >= self._idle_s:
            return f"not ready, and no progress for {self._idle_s:g} s"
        return ""
