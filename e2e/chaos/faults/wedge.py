"""A wedged event loop beside a live ZooKeeper session.

The main thread alone is held still by ptrace (`e2e.chaos.freeze`), so kazoo's threads go on and
keep the session: the broker looks alive to ZooKeeper and answers nobody. No code of the product
helps. It must have lost its lease when it wakes.
"""

import asyncio
import subprocess
import sys
from typing import Final

from e2e.chaos import freeze
from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.events import FaultKind

_LOOK_S: Final = 3.0


class WedgeMaster(Fault):
    """See the module."""

    name = "wedge-master"
    what = "a master's event loop stands still while its ZooKeeper session lives"
    kind = FaultKind.WEDGE
    needs = ("ptrace",)

    def __init__(self) -> None:
        super().__init__()
        self._freezer: subprocess.Popen[bytes] | None = None

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        session = await stage.cluster.session_of(master)
        self._freezer = subprocess.Popen(
            [sys.executable, freeze.__file__, str(stage.cluster.pid(master))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._freezer.stdout is not None
        if await asyncio.to_thread(self._freezer.stdout.readline) != b"frozen\n":
            raise NotFired(f"{master} could not be wedged")
        await asyncio.sleep(_LOOK_S)
        if stage.watch.latest[master].mode:
            raise NotFired(f"{master} is wedged and answers")
        if await stage.cluster.session_of(master) != session:
            raise NotFired(f"{master} is wedged, but its session has ended")
        return f"wedged {master}; its ZooKeeper session lives"

    async def heal(self, stage: Stage) -> None:
        """Let it go on."""
        if self._freezer is not None:
            self._freezer.communicate()
