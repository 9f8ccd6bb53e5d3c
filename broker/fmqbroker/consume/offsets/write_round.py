"""Progress entries that are gathered and written at once, and who waits for that. No I/O."""

from fmqbroker.runtime.notifier import Signal
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.errors import FmqError


class Round:
    """One write to be; `settle` it once."""

    def __init__(self) -> None:
        self.entries = ProgressTable()
        self._stored = Signal()
        self.settled = False
        self._error: FmqError | None = None

    def settle(self, error: FmqError | None = None) -> None:
        """Stored, or failed."""
        if not self.settled:
            self.settled, self._error = True, error
            self._stored.notify()

    def check(self) -> None:
        """Raise what it failed with, if it has."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Until it is settled; raises what it failed with."""
        while not self.settled:
            await self._stored.wait()
        self.check()
