"""The blocking ordered producer (`sync/client.py`): its heartbeats run while the program blocks."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fmqclient.arguments import Headers, as_they_are
from fmqclient.producer.ordered import OrderedProducer as AsyncOrderedProducer
from fmqclient.producer.ordered_records import LastRecord, OrderedResult
from fmqclient.sync.base import Part
from fmqclient.sync.loop_thread import LoopThread

if TYPE_CHECKING:
    from concurrent.futures import Future


class OrderedProducer(Part):
    """Sends records to one ordered topic. Use it as `with client.ordered_producer(...) as p`."""

    def __init__(self, loop: LoopThread, producer: AsyncOrderedProducer) -> None:
        self._part = self._producer = producer
        super().__init__(loop)

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        queue: int | None = None,
    ) -> OrderedResult:
        """Send one record, wait until it is stored, and return where."""
        return self._loop.run(
            self._producer.send(value, key=key, headers=headers, tag=tag, queue=queue)
        )

    def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        queue: int | None = None,
    ) -> "Future[OrderedResult]":
        """Hand over one record; the returned future resolves with its outcome.

        It never raises `Overloaded`: without room, the record waits in memory behind earlier ones.
        """
        value, key, headers, tag = as_they_are(value, key, headers, tag)
        return self._loop.submit(
            self._producer.send(value, key=key, headers=headers, tag=tag, queue=queue)
        )

    def send_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        queue: int | None = None,
    ) -> list[OrderedResult]:
        """Send many records and wait until all are stored, in one hop to the loop's thread."""
        return self._loop.run(self._producer.send_batch(values, keys=keys, queue=queue))

    @property
    def active(self) -> bool:
        """Whether this is the topic's active sender, by the newest report of a broker."""
        return self._producer.active

    @property
    def last(self) -> Mapping[int, LastRecord]:
        """By queue the last record before this sender's first one; queues without one lack."""
        return self._producer.last

    @property
    def waits_for(self) -> str:
        """What sends wait for, a sentence; "" = for nothing."""
        return self._producer.waits_for

    @property
    def outstanding(self) -> int:
        """Number of records without an outcome yet."""
        return self._producer.outstanding

    def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        self._loop.run(self._producer.flush())

    async def _end(self) -> None:
        """Send also the records that wait for room, within `close_timeout_s`, then close."""
        until_s = asyncio.get_running_loop().time() + self._producer._settings.close_timeout_s
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.flush()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.close()
