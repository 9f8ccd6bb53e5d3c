"""A wedged event loop beside a live ZooKeeper session.

Only the main thread is frozen, by ptrace (`e2e.chaos.freeze`), so kazoo's threads go on: the broker
looks alive to ZooKeeper and answers no client, until its adapter lets the session go (ADR 16). No
code of the product helps. The broker must have lost its lease when it wakes.
"""

import asyncio
import subprocess
import sys

from e2e.chaos import freeze
from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind


class WedgeMaster(Fault):
    """The master's event loop stands still while its other threads go on."""

    name = "wedge-master"
    what = "a master's event loop stands still while its other threads go on"
    kind = FaultKind.WEDGE
    needs = ("ptrace",)

    def __init__(self) -> None:
        super().__init__()
        self._freezer: subprocess.Popen[bytes] | None = None

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        session = await stage.cluster.session_of(master)
        self._freezer = subprocess.Popen(
            [sys.executable, freeze.__file__, str(stage.cluster.pid(master))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._freezer.stdout is not None
        if await asyncio.to_thread(self._freezer.stdout.readline) != b"frozen\n":
            raise NotFired(f"the event loop of {master} could not be frozen")
        await stage.until(
            lambda: not stage.watch.latest[master].mode, f"{master} answers no request"
        )
        if session == 0:
            raise NotFired(f"{master} had no ZooKeeper session to expire")
        slave = await stage.taken_over(group)  # the adapter lets a wedged loop's session go
        return f"wedged {master}, its other threads went on; {slave} took the reads over"

    async def heal(self, stage: Stage) -> None:
        """Let the event loop go on."""
        if self._freezer is not None:
            self._freezer.communicate()
