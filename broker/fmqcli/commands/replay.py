"""`fmq job replay`: an archive's records, sent to a topic. Reading is `fmqspark.archive.replay`'s.

Read a chunk → send it, step by step → a step is stored → note the progress. A run that was killed
continues with the step that it had not noted, and sends it just as it was (`replay_producer.py`),
so that brokers that have it do not store it again.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from fmqcli.common import (
    BROKERS,
    INTERRUPTED,
    UNAVAILABLE,
    USAGE,
    Brokers,
    Terminated,
    client,
    exit_code,
    run,
    talk,
)
from fmqcli.replay_producer import GroupSenders, Plan, level_of, require_ordinary
from fmqcli.stdio.input_paths import folder
from fmqclient.settings import LEVELS
from fmqcore.errors import (
    DirectoryLocked,
    FmqError,
    Unavailable,
    UnknownTopic,
)
from fmqcore.names import require_name
from fmqcore.zk.topic import TopicConfig
from fmqport.transport import TransportError
from fmqspark.archive.replay import Replay, progress_name

_INCOMPLETE = 3  # as the other jobs


def replay(
    archive: Annotated[
        Path, typer.Argument(metavar="FOLDER", parser=folder, help="the archive's folder")
    ],
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
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="go on behind what retention deleted unarchived"),
    ] = False,
    skip_missing: Annotated[
        bool,
        typer.Option(
            "--skip-missing", help="go on behind what is not archived yet; it comes out of order"
        ),
    ] = False,
    acks: Annotated[str, typer.Option(help=f"one of {', '.join(LEVELS)}")] = "replicated",
    brokers: Brokers = BROKERS,
) -> None:
    """Send an archived topic's records, in order. Run again, it goes on where it was.

    It ends before what the archive lacks, and says so (3).
    """
    target = to or topic
    try:
        for what, given in (("replay (--name)", name), ("group", group)):
            if given:
                require_name(what, given)
        for given in (topic, target):
            require_name("topic", given)
        level_of(acks)
        _arrow()
        label = name or progress_name(archive, topic, group, target)
        records = Replay(
            archive, topic, group, label, skip_lost=skip_lost, skip_missing=skip_missing
        )
        job = _Job(records, target, same_queue)

        async def work() -> None:
            async with client(brokers) as connected:
                await job.send(connected, acks)

        with records.at_work():
            run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Terminated as ended:
        raise typer.Exit(ended.code) from None
    except (FmqError, OSError, TransportError) as error:
        code = exit_code(error)
        if isinstance(error, DirectoryLocked | UnknownTopic):
            code = UNAVAILABLE if isinstance(error, DirectoryLocked) else USAGE
        talk(str(error))
        raise typer.Exit(_INCOMPLETE if code == 1 else code or _INCOMPLETE) from None
    talk(f"{job.stored:,} records stored in {target}; {records.done_before:,} were before")
    for sentence in records.notices():
        talk(sentence)
    if not records.whole:
        raise typer.Exit(_INCOMPLETE)


class _Job:
    def __init__(self, records: Replay, topic: str, same_queue: bool) -> None:
        self.stored = 0
        self._records = records
        self._topic = topic
        self._same_queue = same_queue

    async def send(self, connected: Any, acks: str) -> None:
        """All chunks. Raises what a record ended with; then its step is not noted."""
        wire = connected._wire
        _, routes, clock = wire
        topic = await routes.topic(self._topic)
        require_ordinary(topic)
        plan = Plan.of(self._records.state, topic, clock.random_id(), self._same_queue)
        # Before anything is sent under it: a run that goes on is the same producer.
        await asyncio.to_thread(self._records.note, self._records.place, plan.state())
        async with GroupSenders(wire, topic, plan, acks) as senders:
            await self._send(plan, senders, topic)

    async def _send(self, plan: Plan, senders: GroupSenders, topic: TopicConfig) -> None:
        chunks = self._records.chunks()
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            records, end = chunk
            begin, done = end.rows - len(records), self._records.done_before + self.stored
            for step, count in plan.steps(records, done):
                try:
                    await senders.store(step)
                except ExceptionGroup as failed:
                    raise _first(failed) from failed
                place = end._replace(rows=begin + count)
                self.stored = done - self._records.done_before + count
                await asyncio.to_thread(self._records.note, place, plan.state())
            if plan.topic != topic:
                # What was under way when an earlier run died went by the topic's shape of then.
                plan.topic = topic
                await asyncio.to_thread(self._records.note, end, plan.state())


def _first(failed: ExceptionGroup[Exception]) -> Exception:
    """Of what went wrong in several groups at once."""
    error: Exception = failed
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Unavailable("a replay needs pyarrow: pip install 'fmq-broker[spark]'") from None
