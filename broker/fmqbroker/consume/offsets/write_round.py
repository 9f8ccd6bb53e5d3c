"""Progress entries that are gathered and written together, and their waiters. No I/O."""

from fmqbroker.runtime.notifier import Signal
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.errors import FmqError


class Round:
    """One planned write; only the first `settle` counts."""

    def __init__(self) -> None:
        self.entries = ProgressTable()
        self._stored = Signal()
        self.settled = False
        self._error: FmqError | None = None

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
