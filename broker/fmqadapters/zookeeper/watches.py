"""Keeps watches alive: ZooKeeper's fire once, ours tell for as long as they are wanted.

A watch is armed first and tells after that: what changes later fires again, so nothing is missed
and a reader called by it sees the newest. Many events in between make one call. Knows no kazoo.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Watch:
    """One path that somebody wants to hear about; `fire` may be called again and again."""

    __slots__ = ("_owner", "changed", "dirty", "path")

    def __init__(self, owner: "Watches", path: str, changed: Callable[[], None]) -> None:
        self._owner = owner
        self.path = path
        self.changed = changed
        self.dirty = True

    def fire(self) -> None:
        """Something may have changed: arm again, then tell."""
        self._owner.fired(self)


class Watches:
    """All watches of one session. Touched on the loop alone."""

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}
        self._wake = asyncio.Event()

    def add(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Start watching; `changed` is called once soon, too. Returns the way to stop."""
        watch = Watch(self, path, changed)
        self._watches[watch] = None
        self._wake.set()

        def stop() -> None:
            self._watches.pop(watch, None)

        return stop

    def fired(self, watch: Watch) -> None:
        """This one is to be armed again."""
        if watch in self._watches:
            watch.dirty = True
            self._wake.set()

    def all_fired(self) -> None:
        """The server has forgotten them all: a new connection."""
        for watch in self._watches:
            watch.dirty = True
        self._wake.set()

    def clear(self) -> None:
        """Nobody wants any of them any more."""
        self._watches.clear()

    async def run(self, arm: Callable[[Watch], Awaitable[bool]]) -> None:
        """Arm what is new or has fired, then tell, until cancelled.

        `arm` returns whether it is armed; if not, there will be an `all_fired` later.
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
