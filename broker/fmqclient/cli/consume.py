"""`fmq consume`: print messages, and acknowledge those that were printed."""

import random
from contextlib import suppress
from typing import Annotated, Any

import typer

from fmqclient.cli.common import (
    BROKERS,
    FAILED,
    Brokers,
    Output,
    OutputOption,
    client,
    moment,
    run,
    talk,
    write,
)
from fmqclient.cli.formats import DEFAULT, as_json, formatter
from fmqcore.errors import FmqError

_FETCH = 1000
_LOOK_S = 0.2


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
        str, typer.Option("--format", help="%t %g %q %o %k %v %T %I %h %a %c %K %V, see docs")
    ] = DEFAULT,
    count: Annotated[int, typer.Option("--count", "-n", help="stop after so many; 0 = all")] = 0,
    timeout: Annotated[
        float, typer.Option(help="stop when nothing came for so many seconds; 0 = never")
    ] = 0,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="stop at what is the end when we start")
    ] = False,
    ack: Annotated[bool, typer.Option(help="acknowledge what was printed")] = True,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    r"""Print messages as they come, and acknowledge them once they are printed.

    --format knows %t topic, %g broker group, %q queue, %o offset, %k key, %v value, %T %I stored
    at (ms, ISO), %h headers, %a tag, %c delivery count, %K %V lengths, %% and \n \t \xHH.
    Without --group, a consumer group of our own is made, and deleted at the end.
    """
    to_bytes = as_json if output is Output.JSON else formatter(format)
    begin = moment(start)
    name = group or f"fmq-{random.getrandbits(48):012x}"
    printed = 0

    async def work() -> None:
        nonlocal printed
        async with client(brokers) as connected:
            try:
                async with connected.consumer(topic, group=name, start=begin) as sub:
                    end = await _end(connected, topic) if exit_at_end else None
                    quiet_s = 0.0
                    while not count or printed < count:
                        wait_s = _LOOK_S if end is not None or timeout else None
                        most = min(_FETCH, count - printed) if count else _FETCH
                        messages = await sub.fetch(most, wait_s)
                        if messages:
                            quiet_s = 0.0
                            write(b"".join(map(to_bytes, messages)))
                            printed += len(messages)
                            for message in messages if ack else ():
                                message.ack_now()
                            continue
                        quiet_s += wait_s or 0
                        if timeout and quiet_s >= timeout:
                            break
                        if end is not None and await _is_there(connected, sub, name, topic, end):
                            break
                    if printed:
                        await sub.commit()
            finally:
                if group is None:
                    with suppress(FmqError):
                        await connected.admin().delete_group(name)

    try:
        run(work)
    finally:
        talk(f"{printed:,} messages")
    if count and printed < count:
        raise typer.Exit(FAILED)


async def _end(connected: Any, topic: str) -> dict[tuple[str, int], int]:
    rows = await connected.admin().offsets(topic=topic)
    return {(row.broker_group, row.queue): row.end for row in rows}


async def _is_there(
    connected: Any, sub: Any, group: str, topic: str, end: dict[tuple[str, int], int]
) -> bool:
    """Tell whether the group is done with all that was there, whoever of its members did it."""
    await sub.commit()
    rows = await connected.admin().offsets(group, topic)
    done = {(row.broker_group, row.queue): row.committed for row in rows}
    return all(done.get(place, 0) >= offset for place, offset in end.items())
