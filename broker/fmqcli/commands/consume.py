"""`fmq consume`: print messages, and acknowledge those that were printed."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

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
from fmqcli.given_names import name_option, name_parser
from fmqcli.output.formats import DEFAULT, as_json, formatter
from fmqcli.read_end import Place, ReadEnd, messages_vanished, not_reached, only_withheld_left
from fmqcli.read_waits import ReadWaits, Standstill
from fmqcli.stdio.writer import Writer
from fmqclient.admin.infos import QueueOffsets
from fmqclient.admin.lag import to_read
from fmqcore.errors import FmqError, InvalidArgument, Unavailable

_FETCH = 1000
_FETCH_WAIT_S = 0.2
_END_POLL_S = 1.0
_QUIET_S = 3.0
"""After this time with nothing to print, report which groups are not reached, and why."""
_CLOSE_S = {True: 5.0, False: 1.0}
"""By whether the group has a name: how long the end waits until its last acks are stored."""
_DELETE_S = 3.0
"""Time for deleting the temporary group; brokers remove groups without members anyway."""
_WAITS_POLL_S = 60.0
"""Time between two questions for what is not shown yet, where nothing comes."""
_END_WAITS_POLL_S = 5.0
"""The same for -e, which ends when a wait lasts."""
_COMMIT_S = 1.0
"""How long a look at the end waits for acks: no message is printed meanwhile."""
_UNKNOWN_TIMEOUT_S = 30.0
"""How long the same reason may keep a read from its end: a failover takes seconds."""

_ExitAtEnd = Annotated[
    bool,
    typer.Option(
        "--exit-at-end",
        "-e",
        help="stop at the end as of the start; exit status 69: it was not reached",
    ),
]


def consume(
    topic: Annotated[str, typer.Argument(parser=name_parser("topic"), help="the topic")],
    group: Annotated[
        str | None,
        name_option(
            "consumer group", "the consumer group; left out: a temporary one", "--group", "-g"
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="start of a group without offsets: earliest, latest, or a time"
        ),
    ] = "earliest",
    format: Annotated[
        str,
        typer.Option(
            "--format", help="line format: %t %g %q %o %k %v %T %I %h %a %c %K %V, see above"
        ),
    ] = DEFAULT,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=0, help="stop after this number of messages; 0 = all"),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=0, help="seconds without a message after which to stop; 0 = never")
    ] = 0,
    exit_at_end: _ExitAtEnd = False,
    ack: Annotated[
        bool,
        typer.Option(help="with --group: acknowledge printed messages; else they come again"),
    ] = True,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    r"""Print messages as they come, and acknowledge them once they are printed.

    --format knows %t topic, %g broker group, %q queue, %o offset, %k key, %v value, %T %I stored
    at (ms, ISO), %h headers, %a tag, %c delivery count, %K %V lengths, %% and \n \t \xHH.
    Without --group, a temporary consumer group is created, and deleted at the end.
    With -e, exit status 69: the end was not reached; it was out of reach for 30 s, or nothing came
    for --timeout.
    """
    _check_options(group, format, output, ack=ack)
    name = group if group is not None else f"fmq-{random.getrandbits(48):012x}"
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

    _run(work, printer)
    if count and printer.printed < count:
        raise typer.Exit(FAILED)


def _run(work: Callable[[], Coroutine[Any, Any, None]], printer: "_Printer") -> None:
    """Do the work, and print a summary also if it fails."""
    try:
        run(work, while_read=True)
    except ReaderGone:
        raise  # quietly: who read has seen enough
    except BaseException:
        if printer.printed:
            printer.print_summary()
        raise
    printer.print_summary()


def _check_options(group: str | None, format: str, output: Output, *, ack: bool) -> None:
    """Raise an error that names the options that exclude each other."""
    if sys.__stdout__ is None:  # `>&-`
        raise typer.BadParameter(
            "standard output is closed: messages would be acknowledged without being printed"
        )
    if output is Output.JSON and format != DEFAULT:
        raise InvalidArgument("--format and -o json: one of both")
    if not ack and group is None:
        raise InvalidArgument("--no-ack is for --group: the temporary group is deleted anyway")


def _no_reader(error: Unavailable) -> str:
    return (
        f"the end is not known: {error}; `fmq status` shows who serves and who is away: start "
        "those, and run this again"
    )


def _no_session(reasons: Mapping[str, str]) -> str:
    groups = "; ".join(f"group {group}: {reason}" for group, reason in reasons.items())
    return not_reached(
        f"no session with {groups}; `fmq status` shows who is away: start those, and run this again"
    )


class _Reading(NamedTuple):
    """What a printer reads from, and asks."""

    admin: Any
    sub: Any
    group: str
    topic: str
    waits: ReadWaits


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
    _standstill: Standstill = field(default_factory=Standstill)

    @asynccontextmanager
    async def group_of(self, connected: Any, name: str) -> AsyncIterator[None]:
        """Delete the group at the end if it is temporary."""
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
        admin = connected.admin()
        poll_s = _END_WAITS_POLL_S if self.at_end else _WAITS_POLL_S
        reading = _Reading(admin, sub, group, topic, ReadWaits(admin, group, topic, poll_s))
        async with reading.waits.asked():
            end = await self._end_now(reading) if self.at_end else None
            await self._read(writer, reading, end)
        if self.printed and self.named:
            await sub.commit()

    async def _read(self, writer: Writer, reading: "_Reading", end: ReadEnd | None) -> None:
        wait_s = _FETCH_WAIT_S if end is not None or self.timeout_s else _QUIET_S
        quiet_s, looked_s = 0.0, time.monotonic()
        while not self.count or self.printed < self.count:
            most = min(_FETCH, self.count - self.printed) if self.count else _FETCH
            if messages := await reading.sub.fetch(most, wait_s):
                quiet_s = 0.0
                reading.waits.note_messages()
                await self._print(writer, messages)
                if end is None:
                    continue
                end.note_printed(messages)  # in order in each queue, so all before it was printed
                if not end:
                    return
                if time.monotonic() - looked_s < _END_POLL_S:
                    continue
                looked_s = time.monotonic()
            else:
                quiet_s += wait_s
            if quiet_s >= _QUIET_S:
                self._report_unconnected(reading.sub.connected)
                reading.waits.note_quiet()
            if end is not None and await self._is_there(reading, end, quiet=quiet_s > 0):
                return
            if self.timeout_s and quiet_s >= self.timeout_s:
                self._check_timed_out(end)
                return

    def _check_timed_out(self, end: ReadEnd | None) -> None:
        """Raise `Unavailable` if there was an end to reach: a script must see that it was not."""
        if end is not None:
            raise Unavailable(
                not_reached(
                    f"nothing came for {self.timeout_s:g} s (--timeout): give more time, or see "
                    "`fmq group lag` and `fmq status`"
                )
            )

    async def _end_now(self, reading: "_Reading") -> ReadEnd:
        """Return the end; a failover may be under way, so wait for one as `_is_there` does."""
        begin_s = time.monotonic()
        while True:
            try:
                rows = await reading.admin.offsets(topic=reading.topic)
            except Unavailable as error:
                waited_s = time.monotonic() - begin_s
                if self.timeout_s and waited_s >= self.timeout_s:
                    raise Unavailable(_no_reader(error)) from None
                self._check_progress({"reader": _no_reader(error)})
                if waited_s >= _QUIET_S:
                    self._report_unconnected(reading.sub.connected)
                await asyncio.sleep(_FETCH_WAIT_S)
            else:
                reading.waits.report_withheld(rows)
                return ReadEnd(rows)

    async def _is_there(self, reading: "_Reading", end: ReadEnd, *, quiet: bool) -> bool:
        """Whether the end is reached; False while it is not, unless the same reason lasts."""
        reasons = {}
        unstored = await self._unstored(reading.sub) if quiet else None
        try:
            rows = await reading.admin.offsets(reading.group, reading.topic)
        except Unavailable as error:
            self._check_progress({"reader": _no_reader(error)})
            return False
        if end.is_reached(rows):
            return True
        if withheld := end.withheld(rows):
            reading.waits.report_withheld(withheld)
            reasons["withheld"] = only_withheld_left(withheld)
        if chain := reading.waits.chain:
            reasons["chain"] = not_reached("; ".join(chain))
        if quiet and (unconnected := end.unconnected(rows, reading.sub.connected)):
            reasons["session"] = _no_session(unconnected)
        if unstored is not None:
            reasons["acks"] = not_reached(f"{unstored}; see `fmq status`")
        if quiet and not reasons and (places := await self._vanished(reading, end, rows)):
            reasons["vanished"] = messages_vanished(reading.topic, places)
        self._check_progress(reasons)
        return False

    async def _vanished(
        self, reading: "_Reading", end: ReadEnd, rows: Sequence[QueueOffsets]
    ) -> list[Place]:
        """Return the queues that will never reach their end, if no other queue has more to come."""
        if end.lacks(rows):
            try:
                found = await reading.admin.offsets(topic=reading.topic)
            except Unavailable:
                return []
            rows = list(to_read(reading.group, found).values())
        return end.vanished(rows)

    async def _unstored(self, sub: Any) -> Unavailable | None:
        """Why the acks so far are not stored; messages that may come meanwhile wait for it."""
        if self.named:
            try:
                await sub.commit(_COMMIT_S)
            except Unavailable as error:
                return error
        return None

    def _check_progress(self, reasons: dict[str, str]) -> None:
        """Raise `Unavailable` if the end has not been reached for such a reason for long."""
        if reason := self._standstill.lasting(reasons, time.monotonic(), _UNKNOWN_TIMEOUT_S):
            raise Unavailable(reason) from None

    def _report_unconnected(self, connected: dict[str, str]) -> None:
        """Why nothing comes from a group, once for each reason."""
        for group, reason in connected.items():
            if reason and self._reported.get(group) != reason:
                self._reported[group] = reason
                talk(f"nothing comes from group {group}: {reason}")

    async def _print(self, writer: Writer, messages: Sequence[Any]) -> None:
        await writer.write(b"".join(map(self.to_bytes, messages)))
        self.printed += len(messages)
        for message in messages if self.ack else ():
            message.ack_now()
