"""`fmq job replay`: an archive's records, sent to a topic. Reading is `fmqspark.archive.replay`'s.

Read a chunk → send it → it is stored → note the progress. What a killed run had stored, and had not
noted, is not stored again: an ordinary topic gets the same batches under the same sequences
(`replay_producer.py`); an ordered topic's chain names its last records (`replay_ordered.py`).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from fmqcli.common import (
    BROKERS,
    FAILED,
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
from fmqcli.given_names import name_option
from fmqcli.replay_ordered import OrderedPlan, OrderedSends
from fmqcli.replay_producer import GroupSenders, Plan, level_of
from fmqcli.stdio.input_paths import folder
from fmqclient.settings import LEVELS
from fmqcore.errors import (
    DirectoryLocked,
    FmqError,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)
from fmqcore.zk.topic import TopicConfig
from fmqport.transport import TransportError
from fmqspark.archive.replay import Archived, Place, Replay, progress_name

_INCOMPLETE = 3  # as the other jobs


def replay(
    archive: Annotated[
        Path, typer.Argument(metavar="FOLDER", parser=folder, help="the archive's folder")
    ],
    topic: Annotated[str, name_option("topic", "the archived topic")],
    to: Annotated[
        str | None, name_option("topic", "the topic to send to; left out: the one of the same name")
    ] = None,
    group: Annotated[
        str | None,
        name_option("group", "replay the journal of this group, if the archive holds several"),
    ] = None,
    name: Annotated[
        str | None,
        name_option("replay", "the progress to go on with; left out: one for each target topic"),
    ] = None,
    same_queue: Annotated[
        bool,
        typer.Option("--same-queue", help="to the queue that each message came from, not by key"),
    ] = False,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="skip messages that retention deleted unarchived"),
    ] = False,
    skip_missing: Annotated[
        bool,
        typer.Option("--skip-missing", help="skip messages not archived yet; they come later"),
    ] = False,
    acks: Annotated[str, typer.Option(help=f"one of {', '.join(LEVELS)}")] = "replicated",
    brokers: Brokers = BROKERS,
) -> None:
    """Send an archived topic's records, in order. Run again, it goes on where it was.

    It ends before what the archive lacks, and says so (3).
    """
    target = to or topic
    try:
        level_of(acks)
        _arrow()
        label = name or progress_name(archive, topic, group, target)
        records = Replay(
            archive, topic, group, label, skip_lost=skip_lost, skip_missing=skip_missing
        )
        job = _Job(records, target, same_queue, label)

        async def work() -> None:
            async with client(brokers) as connected:
                await job.send(connected, acks)

        with records.at_work(), job.interruption_reported():
            run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Terminated as ended:
        raise typer.Exit(ended.code) from None
    except (FmqError, OSError, TransportError) as error:
        talk(str(error))
        raise typer.Exit(_code_of(error)) from None
    talk(f"{job.stored:,} records stored in {target}; {records.done_before:,} were before")
    for sentence in records.notices():
        talk(sentence)
    if not records.whole:
        raise typer.Exit(_INCOMPLETE)


def _code_of(error: Exception) -> int:
    """Return the exit code: what a user has to correct, what to wait for, or incomplete."""
    match error:
        case UnknownTopic() | UnknownQueue():
            return USAGE
        case DirectoryLocked():
            return UNAVAILABLE
    code = exit_code(error)
    return _INCOMPLETE if code in (FAILED, None) else code


class _Sends(Protocol):
    """One of the two ways of sending. Use it as `async with`."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *_: Any) -> None: ...

    def state(self) -> dict[str, Any]:
        """Return what is to be noted with the progress, as of the last `store`."""
        ...

    def store(self, records: list[Archived], number: int, /) -> AsyncGenerator[int]:
        """Send a chunk; yield how many records are stored so far, each to be noted.

        `number`: of records before it.
        """
        ...


class _Job:
    def __init__(
        self, records: Replay, topic: str, same_queue: bool, label: str = "archive"
    ) -> None:
        self.stored = 0
        self._records = records
        self._topic = topic
        self._same_queue = same_queue
        self._label = label

    async def send(self, connected: Any, acks: str) -> None:
        """All chunks. Raises what a record ended with; then its part is not noted."""
        sends = self._sends(connected, await connected._wire[1].topic(self._topic), acks)
        chunks = self._records.chunks()
        if (chunk := await asyncio.to_thread(next, chunks, None)) is None:
            return  # and nothing is asked of the topic
        async with sends:
            # Before anything is sent by it: a run that goes on depends on it.
            await asyncio.to_thread(self._records.note, self._records.place, sends.state())
            while chunk is not None:
                await self._store(sends, *chunk)
                chunk = await asyncio.to_thread(next, chunks, None)

    def _sends(self, connected: Any, topic: TopicConfig, acks: str) -> _Sends:
        state, same = self._records.state, self._same_queue
        if topic.ordered:
            plan = OrderedPlan.of(state, topic, same)
            return OrderedSends(connected, plan, self._label, acks)
        wire = connected._wire
        _, _, clock = wire
        return _Steps(wire, topic, Plan.of(state, topic, clock.random_id(), same), acks)

    async def _store(self, sends: _Sends, records: list[Archived], end: Place) -> None:
        before = self.stored
        async with aclosing(sends.store(records, self._records.done_before + before)) as counts:
            async for count in counts:
                self.stored = before + count
                place = end._replace(rows=end.rows - len(records) + count)
                await asyncio.to_thread(self._records.note, place, sends.state())

    @contextmanager
    def interruption_reported(self) -> Iterator[None]:
        """Report on Ctrl-C, or an ending signal, how far the replay is and how to go on."""
        try:
            yield
        except (KeyboardInterrupt, Terminated):
            talk(
                f"interrupted: {self.stored:,} records stored in {self._topic} and noted, "
                f"{self._records.done_before:,} were before; run the same command again: it goes on"
            )
            raise


class _Steps:
    """The sends to an ordinary topic: a chunk in steps, each stored and noted by itself."""

    def __init__(self, wire: Any, topic: TopicConfig, plan: Plan, acks: str) -> None:
        self._topic = topic
        self._plan = plan
        self._senders = GroupSenders(wire, topic, plan, acks)

    async def __aenter__(self) -> None:
        await self._senders.__aenter__()

    async def __aexit__(self, *ended: object) -> None:
        await self._senders.__aexit__(*ended)

    def state(self) -> dict[str, Any]:
        """See `_Sends`."""
        return self._plan.state()

    async def store(self, records: list[Archived], number: int) -> AsyncGenerator[int]:
        """See `_Sends`."""
        for step, count in self._plan.steps(records, number):
            try:
                await self._senders.store(step)
            except ExceptionGroup as failed:
                raise _first(failed) from failed
            yield count
        if self._plan.topic != self._topic:
            # What was under way when an earlier run died went by the topic's shape of then.
            self._plan.topic = self._topic
            yield len(records)


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
