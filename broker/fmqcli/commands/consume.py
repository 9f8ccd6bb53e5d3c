"""`fmq consume`: print messages, and acknowledge those that were printed."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fmqcli.common import (
    BROKERS,
    FAILED,
    Brokers,
    Output,
    OutputOption,
    ReaderGone,
    client,
    counted,
    moment,
    run,
    talk,
)
from fmqcli.output.chain import reader_waits
from fmqcli.output.formats import DEFAULT, as_json, formatter
from fmqcli.read_end import ReadEnd, withheld_sentences
from fmqcli.stdio.writer import Writer
from fmqclient.admin.infos import QueueOffsets
from fmqcore.errors import FmqError, InvalidArgument, Unavailable
from fmqcore.names import require_name

_FETCH = 1000
_FETCH_WAIT_S = 0.2
_END_POLL_S = 1.0
_QUIET_S = 3.0
"""After this time with nothing to print, report which groups are not reached, and why."""
_CLOSE_S = {True: 5.0, False: 1.0}
"""By whether the group has a name: how long the end waits until its last acks are stored."""
_DELETE_S = 3.0
"""How long the deletion of a group of our own may take: brokers remove one without members, too."""
_WAITS_POLL_S = 60.0
"""Time between two questions for what is not shown yet, where nothing comes."""
_UNKNOWN_TIMEOUT_S = 30.0
"""How long a group may have no broker that reports the progress, or none that may show the last
records: a failover takes seconds."""


def consume(
    topic: Annotated[str, typer.Argument(help="the topic")],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="the consumer group; left out: one of our own"),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="earliest, latest, a time: where the group has no offset stored yet"
        ),
    ] = "earliest",
    format: Annotated[
        str, typer.Option("--format", help="%t %g %q %o %k %v %T %I %h %a %c %K %V, see above")
    ] = DEFAULT,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=0, help="stop after this number of messages; 0 = all"),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=0, help="seconds without a message after which to stop; 0 = never")
    ] = 0,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="stop at what is the end when we start")
    ] = False,
    ack: Annotated[
        bool, typer.Option(help="for --group: acknowledge what was printed; else it comes again")
    ] = True,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    r"""Print messages as they come, and acknowledge them once they are printed.

    --format knows %t topic, %g broker group, %q queue, %o offset, %k key, %v value, %T %I stored
    at (ms, ISO), %h headers, %a tag, %c delivery count, %K %V lengths, %% and \n \t \xHH.
    Without --group, a consumer group of our own is made, and deleted at the end.
    """
    _check_options(group, format, output, ack=ack)
    name = group if group is not None else f"fmq-{random.getrandbits(48):012x}"
    require_name("consumer group", name)
    to_bytes = as_json if output is Output.JSON else formatter(format)
    printer = _Printer(to_bytes, count, timeout, exit_at_end, ack, named=group is not None)
    begin = moment(start)

    async def work() -> None:
        writer = Writer(sys.stdout.fileno())
        try:
            async with client(brokers) as connected, printer.group_of(connected, name):
                async with connected.consumer(
                    topic,
                    group=name,
                    start=begin,
                    temporary=not printer.named,
                    close_timeout_s=_CLOSE_S[printer.named],
                ) as sub:
                    await printer.run(writer, connected, sub, name, topic)
        finally:
            writer.close()

    try:
        run(work, while_read=True)
    except ReaderGone:
        raise  # quietly: who read has seen enough
    except BaseException:
        if printer.printed:
            printer.print_summary()
        raise
    printer.print_summary()
    if count and printer.printed < count:
        raise typer.Exit(FAILED)


def _check_options(group: str | None, format: str, output: Output, *, ack: bool) -> None:
    """Raise an error that names the options that exclude each other."""
    if sys.__stdout__ is None:  # `>&-`
        raise typer.BadParameter(
            "standard output is closed: messages would be acknowledged without being printed"
        )
    if output is Output.JSON and format != DEFAULT:
        raise InvalidArgument("--format and -o json: one of both")
    if not ack and group is None:
        raise InvalidArgument("--no-ack is for --group: a group of our own is deleted anyway")


@dataclass(slots=True)
class _Printer:
    """Prints what comes, acknowledges what is printed, and knows when to stop."""

    to_bytes: Callable[[Any], bytes]
    count: int
    timeout_s: float
    at_end: bool
    ack: bool
    named: bool
    """Else the group is deleted at the end, and its acks need not be stored. Acks are sent all the
    same, because unacked messages come again."""
    printed: int = 0
    _reported: dict[str, str] = field(default_factory=dict)
    _withheld_reported: set[str] = field(default_factory=set)
    _waits_asked_s: float | None = None
    _unknown_since: float | None = None  # whether the end is reached
    _withheld_since: float | None = None  # what is left of the end

    @asynccontextmanager
    async def group_of(self, connected: Any, name: str) -> AsyncIterator[None]:
        """Delete the group at the end if it is of our own."""
        try:
            yield
        finally:
            if not self.named:
                with suppress(FmqError, TimeoutError):
                    async with asyncio.timeout(_DELETE_S):
                        await connected.admin().delete_group(name)

    def print_summary(self) -> None:
        """Print how many messages were printed."""
        again = "" if self.ack or not self.printed else ", not acknowledged: they come again"
        talk(f"{counted(self.printed, 'message')}{again}")

    async def run(self, writer: Writer, connected: Any, sub: Any, group: str, topic: str) -> None:
        """Until enough was printed, nothing comes any more, or the end is reached."""
        end = None
        if self.at_end:
            rows = await connected.admin().offsets(topic=topic)
            self._report_withheld(rows)
            end = ReadEnd(rows)
        wait_s = _FETCH_WAIT_S if end is not None or self.timeout_s else _QUIET_S
        quiet_s, looked_s = 0.0, time.monotonic()
        while not self.count or self.printed < self.count:
            most = min(_FETCH, self.count - self.printed) if self.count else _FETCH
            if messages := await sub.fetch(most, wait_s):
                quiet_s = 0.0
                await self._print(writer, messages)
                if end is None:
                    continue
                end.note_printed(messages)  # in order in each queue, so all before it was printed
                if not end:
                    break
                if time.monotonic() - looked_s < _END_POLL_S:
                    continue
                looked_s = time.monotonic()
                if await self._is_there(connected, sub, group, topic, end):
                    break
                continue
            quiet_s += wait_s
            if quiet_s >= _QUIET_S:
                self._report_unconnected(sub.connected)
                await self._report_waits(connected, group, topic)
            if self.timeout_s and quiet_s >= self.timeout_s:
                break
            if end is not None and await self._is_there(connected, sub, group, topic, end):
                break
        if self.printed and self.named:
            await sub.commit()

    async def _is_there(
        self, connected: Any, sub: Any, group: str, topic: str, end: ReadEnd
    ) -> bool:
        """Whether the end is reached; False while no broker can answer, unless that lasts."""
        try:
            if self.named:
                await sub.commit()
            rows = await connected.admin().offsets(group, topic)
        except Unavailable:
            now = time.monotonic()
            self._unknown_since = now if self._unknown_since is None else self._unknown_since
            if now - self._unknown_since > _UNKNOWN_TIMEOUT_S:
                raise
            return False
        self._unknown_since = None
        if end.is_reached(rows):
            return True
        self._await_withheld(end.withheld(rows))
        return False

    def _await_withheld(self, rows: Sequence[QueueOffsets]) -> None:
        """Raise `Unavailable` once nothing but these withheld records has been left for long."""
        now = time.monotonic()
        if not rows:
            self._withheld_since = None
            return
        self._report_withheld(rows)
        self._withheld_since = now if self._withheld_since is None else self._withheld_since
        if now - self._withheld_since > _UNKNOWN_TIMEOUT_S:
            what = "; ".join(withheld_sentences(rows, lasting=False))
            raise Unavailable(
                f"the end is not reached: {what}. They are not lost: start the brokers that are "
                "away, then run this again (`fmq status` names them)"
            )

    def _report_withheld(self, rows: Iterable[QueueOffsets]) -> None:
        """What may not be read yet, and why, once for each sentence."""
        for sentence in withheld_sentences(rows):
            if sentence not in self._withheld_reported:
                self._withheld_reported.add(sentence)
                talk(sentence)

    async def _report_waits(self, connected: Any, group: str, topic: str) -> None:
        """Report what is not shown yet, and why, where nothing comes; rarely, as it costs calls."""
        now = time.monotonic()
        if self._waits_asked_s is not None and now - self._waits_asked_s < _WAITS_POLL_S:
            return
        self._waits_asked_s = now
        with suppress(FmqError):
            admin = connected.admin()
            self._report_withheld(await admin.offsets(topic=topic))
            ordered = (await admin.topic(topic)).ordered
            for status in await admin.ordered.status(topic) if ordered else ():
                for sentence in reader_waits(status, group):
                    talk(sentence)

    def _report_unconnected(self, connected: dict[str, str]) -> None:
        """Why nothing comes from a group, once for each reason."""
        for group, why in connected.items():
            if why and self._reported.get(group) != why:
                self._reported[group] = why
                talk(f"nothing comes from group {group}: {why}")

    async def _print(self, writer: Writer, messages: Sequence[Any]) -> None:
        await writer.write(b"".join(map(self.to_bytes, messages)))
        self.printed += len(messages)
        for message in messages if self.ack else ():
            message.ack_now()
