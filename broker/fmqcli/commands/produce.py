"""`fmq produce`: send lines of a file or of standard input, one message each."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fmqcli.common import BROKERS, FAILED, Brokers, Output, OutputOption, client, run
from fmqcli.given_names import name_option, name_parser
from fmqcli.send_job import SendJob
from fmqcli.send_waits import active_sender
from fmqcli.stdio.input_paths import STANDARD_INPUT, file_to_read, only_file, require_input
from fmqcli.stdio.lines import everything, lines
from fmqcli.stdio.writer import Writer
from fmqclient.admin.infos import TopicInfo
from fmqclient.client import Client
from fmqclient.producer.accumulator import pinned_group
from fmqclient.producer.ordered import OrderedProducer
from fmqclient.settings import LEVELS
from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.ids import GroupName

_NAME = "fmq-produce"
_OF_THE_CHAIN = "--ordered: the chain selects the group and every copy is awaited"
_LONGEST_NAME = 65_535  # bytes of a header's name
_FILE_HELP = "read this file; - or left out: standard input"


_KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help="separator: a line is KEY, this text, VALUE"
    ),
]
_Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="for all")
]
_Name = Annotated[
    str | None,
    name_option("sender", "with --ordered: the sender's name, as the status shows it"),
]
_AcceptUnknownEnd = Annotated[
    bool,
    typer.Option(
        "--accept-unknown-end",
        help="with --ordered: start although a group that is down may hold earlier records",
    ),
]

_Files = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", metavar="FILE", parser=file_to_read, help=_FILE_HELP),
]


def produce(
    topic: Annotated[str, typer.Argument(parser=name_parser("topic"), help="the topic")],
    file: _Files = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="the key of every message")] = None,
    key_separator: _KeySeparator = None,
    header: _Header = None,
    tag: Annotated[str | None, typer.Option(help="the tag of every message")] = None,
    acks: Annotated[str, typer.Option(help=f"one of {', '.join(LEVELS)}")] = "replicated",
    rate: Annotated[float, typer.Option(min=0, help="messages per second; 0 = no limit")] = 0,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=0, help="stop after this number of messages; 0 = all"),
    ] = 0,
    whole: Annotated[bool, typer.Option("--whole", help="the input is one message")] = False,
    group: Annotated[str | None, name_option("group", "send to this broker group only")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="send to this queue only")] = None,
    linger_ms: Annotated[
        float,
        typer.Option(min=0, max=1_000_000, help="milliseconds to gather messages for a batch"),
    ] = 0,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="send to an ordered topic, as its one active sender")
    ] = False,
    name: _Name = None,
    accept_unknown_end: _AcceptUnknownEnd = False,
    results: Annotated[
        bool, typer.Option("--print", "-p", help="print where each message was stored")
    ] = False,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Send each line as a message, and wait until all are stored.

    Exit code 0 only if every message is. Where --print says so, standard output gets a line per
    message, in order: group, queue, offset. With --ordered it waits for the role of the topic's
    active sender first, and ends when it loses the role.
    """
    if acks not in LEVELS:
        raise InvalidArgument(f"--acks {acks!r} is none of {', '.join(LEVELS)}")
    placed = group is not None or acks != "replicated"
    of_sender = {"--name": name is not None, "--accept-unknown-end": accept_unknown_end}
    _refuse_pairs(output, results, ordered, of_sender, placed, key, key_separator)
    fixed = _fixed(header or [], tag, group, queue)
    fixed["unanswered"] = acks == "one_way"
    separator = None if key_separator is None else _separator(key_separator)
    path = only_file(file) if file else STANDARD_INPUT
    if path == STANDARD_INPUT:
        require_input()
    job = SendJob(topic, key, separator, fixed, rate, count, output)
    producer_of = (
        partial(
            _sender,
            topic=topic,
            queue=queue,
            name=name or _NAME,
            linger_ms=linger_ms,
            accept_unknown_end=accept_unknown_end,
        )
        if ordered
        else partial(_producer, topic=topic, group=group, queue=queue, acks=acks, linger=linger_ms)
    )
    source = _whole if whole else lines
    work = partial(_work, brokers, topic, job, producer_of, source, results=results)
    with ExitStack() as files:  # not in the loop: to open a pipe waits for who writes it
        from_stdin = path == STANDARD_INPUT
        fd = (sys.stdin if from_stdin else files.enter_context(path.open("rb"))).fileno()
        files.callback(job.report_cut_short)
        failed = run(partial(work, fd), while_read=results)
    raise typer.Exit(FAILED if failed else 0)


