"""`fmq group`: consumer groups: list, lag, seek, delete."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from fmqcli.common import (
    BROKERS,
    Brokers,
    Output,
    OutputOption,
    client,
    confirm,
    counted,
    moment,
    run,
    show,
    talk,
)
from fmqcli.given_names import name_option, name_parser
from fmqcli.read_end import withheld_by_reason
from fmqclient.admin.infos import GroupInfo, QueueOffsets
from fmqclient.settings import start_at
from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.zk.chain import Chain

app = typer.Typer(help="Consumer groups: list, lag, seek, delete.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(parser=name_parser("consumer group"), help="the consumer group")
]


@app.command("list")
def list_groups(output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """List the consumer groups."""

    async def work() -> list[GroupInfo]:
        async with client(brokers) as connected:
            groups: list[GroupInfo] = await connected.admin().groups()
            return groups

    groups = run(work)
    rows = [(g.group, g.topic, g.queues, g.lag, len(g.sessions)) for g in groups]
    data = [asdict(g) | {"sessions": sorted(g.sessions)} for g in groups]
    show(output, ("GROUP", "TOPIC", "QUEUES", "LAG", "MEMBERS"), rows, data)


@app.command()
def lag(name: Name, output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """Show how far a consumer group is behind, queue by queue."""

    async def work() -> list[QueueOffsets]:
        async with client(brokers) as connected:
            rows: list[QueueOffsets] = await connected.admin().lag(name)
            return rows

    rows = run(work)
    _show(output, rows)
    for sentence in withheld_by_reason(rows).values():
        talk(sentence)
    behind = counted(sum(row.lag for row in rows), "message")
    talk(f"{behind} behind in {counted(len(rows), 'queue')}")


@app.command()
def seek(
    name: Name,
    topic: Annotated[str, typer.Argument(parser=name_parser("topic"), help="the topic")],
    to: Annotated[str | None, typer.Option(help="earliest, latest, or a time")] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="the next offset to deliver; beyond the end: the end"
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="GROUP/QUEUE",
            help="only this queue, may be repeated; left out: all",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="create the group, at this place, if it does not exist")
    ] = False,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Move a consumer group to a moment or an offset; its members go on from there."""
    if (to is None) == (offset is None):
        raise InvalidArgument("give either --to or --offset")
    start = None if to is None else moment(to)
    queues = [_place(text) for text in queue] if queue else None

    chains: list[Chain] = []

    async def work() -> list[QueueOffsets]:
        async with client(brokers) as connected:
            admin = connected.admin()
            if not create and not await admin.offsets(name, topic):
                raise NotFound(
                    f"there is no consumer group {name!r} on topic {topic}; to make it: --create"
                )
            if start not in (None, "earliest", "latest") and (await admin.topic(topic)).ordered:
                chains.append((await admin.ordered.status(topic))[0].chain)
            rows: list[QueueOffsets] = await admin.seek(
                name, topic, start, offset=offset, queues=queues
            )
            return rows

    rows = run(work)
    if start is not None and chains:
        _report_dropped(chains[0], start_at(start)[1])
    _show(output, rows)


def _report_dropped(chain: Chain, to_ms: int) -> None:
    """Report a time for which a seek went to the oldest segment, as those before are dropped."""
    first = chain.segments[0] if chain.segments else None
    if chain.floor.number and first is not None and to_ms < first.opened_ms:
        opened = datetime.fromtimestamp(first.opened_ms / 1000).astimezone()
        talk(
            f"the segments of that time are dropped: the group begins at segment {first.number}, "
            f"opened at {opened.isoformat(timespec='seconds')}"
        )


@app.command()
def delete(
    name: Name,
    topic: Annotated[
        str | None, name_option("topic", "only its progress on this topic", metavar="TOPIC")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    brokers: Brokers = BROKERS,
) -> None:
    """Forget a consumer group's progress."""

    async def require_existing() -> None:
        async with client(brokers) as connected:
            if not await connected.admin().offsets(name, topic or ""):
                raise NotFound(f"there is no consumer group {name!r}{_on(topic)}")

    if not yes:
        run(require_existing)
        confirm(f"Forget the progress of consumer group {name}{_on(topic)}?")

    async def work() -> int:
        async with client(brokers) as connected:
            deleted: int = await connected.admin().delete_group(name, topic or "")
            return deleted

    talk(f"forgot {name}{_on(topic)} in {counted(run(work), 'queue')}")


def _on(topic: str | None) -> str:
    """Return the words that limit a sentence to a topic."""
    return "" if topic is None else f" on topic {topic}"


def _show(output: Output, rows: Sequence[QueueOffsets]) -> None:
    columns = ("TOPIC", "GROUP", "QUEUE", "COMMITTED", "END", "LAG", "WITHHELD", "FLIGHT",
               "MEMBER")  # fmt: skip
    sessions: dict[str, set[str]] = {}
    for r in rows:
        sessions.setdefault(r.client, set()).add(r.session)
    cells = [
        (
            r.topic,
            r.broker_group,
            r.queue,
            r.committed,
            r.end,
            r.lag,
            r.withheld,
            r.in_flight,
            r.client if r.client and len(sessions[r.client]) == 1 else r.session,
        )
        for r in rows
    ]
    data: list[dict[str, Any]] = [asdict(r) | {"lag": r.lag, "withheld": r.withheld} for r in rows]
    show(output, columns, cells, data)


def _place(text: str) -> tuple[str, int]:
    group, _, queue = text.rpartition("/")
    if not group or not (queue.isascii() and queue.isdigit()):
        raise InvalidArgument(f"--queue {text!r} must be GROUP/QUEUE, e.g. g1/3")
    return group, int(queue)
