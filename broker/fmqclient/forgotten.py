"""Objects that are opened once: a second opening is refused, a forgotten close gives a warning.

An unclosed producer may lose what it holds; an unclosed consumer keeps its queues from the other
members of the group until the brokers miss it. Neither raises an error anywhere.
"""

import logging
import sys
import warnings
from types import TracebackType

from fmqcore.errors import InvalidArgument

_log = logging.getLogger("fmqclient")


def warn_of_forgotten(what: str, source: object) -> None:
    """Warn that `what` was never closed. Called from `__del__`, so it never raises."""
    text = f"{what} was never closed: use `async with` (or `with`), or call close()"
    try:
        _log.warning("%s", text)
        warnings.warn(text, ResourceWarning, stacklevel=3, source=source)
    except Exception as error:  # noqa: BLE001 - logging is half gone when the interpreter ends
        if not sys.is_finalizing():
            _log.debug("a warning was not given: %r", error)


class MustBeClosed:
    """Closed by `async with`; warns once if it, or its client, goes before it was closed."""

    _unclosed = False
    _opened = False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End what it runs; a second call does nothing."""
        raise NotImplementedError

    def __del__(self) -> None:
        self._warn_if_unclosed()

    def _described(self) -> str:
        raise NotImplementedError

    def _open_once(self) -> None:
        """Note the opening of this object; raise `InvalidArgument` at a second one.

        An object that was closed or has failed never works again: it would wait for ever.
        """
        if self._opened:
            raise InvalidArgument(
                f"{self._described()} was opened before, and each is opened once: make another one"
            )
        self._opened = True

    def _warn_if_unclosed(self) -> None:
        """Warn if it is still open: it cannot be closed any more."""
        if self._unclosed:
            self._unclosed = False
            warn_of_forgotten(self._described(), self)
