"""A wake-up: tasks wait for "something changed", and many changes make one wake-up.

Not a queue and not a lock: a waiter must look at the state itself before and after. Leaves
nothing behind when a waiter is cancelled.
"""

import asyncio


class Signal:
    """`notify` wakes all who wait now. Looking and waiting in one step of the loop is race-free."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake every waiter; costs nothing when there is none."""
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


async def wait_any(*signals: Signal, timeout_s: float | None = None) -> None:
    """Wait for the next `notify` of any of them, or until the time is out: one future, no task."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, waiter)
    for each in signals:
        each._waiters.add(waiter)
    try:
        await waiter
    finally:
        for each in signals:
            each._waiters.discard(waiter)
        if timer is not None:
            timer.cancel()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
