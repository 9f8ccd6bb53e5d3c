"""What a consumer waits for where nothing comes: asked beside the reading, and reported."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from fmqcli.common import meanwhile, talk
from fmqcli.output.chain import reader_waits
from fmqcli.read_end import withheld_by_reason
from fmqclient.admin.infos import QueueOffsets
from fmqcore.errors import FmqError
from fmqport.transport import TransportError

_REPORT_S: Final = 60.0
"""Time between two reports of the same wait: it lasts longer each time."""


class ReadWaits:
    """Asks brokers in a separate task, so that messages are printed meanwhile."""

    def __init__(self, admin: Any, group: str, topic: str, poll_s: float) -> None:
        """Look at most each `poll_s` seconds, as it costs calls, and only where nothing comes."""
        self._admin, self._group, self._topic, self._poll_s = admin, group, topic, poll_s
        self.chain: list[str] = []  # where the consumer group has no way on in an ordered topic
        self._quiet = asyncio.Event()
        self._reported: set[tuple[str, str, str]] = set()
        self._chain_reported_s: float | None = None

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """Ask and report within this block."""
        async with meanwhile(self._ask()):
            yield

    def note_messages(self) -> None:
        """Something came: whatever was waited for has come, or did not matter."""
        self._quiet.clear()
        self.chain = []

    def note_quiet(self) -> None:
        """Nothing has come for some seconds."""
        self._quiet.set()

    def report_withheld(self, rows: Iterable[QueueOffsets]) -> None:
        """What may not be read yet, once for each reason: its number changes all the time."""
        for reason, sentence in withheld_by_reason(rows).items():
            if reason not in self._reported:
                self._reported.add(reason)
                talk(sentence)

    async def _ask(self) -> None:
        while True:
            await self._quiet.wait()
            with suppress(FmqError, TransportError):
                await self._look()
            await asyncio.sleep(self._poll_s)

    async def _look(self) -> None:
        self.report_withheld(await self._admin.offsets(topic=self._topic))
        if not (await self._admin.topic(self._topic)).ordered:
            return
        found = await self._admin.ordered.status(self._topic)
        if not self._quiet.is_set():  # what came meanwhile may be what was waited for
            return
        self.chain = [s for status in found for s in reader_waits(status, self._group)]
        now = time.monotonic()
        if self._chain_reported_s is None or now - self._chain_reported_s >= _REPORT_S:
            for sentence in self.chain:
                self._chain_reported_s = now
                talk(sentence)


class Standstill:
    """Since when a read is kept from its end, by the kind of reason."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def lasting(self, reasons: Mapping[str, str], now_s: float, limit_s: float) -> str:
        """Return the first of these sentences once one kind has held for so long; else ""."""
        self._since_s = {kind: self._since_s.get(kind, now_s) for kind in reasons}
        lasts = any(now_s - since_s > limit_s for since_s in self._since_s.values())
        return next(iter(reasons.values())) if lasts else ""
