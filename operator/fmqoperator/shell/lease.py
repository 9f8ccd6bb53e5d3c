"""The operator's Lease: wait for it, keep it, release it at an orderly stop.

See `election.py`. A replica that loses it ends its process: nothing of a former holder goes on by
mistake. Leaves in the cluster: the Lease, in the operator's own namespace.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fmqcore.errors import Unavailable
from fmqoperator.shell.clock import utc_text
from fmqoperator.shell.election import (
    Sight,
    next_step,
    patience_s,
    pause_s,
    released,
    still_held,
)
from fmqoperator.shell.kube import Json, Kube, KubeError, Ref

_log = structlog.get_logger()
_POLL_S = 2.0
_CONFLICT = 409


class LeaseLost(Unavailable):
    """Another replica may work now."""


class Lease:
    """One replica's view of the Lease. `holder` is the holder that was seen last."""

    def __init__(self, kube: Kube, namespace: str, name: str, me: str) -> None:
        self.holder = ""
        self._kube = kube
        self._ref = Ref("Lease", namespace, name)
        self._me = me
        self._seen: Sight | None = None
        self._renewed_s = 0.0
        self._written: Json = {}
        self._complained = ""

    async def acquire(self) -> None:
        """Wait until this replica holds the Lease."""
        reported = ""
        while not await self._try():
            if self.holder != reported:
                reported = self.holder
                _log.info("standing_by", holder=reported)
            await asyncio.sleep(_POLL_S)
        _log.info("lease_taken", lease=str(self._ref))

    async def keep(self) -> None:
        """Renew the Lease, for ever. Raises `LeaseLost`."""
        while True:
            await asyncio.sleep(pause_s(self._renewed_s, time.monotonic()))
            kept = False
            try:
                async with asyncio.timeout(patience_s(self._renewed_s, time.monotonic())):
                    kept = await self._try()
            except TimeoutError:
                pass
            if self.holder not in ("", self._me) or not (
                kept or still_held(self._renewed_s, time.monotonic())
            ):
                self._written = {}  # nothing of ours to let go
                raise LeaseLost(f"{self._ref} is lost: its holder is {self.holder or 'no replica'}")

    async def release(self) -> None:
        """Release the Lease, if this replica still holds it."""
        if self._written:
            try:
                await self._kube.replace(self._ref, released(self._written))
                _log.info("lease_released")
            except KubeError as error:
                # It ends by itself. In an uninstallation, the operator's rights went before its
                # process.
                _log.info("lease_not_released", reason=str(error))

    async def _try(self) -> bool:
        """Look once, and write if the replica may hold the Lease; return whether it now does."""
        now_s, now_text = time.monotonic(), utc_text()
        try:
            found = await self._kube.get(self._ref)
            step = next_step(found, self._me, self._seen, now_s, now_text)
            self._seen = step.sight
            self.holder = step.sight.holder if step.sight is not None else ""
            if step.write is None:
                self._complained = ""
                return False
            if step.create:
                body = {"metadata": {"name": self._ref.name}, **step.write}
                self._written = await self._kube.create("Lease", self._ref.namespace, body)
            else:
                self._written = await self._kube.replace(self._ref, step.write)
        except KubeError as error:
            if error.status == _CONFLICT:  # another was quicker: the next look shows the holder
                _log.info("lease_contended", lease=str(self._ref))
            elif str(error) != self._complained:  # once, not at every try
                self._complained = str(error)
                _log.warning("lease_request_failed", lease=str(self._ref), reason=str(error))
            return False
        self._complained = ""
        self.holder, self._renewed_s = self._me, now_s
        return True


@asynccontextmanager
async def held(lease: Lease) -> AsyncIterator[None]:
    """Work while holding the Lease, then release it. Raises `LeaseLost` into the work."""
    await lease.acquire()
    try:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(lease.keep())
            yield
            keeping.cancel()
    finally:
        if lease.holder:
            await lease.release()
