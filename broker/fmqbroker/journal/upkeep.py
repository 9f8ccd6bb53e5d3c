"""Background work of the journal: the spare segment file, indexes of full segments, space.

One task that sleeps until there is work: a journal at rest does nothing here.
"""

from typing import Final

from fmqbroker.journal.components import Parts
from fmqbroker.journal.resume_file import Resumes
from fmqbroker.runtime.notifier import wait_any
from fmqport.clock import Clock
from fmqport.disk import DiskFull

SPACE_RETRY_S: Final = 1.0
"""Seconds between checks of the space while there is no room."""


class Keeper:
    """The journal's background work; see the module."""

    def __init__(self, parts: Parts, resumes: Resumes, clock: Clock) -> None:
        self._parts = parts
        self._resumes = resumes
        self._clock = clock

    async def run(self) -> None:
        """Do the background work until cancelled."""
        store, catalog, flusher = self._parts.store, self._parts.catalog, self._parts.flusher
        space = store.space
        while True:
            try:
                await self._look_for_room()
                await space.keep_reserve()
                await store.make_spare(flusher.written_end)
                await catalog.save(flusher.durable_end, self._parts.checkpoints.commit_end)
                await self._resumes.capture_or_write()
            except DiskFull as error:
                space.note_full(str(error))
            if space.tight:
                await self._clock.sleep(SPACE_RETRY_S)
            elif not (
                store.spare_due(flusher.written_end)
                or catalog.needs_save(flusher.durable_end)
                or self._resumes.due()
            ):
                await wait_any(store.needs_care, space.changed)

    async def _look_for_room(self) -> None:
        space = self._parts.store.space
        if space.tight:
            await space.check()
            if not space.low and not space.no_control:
                space.note_room()
