"""Progress entries that are gathered and written together, and their waiters. No I/O."""

from collections.abc import Mapping
from typing import Protocol

from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.errors import FmqError


class Source(Protocol):
    """Acked progress that the store has not accepted yet, taken in pieces; false if empty."""

    def __bool__(self) -> bool:
        """Whether entries wait for the next round."""

    def take(self) -> Mapping[OffsetKey, OffsetEntry]:
        """Take what one turn of the loop may take."""


class Round:
    """One planned write; only the first `settle` counts."""

    def __init__(self) -> None:
        self.entries = ProgressTable()
        self.repeats = False  # writes again what an earlier write had no room for
        self._stored = Signal()
        self.settled = False
        self._error: FmqError | None = None

    @property
    def due(self) -> bool:
        """Whether entries are due to be written."""
        return self.repeats or bool(self.entries)

    def settle(self, error: FmqError | None = None) -> None:
        """Mark the entries as stored, or as failed with `error`, and wake the waiters."""
        if not self.settled:
            self.settled, self._error = True, error
            self._stored.notify()

    def check(self) -> None:
        """Raise the error of a failed write."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait until the write is settled; raise its error if it failed."""
        while not self.settled:
            await self._stored.wait()
        self.check()
