"""The common part of a blocking producer and a blocking consumer (`sync/client.py`)."""

import asyncio
from types import TracebackType
from typing import Self

from fmqclient.consumer.consumer import Consumer as AsyncConsumer
from fmqclient.producer.ordered import OrderedProducer as AsyncOrderedProducer
from fmqclient.producer.producer import Producer as AsyncProducer
from fmqclient.sync.loop_thread import LoopThread
from fmqcore.errors import Unavailable


class Part:
    """A producer or consumer that opens at construction, in the loop's thread, and closes once."""

    _part: AsyncProducer | AsyncOrderedProducer | AsyncConsumer

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._closed = False
        self._ending: asyncio.Future[None] | None = None
        loop.run(self._part.__aenter__())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._left()
        self.close()

    @property
    def closed(self) -> bool:
        """Whether this object is closed, or about to be."""
        return self._closed

    @property
    def connected(self) -> dict[str, str]:
        """Per broker group: "" while its link or session is open, else the reason why it is not."""
        return self._part.connected

    def _left(self) -> None:
        """Note that the calling thread leaves the `with` block without an error."""

    def close(self) -> None:
        """Finish what is pending, within `close_timeout_s` seconds, and close; only once."""
        self._loop.check()  # before it counts as closed
        self._closed = True
        if self._loop.gone:
            return
        try:
            self._loop.run(self._close())
        except Unavailable:
            if not self._loop.stopped:  # else its client was closed just now, and it with that
                raise

    async def _close(self) -> None:
        """Close once; a second thread waits for the first, as connections stay open until then."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
            await self._ending
        else:
            await asyncio.wait([self._ending])

    async def _end(self) -> None:
        """Close the asynchronous part, in the loop's thread."""
        await self._part.close()
