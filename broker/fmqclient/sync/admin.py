"""The admin for programs without asyncio (`sync/client.py`)."""

import asyncio
from typing import Any

from fmqclient.admin.client import Admin as AsyncAdmin
from fmqclient.sync.loop_thread import LoopThread


class Admin:
    """See `fmqclient.admin.client.Admin`: the same methods, blocking."""

    def __init__(self, loop: LoopThread, admin: AsyncAdmin) -> None:
        self._loop = loop
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._admin, name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(name)

        def call(*args: Any, **options: Any) -> Any:
            return self._loop.run(method(*args, **options))

        call.__name__, call.__doc__ = name, method.__doc__
        return call