async def _work(
    brokers: str,
    topic: str,
    job: SendJob,
    producer_of: Callable[[Client, TopicInfo], AbstractAsyncContextManager[Any]],
    source: Callable[[int], AsyncIterator[list[bytes]]],
    fd: int,
    *,
    results: bool,
) -> int:
    """Send everything of a file; return how many messages failed."""
    writer = Writer(sys.stdout.fileno()) if results else None
    async with client(brokers) as connected:
        known = await connected.admin().topic(topic)  # before the first line is typed
        try:
            async with producer_of(connected, known) as producer, job.watched(producer):
                await job.send(producer, source(fd), writer)
        except BaseException:  # an interrupt, a line that is no message
            await job.end_early()
            raise
        finally:
            if writer is not None:
                writer.close()
    return job.failed


@asynccontextmanager
async def _producer(
    connected: Client,
    known: TopicInfo,
    *,
    topic: str,
    group: str | None,
    queue: int | None,
    acks: str,
    linger: float,
) -> AsyncIterator[Any]:
    """An ordinary producer, for an ordinary topic that has the place."""
    if known.ordered:
        raise InvalidArgument(f"topic {topic} is ordered: give --ordered")
    _check_place(known, group, queue)
    async with connected.producer(acks=acks, linger_ms=linger) as producer:
        yield producer


def _fixed(
    headers: list[str], tag: str | None, group: str | None, queue: int | None
) -> dict[str, Any]:
    """What is the same for all messages."""
    return {
        "headers": dict(map(_header, headers)) or None,
        "group": group,
        "queue": queue,
        "tag": None if tag is None else tag.encode(),
    }


@asynccontextmanager
async def _sender(
    connected: Client, known: TopicInfo, *, topic: str, queue: int | None, **settings: Any
) -> AsyncIterator[Any]:
    """An ordered producer under the methods that a job uses; says what it waits for meanwhile."""
    if known.ordered and queue is not None:
        _check_place(known, known.groups[0].group, queue)  # all groups have the same queues
    producer = connected.ordered_producer(topic, **settings)
    async with active_sender(producer):
        yield _OrderedSends(producer)


class _OrderedSends:
    """An ordered producer as a job calls an ordinary one."""

    def __init__(self, producer: OrderedProducer) -> None:
        self._producer = producer

    @property
    def outstanding(self) -> int:
        """Number of messages without an outcome."""
        return self._producer.outstanding

    @property
    def connected(self) -> dict[str, str]:
        """The group that takes the sends, and why it does not."""
        return self._producer.connected

    def send_nowait(
        self, _topic: str, value: bytes, *, group: str | None = None, **fixed: Any
    ) -> "asyncio.Future[Any]":
        """Send to the ordered producer's own topic."""
        assert group is None, "refused before"
        return self._producer.send_nowait(value, **fixed)


def _check_place(topic: Any, group: str | None, queue: int | None) -> None:
    """There is such a queue. Raises `InvalidArgument`, `NotFound`, `UnknownQueue`."""
    if group is None and queue is None:
        return
    if group is None and len(topic.groups) != 1:
        names = ", ".join(sorted(g.group for g in topic.groups))
        raise InvalidArgument(f"--queue {queue} needs --group, too: {topic.name} is in {names}")
    if group is not None and not topic.queues_in(group):
        names = ", ".join(sorted(g.group for g in topic.groups))
        raise NotFound(f"topic {topic.name} has no queue in group {group!r}; it is in: {names}")
    pinned_group(topic, None if group is None else GroupName(group), queue)


def _refuse_pairs(
    output: Output,
    results: bool,
    ordered: bool,
    of_sender: Mapping[str, bool],
    placed: bool,
    key: str | None,
    key_separator: str | None,
) -> None:
    """Raise `InvalidArgument` for options that do not go together.

    `of_sender`: by option of --ordered, whether it is given. `placed`: a group or a level is.
    """
    pairs = {
        "-o json is how --print prints: give that, too": output is Output.JSON and not results,
        _OF_THE_CHAIN: ordered and placed,
        **{
            f"{option} is for --ordered: give that, too": given and not ordered
            for option, given in of_sender.items()
        },
        "--key and --key-separator: one of both": None not in (key, key_separator),
    }
    if found := next((sentence for sentence, holds in pairs.items() if holds), ""):
        raise InvalidArgument(found)


def _separator(text: str) -> bytes:
    """As given, with escapes like those of Python's strings."""
    try:
        if read := text.encode().decode("unicode_escape"):
            # Characters outside ASCII came through as the single bytes of their UTF-8.
            return read.encode("latin-1") if not text.isascii() else read.encode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        pass
    raise InvalidArgument(f"--key-separator {text!r} is no text: one like ':' or '\\t'")


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgument(f"--header {text[:99]!r} must be NAME=VALUE")
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidArgument(
            f"--header: a name has at most {_LONGEST_NAME:,} bytes, this one {len(name.encode()):,}"
        )
    return name, value


async def _whole(fd: int) -> AsyncIterator[list[bytes]]:
    yield [await everything(fd)]
