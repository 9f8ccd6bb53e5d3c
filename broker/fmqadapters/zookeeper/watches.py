"""Keep watches alive: ZooKeeper's fire once, these report for as long as they are wanted.

A watch is armed first and reports after that: a later change fires again, so none is missed, and a
reader called by the watch sees the newest state. Many events in between make one call. Independent
of kazoo.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final

AT_ONCE: Final = 100
"""Watches that are armed at the same time: other requests of the session come in between."""


class Watch:
    """One watched path. `fire` may be called again and again."""

    __slots__ = ("_owner", "changed", "path")

    def __init__(self, owner: "Watches", path: str, changed: Callable[[], None]) -> None:
        self._owner = owner
        self.path = path
        self.changed = changed

    def fire(self) -> None:
        """Arm again, then report, because something may have changed."""
        self._owner.fired(self)


class Watches:
    """All watches of one session. Touched on the loop alone."""

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}
        self._dirty: dict[Watch, None] = {}  # to be armed, in this order
        self._wake = asyncio.Event()

    def add(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Start watching; `changed` is called once soon, too. Return a function that stops it."""
        watch = Watch(self, path, changed)
        self._watches[watch] = self._dirty[watch] = None
        self._wake.set()

        def stop() -> None:
            self._watches.pop(watch, None)
            self._dirty.pop(watch, None)

        return stop

    def fired(self, watch: Watch) -> None:
        """Note that the watch is to be armed again."""
        if watch in self._watches:
            self._dirty[watch] = None
            self._wake.set()

    def all_fired(self) -> None:
        """Arm all watches again: on a new connection the server has forgotten them."""
        self._dirty |= self._watches
        self._wake.set()

    def clear(self) -> None:
        """Stop all watches."""
        self._watches.clear()
        self._dirty.clear()

    async def run(self, arm: Callable[[Watch], Awaitable[bool]]) -> None:
        """Arm new and fired watches, then report, until cancelled.

        `arm` returns whether the watch is armed; if not, an `all_fired` follows later.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._dirty:
                part = list(islice(self._dirty, AT_ONCE))
                for watch in part:
                    del self._dirty[watch]
                await asyncio.gather(*(self._keep(watch, arm) for watch in part))

    async def _keep(self, watch: Watch, arm: Callable[[Watch], Awaitable[bool]]) -> None:
        if await arm(watch) and watch in self._watches:
            watch.changed()
