"""A wake-up: tasks wait for "something changed", and many changes make one wake-up.

Not a queue and not a lock: a waiter must check the state itself before and after. A cancelled
waiter leaves nothing behind.
"""

import asyncio
from itertools import count

_number = count().__next__


class Signal:
    """`notify` wakes all current waiters. Check and wait in one step of the loop: no race."""

    __slots__ = ("_waiters", "count")

    def __init__(self) -> None:
        # By number: waiters wake in order of arrival, and each leaves at the same cost.
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self.count = 0  # calls of `notify`: whoever looks in several turns compares it

    def notify(self) -> None:
        """Wake every waiter; costs nothing when there is none."""
        self.count += 1
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters.values():
                _wake(waiter)

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await wait_any(self)


async def wait_any(*signals: Signal, timeout_s: float | None = None) -> None:
    """Wait for the next `notify` of any signal, or the timeout; the caller checks which."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    number = _number()
    for signal in signals:
        signal._waiters[number] = waiter
    timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, waiter)
    try:
        await waiter
    finally:
        for signal in signals:
            signal._waiters.pop(number, None)
        if timer is not None:
            timer.cancel()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
