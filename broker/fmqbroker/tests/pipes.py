"""An in-memory stream for tests: each end receives what the other sends; torn, both fail."""

import asyncio
from typing import Any

from google.protobuf.message import Message

from fmqport.transport import TransportError


class Pipe:
    """An in-memory stream whose two ends are torn together."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.replies: asyncio.Queue[Any] = asyncio.Queue()
        self.torn = asyncio.Event()
        self.full = False  # the consumer reads nothing more

    async def _or_torn(self, work: Any) -> Any:
        getting = asyncio.ensure_future(work)
        torn = asyncio.ensure_future(self.torn.wait())
        try:
            await asyncio.wait((getting, torn), return_when=asyncio.FIRST_COMPLETED)
            if self.torn.is_set():
                raise TransportError("torn")
            return getting.result()
        finally:
            getting.cancel()
            torn.cancel()


class BrokerEnd:
    """The stream as the fetch service sees it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    @property
    def peer(self) -> str:
        return "test"

    async def send(self, message: Message) -> None:
        if self._pipe.full:
            await self._pipe._or_torn(asyncio.Event().wait())
        if self._pipe.torn.is_set():
            raise TransportError("torn")
        await asyncio.sleep(0)
        self._pipe.replies.put_nowait(message)

    async def receive(self) -> Any:
        return await self._pipe._or_torn(self._pipe.requests.get())

    async def done_sending(self) -> None: ...

    def cancel(self) -> None:
        self._pipe.torn.set()
