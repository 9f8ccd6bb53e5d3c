"""Keep watches alive: ZooKeeper's fire once, these report for as long as they are wanted.

A watch is armed first and reports after that: a later change fires again, so none is missed, and a
reader called by the watch sees the newest state. Many events in between make one call. Independent
of kazoo.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Watch:
    """One watched path. `fire` may be called again and again."""

    __slots__ = ("_owner", "changed", "dirty", "path")

    def __init__(self, owner: "Watches", path: str, changed: Callable[[], None]) -> None:
        self._owner = owner
        self.path = path
        self.changed = changed
        self.dirty = True

    def fire(self) -> None:
        """Arm again, then report, because something may have changed."""
        self._owner.fired(self)


class Watches:
    """All watches of one session. Touched on the loop alone."""

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}
        self._wake = asyncio.Event()

    def add(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Start watching; `changed` is called once soon, too. Return a function that stops it."""
        watch = Watch(self, path, changed)
        self._watches[watch] = None
        self._wake.set()

        def stop() -> None:
            self._watches.pop(watch, None)

        return stop

    def fired(self, watch: Watch) -> None:
        """Note that the watch is to be armed again."""
        if watch in self._watches:
            watch.dirty = True
            self._wake.set()

    def all_fired(self) -> None:
        """Arm all watches again: on a new connection the server has forgotten them."""
        for watch in self._watches:
            watch.dirty = True
        self._wake.set()

    def clear(self) -> None:
        """Stop all watches."""
        self._watches.clear()

    async def run(self, arm: Callable[[Watch], Awaitable[bool]]) -> None:
        """Arm new and fired watches, then report, until cancelled.

        `arm` returns whether the watch is armed; if not, an `all_fired` follows later.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty = [watch for watch in self._watches if watch.dirty]
            await asyncio.gather(*(self._keep(watch, arm) for watch in dirty))

    async def _keep(self, watch: Watch, arm: Callable[[Watch], Awaitable[bool]]) -> None:
        watch.dirty = False
        if await arm(watch) and watch in self._watches:
            watch.changed()
