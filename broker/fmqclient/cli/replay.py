"""`fmq job replay`: an archive's records, sent to a topic. Reading is `fmqspark.archive.replay`'s.

Read a chunk → send it → all are stored → note the progress. A run that was killed goes on with
the chunk that it had not noted; records of that one may then be in the topic twice.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from fmqclient.cli.common import BROKERS, INTERRUPTED, Brokers, client, exit_code, run, talk
from fmqclient.settings import LEVELS
from fmqcore.errors import FmqError, InvalidArgument, Overloaded, Unavailable
from fmqcore.words import is_name, no_name
from fmqport.transport import TransportError
from fmqspark.archive.replay import Replay

_ROOM_S = 0.005
_INCOMPLETE = 3  # as the other jobs


def replay(
    archive: Annotated[Path, typer.Argument(help="the archive's folder")],
    topic: Annotated[str, typer.Option(help="the archived topic")],
    to: Annotated[str, typer.Option(help="the topic to send to; left out: of the same name")] = "",
    group: Annotated[
        str | None, typer.Option(help="of which group, if the archive holds several")
    ] = None,
    name: Annotated[
        str, typer.Option(help="the progress to go on with; left out: one for each target topic")
    ] = "",
    same_queue: Annotated[
        bool, typer.Option("--same-queue", help="to the queue it came from, not by its key")
    ] = False,
    acks: Annotated[str, typer.Option(help=f"one of {', '.join(LEVELS)}")] = "replicated",
    brokers: Brokers = BROKERS,
) -> None:
    """Send an archived topic's records, in order. Run again, it goes on where it was."""
    target = to or topic
    try:
        label = name or f"{group or 'all'}-{topic}-to-{target}"
        if not is_name(label):
            raise InvalidArgument(no_name("replay (--name)", label))
        _arrow()
        records = Replay(archive, topic, group, label)
        job = _Job(records, target, same_queue)

        async def work() -> None:
            async with client(brokers) as connected:
                await connected.admin().topic(target)
                async with connected.producer(acks=acks, linger_ms=5) as producer:
                    await job.send(producer)

        run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (FmqError, OSError, TransportError) as error:
        code = exit_code(error)
        talk(str(error))
        raise typer.Exit(_INCOMPLETE if code == 1 else code or _INCOMPLETE) from None
    talk(f"{job.stored:,} records stored in {target}; {records.done_before:,} were before")


class _Job:
    def __init__(self, records: Replay, topic: str, same_queue: bool) -> None:
        self.stored = 0
        self._records = records
        self._topic = topic
        self._same_queue = same_queue

    async def send(self, producer: Any) -> None:
        """All chunks. Raises what a record ended with; then its chunk is not noted."""
        chunks = self._records.chunks()
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            records, place = chunk
            waiting = [await self._send(producer, record) for record in records]
            await asyncio.wait(waiting)
            failed = [error for future in waiting if (error := future.exception()) is not None]
            if failed:
                raise failed[0]
            await asyncio.to_thread(self._records.note, place)
            self.stored += len(records)

    async def _send(self, producer: Any, record: Any) -> "asyncio.Future[Any]":
        queue = record.queue if self._same_queue else None
        while True:
            try:
                future: asyncio.Future[Any] = producer.send_nowait(
                    self._topic,
                    record.value,
                    key=record.key,
                    tag=record.tag,
                    headers=record.headers,
                    queue=queue,
                )
            except Overloaded:
                await asyncio.sleep(_ROOM_S)
            else:
                return future


def _arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Unavailable("a replay needs pyarrow: pip install 'fmq[spark]'") from None
