"""Progress entries that are gathered and written at once, and who waits for that. No I/O."""

from fmqbroker.signal import Signal
from fmqcore.errors import FmqError
from fmqcore.journal.offsets import OffsetEntry, OffsetKey


class Round:
    """One write to be; `settle` it once."""

    def __init__(self) -> None:
        self.entries: dict[OffsetKey, OffsetEntry] = {}
        self._stored = Signal()
        self._settled = False
        self._error: FmqError | None = None

    def settle(self, error: FmqError | None = None) -> None:
        """Stored, or failed."""
        if not self._settled:
            self._settled, self._error = True, error
            self._stored.notify()

    async def wait(self) -> None:
        """Until it is settled; raises what it failed with."""
        while not self._settled:
            await self._stored.wait()
        if self._error is not None:
            raise self._error
