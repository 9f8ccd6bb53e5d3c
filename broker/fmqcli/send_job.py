"""The sends of `fmq produce`: what became of each message, and the lines of --print.

Lines are written by a thread (`stdio/writer.py`): a reader that stalls holds back the next sends,
but neither the heartbeats of the producer nor a signal that ends the command.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from fmqcli.common import NotWritten, Output, ReaderGone, talk
from fmqcli.send_waits import stalls_reported
from fmqcore.errors import FmqError, UnknownTopic

_AT_ONCE: Final = 10_000
"""Messages outstanding."""
_CUT_SHORT_S: Final = 1.0
"""How long a command that is cut short waits until its last lines are written."""


class Lines(Protocol):
    """Takes the lines of --print: a `Writer`."""

    async def write(self, data: bytes) -> None: ...  # noqa: D102


class SendJob:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        key: str | None,
        separator: bytes | None,
        fixed: dict[str, Any],
        rate: float,
        count: int,
        output: Output,
    ) -> None:
        self._topic = topic
        self._key = None if key is None else key.encode()
        self._separator = separator
        self._fixed = fixed
        self._rate = rate
        self._count = count
        self._output = output
        self._lines: Lines | None = None
        self._unanswered = fixed.pop("unanswered", False)
        self._sent = 0
        self._stored = 0
        self._reported = self._cut_short = self._unprinted = False
        self._waiting: list[asyncio.Future[Any]] = []
        self._sender: asyncio.Task[Any] | None = None
        self._lost: UnknownTopic | None = None
        self.failed = 0

    async def send(
        self, producer: Any, source: AsyncIterator[list[bytes]], lines: Lines | None = None
    ) -> None:
        """Send everything and wait for each outcome; `lines` gets where each one was stored.

        Raises `UnknownTopic` once the topic is gone: if it came back, what was sent would lack the
        messages in between.
        """
        started, self._lines = time.monotonic(), lines
        self._sender = asyncio.current_task()
        try:
            await self._send_all(producer, source)
        except BaseException:
            for future in self._waiting:  # the error that ends this reports their fate
                future.add_done_callback(lambda f: f.cancelled() or f.exception())
            if self._lost is not None and self._sender is not None and not self._sender.uncancel():
                raise self._lost from None
            raise
        finally:
            self._sender = None
        self._report(time.monotonic() - started)

    async def _send_all(self, producer: Any, source: AsyncIterator[list[bytes]]) -> None:
        started = time.monotonic()
        async for values in source:
            for value in values:
                if self._count and self._sent >= self._count:
                    break
                if self._rate:
                    due = started + self._sent / self._rate
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                self._waiting.append(await self._send(producer, value))
                if len(self._waiting) >= _AT_ONCE:
                    await self._settle()
            if self._count and self._sent >= self._count:
                break
            if self._lines is not None or len(values) < 2:
                await self._settle()
        await self._settle()

    def watched(self, producer: Any) -> AbstractAsyncContextManager[None]:
        """Report why nothing moves; and what has failed, though more may come for hours."""
        return stalls_reported(producer, lambda: self._sent, self._look)

    async def _send(self, producer: Any, value: bytes) -> "asyncio.Future[Any]":
        key = self._key
        if self._separator is not None:
            before, found, after = value.partition(self._separator)
            if found:
                key, value = before, after
        self._sent += 1
        while True:
            try:
                future: asyncio.Future[Any] = producer.send_nowait(
                    self._topic, value, key=key, **self._fixed
                )
            except FmqError as error:
                if error.code.name != "OVERLOADED":
                    raise
                await asyncio.sleep(0.005)
            else:
                future.add_done_callback(self._end_if_lost)
                return future

    def _end_if_lost(self, future: "asyncio.Future[Any]") -> None:
        """End the sends at the first message for which there is no topic, also between lines."""
        if self._sender is None or self._lost is not None or future.cancelled():
            return
        if isinstance(error := future.exception(), UnknownTopic):
            self._lost = error
            self._sender.cancel()

    def _look(self) -> None:
        for future in self._waiting:
            if future.done() and not future.cancelled() and (error := future.exception()):
                self._report_failure(error)
                return

    def _report_failure(self, error: BaseException) -> None:
        """The first failure: the others are most often for the same reason."""
        if not self._reported and not isinstance(error, UnknownTopic):  # else it ends the command
            self._reported = True
            talk(str(error))

    async def _settle(self) -> None:
        """Wait for what was sent, in order; say the first failure."""
        for future in self._waiting:
            if not future.done():
                await asyncio.wait([future])
            if (error := future.exception()) is not None:
                if isinstance(error, UnknownTopic):
                    raise error
                self._report_failure(error)
        if lines := self._counted():
            await self._print(lines)

    def _counted(self) -> bytes:
        """Count what became of those that were sent, as far as it is known; return their lines."""
        waiting, self._waiting = self._waiting, []
        lines = []
        for future in waiting:
            if not future.done() or future.cancelled() or future.exception() is not None:
                self.failed += 1
                continue
            self._stored += 1
            if self._lines is not None:
                lines.append(self._line(future.result()))
        return b"".join(lines)

    async def _print(self, lines: bytes) -> None:
        if self._lines is not None:
            await self._lines.write(lines)

    async def end_early(self) -> None:
        """The command ends before its input, and its producer is closed: write what is known."""
        lines, self._cut_short = self._counted(), True
        try:
            async with asyncio.timeout(_CUT_SHORT_S):
                await self._print(lines)  # if there are none: until those before are written
        except (TimeoutError, ReaderGone, NotWritten):
            self._unprinted = True

    def report_cut_short(self) -> None:
        """Report an early end; not on the loop, as standard error may have the stalled reader."""
        if self._cut_short and self._sent:
            rest = "; standard output lacks lines of these" if self._unprinted else ""
            talk(f"cut short: of {self._sent:,} sent {self._stored:,} are stored{rest}")

    def _line(self, result: Any) -> bytes:
        if self._output is Output.JSON:
            return json.dumps(result._asdict()).encode() + b"\n"
        return f"{result.group} {result.queue} {result.offset}\n".encode()

    def _report(self, seconds: float) -> None:
        rate = f", {self._sent / seconds:,.0f} a second" if seconds > 0.1 else ""
        lost = f", {self.failed:,} not" if self.failed else ""
        done = (
            "sent without an acknowledgement: storage is not confirmed"
            if self._unanswered
            else "stored"
        )
        talk(f"{self._stored:,} {done}{lost} in {seconds:.2f} s{rate}")
