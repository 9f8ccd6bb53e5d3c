"""`fmq topic`: create, list, describe, alter, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmqcli.commands.ordered import chain_groups
from fmqcli.common import BROKERS, Brokers, Output, OutputOption, client, confirm, run, show, talk
from fmqcli.given_names import name_parser
from fmqcli.read_end import withheld_by_reason
from fmqclient.admin.infos import QueueOffsets, TopicInfo
from fmqcore.errors import InvalidArgument
from fmqcore.ids import MAX_QUEUES

if TYPE_CHECKING:
    from fmqclient.admin.client import Admin

app = typer.Typer(help="Topics: create, list, describe, alter, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(parser=name_parser("topic"), help="the topic")]
ChainGroups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="GROUP[:WEIGHT],...",
        help="for an ordered topic all its groups, two or more; WEIGHT: the rank, from 1 on",
    ),
]


@app.command()
def create(
    name: Name,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            "-q",
            min=1,
            max=MAX_QUEUES,
            help="number of queues in each broker group; left out: 8, for an ordered topic 1",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP[:WEIGHT]", help="left out: every group"),
    ] = None,
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="one strict order over --groups, per queue"),
    ] = False,
    groups: ChainGroups = None,
    allow_single: Annotated[
        bool,
        typer.Option(
            "--allow-single", help="allow --ordered on groups of one broker, to try it out"
        ),
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists")] = False,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Create a topic."""
    _check_ordered(ordered=ordered, group=group, groups=groups, allow_single=allow_single)
    weights = chain_groups(groups) if groups is not None else _groups(group or []) or None

    async def work() -> TopicInfo:
        async with client(brokers) as connected:
            admin: Admin = connected.admin()
            if ordered:
                return await admin.ordered.create(
                    name,
                    weights or {},
                    queues=queues or 1,
                    allow_single=allow_single,
                    if_not_exists=if_not_exists,
                )
            return await admin.create_topic(
                name, queues=queues or 8, groups=weights, if_not_exists=if_not_exists
            )

    _show(output, [run(work)])


@app.command("list")
def list_topics(output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """List all topics."""
    _show(output, run(lambda: _topics(brokers)))


@app.command()
def describe(name: Name, output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """Show a topic's queues: where they are, and their offsets."""

    async def work() -> tuple[TopicInfo, list[QueueOffsets]]:
        async with client(brokers) as connected:
            admin = connected.admin()
            return await admin.topic(name), await admin.offsets(topic=name)

    topic, found = run(work)
    weights = {str(g.group): g.weight for g in topic.groups}
    ends = {(r.broker_group, r.queue): (r.begin, r.end, r.withheld) for r in found}
    rows = [
        (group, queue, weights.get(group, 0), *offsets)
        for (group, queue), offsets in sorted(ends.items())
    ]
    names = ("group", "queue", "weight", "begin", "end", "withheld")
    data = _json(topic) | {"offsets": [dict(zip(names, row, strict=True)) for row in rows]}
    show(output, [n.upper() for n in names], rows, data)
    for sentence in withheld_by_reason(found).values():
        talk(sentence)


@app.command()
def alter(
    name: Name,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            "-q",
            min=1,
            max=MAX_QUEUES,
            help="number of queues in each group; never fewer than now",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP[:WEIGHT]",
            help="add the topic to this group, or set its weight there; 0: no new messages",
        ),
    ] = None,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="add the topic to every group that lacks it")
    ] = False,
    groups: ChainGroups = None,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Give a topic more queues, more groups, other weights. Nothing that holds messages goes.

    With more queues a key may have another one from now on: what was sent before stays where it
    is, and between two queues there is no order. (How long messages are kept is not a topic's but
    the brokers' matter: their settings retention_ms and retention_bytes.)
    """
    if groups is not None:
        if queues or group or all_groups:
            raise InvalidArgument(
                f"--groups names all groups of ordered topic {name}, and no other property can "
                "be changed: leave --queues, --group and --all-groups out"
            )
        _show(output, [run(lambda: _set_groups(brokers, name, chain_groups(groups)))])
        return
    given = [_weighted(text) for text in group or []]
    weights = {each: weight if ":" in text else None for text, (each, weight) in
              zip(group or [], given, strict=True)}  # fmt: skip
    if len(weights) < len(given):
        raise InvalidArgument("--group: a group is given twice")

    async def work() -> TopicInfo:
        async with client(brokers) as connected:
            topic: TopicInfo = await connected.admin().alter_topic(
                name, queues=queues, groups=weights or None, all_groups=all_groups
            )
            return topic

    _show(output, [run(work)])


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    brokers: Brokers = BROKERS,
) -> None:
    """Delete a topic; its messages go with retention."""

    async def require_existing() -> None:
        async with client(brokers) as connected:
            await connected.admin().topic(name)

    if not yes:
        run(require_existing)
        confirm(f"Delete topic {name} and all its messages?")

    async def work() -> None:
        async with client(brokers) as connected:
            await connected.admin().delete_topic(name)

    run(work)
    talk(f"topic {name} is deleted")


async def _set_groups(brokers: str, name: str, groups: dict[str, int]) -> TopicInfo:
    async with client(brokers) as connected:
        topic: TopicInfo = await connected.admin().ordered.set_groups(name, groups)
        return topic


def _check_ordered(
    *, ordered: bool, group: list[str] | None, groups: str | None, allow_single: bool
) -> None:
    """Refuse options that do not go together, before a broker is asked."""
    if ordered and group:
        raise InvalidArgument("--ordered: name all groups of the chain at once: --groups g1,g2")
    if ordered and groups is None:
        raise InvalidArgument(
            "--ordered needs two groups or more, so that sends go on in another one when a broker "
            "is lost: --groups g1,g2"
        )
    if not ordered and (groups is not None or allow_single):
        option = "--groups" if groups is not None else "--allow-single"
        raise InvalidArgument(
            f"{option} is for ordered topics: add --ordered, or name each group by --group"
        )


async def _topics(brokers: str) -> list[TopicInfo]:
    async with client(brokers) as connected:
        topics: list[TopicInfo] = await connected.admin().topics()
        return topics


def _show(output: Output, topics: list[TopicInfo]) -> None:
    rows = [(t.name, t.id, _queues(t), _where(t)) for t in topics]
    show(output, ("TOPIC", "ID", "QUEUES", "GROUPS"), rows, [_json(t) for t in topics])


def _queues(topic: TopicInfo) -> int:
    """Return the topic's queues: an ordered one has the same in each group."""
    counts = [g.queues for g in topic.groups]
    return max(counts, default=0) if topic.ordered else sum(counts)


def _where(topic: TopicInfo) -> str:
    groups = ", ".join(_group(g, ordered=topic.ordered) for g in topic.groups)
    return f"ordered over {groups}" if topic.ordered else groups


def _group(group: Any, *, ordered: bool) -> str:
    queues = "1 queue" if group.queues == 1 else f"{group.queues} queues"
    weight = "" if group.weight == 1 else f"weight {group.weight}"
    if ordered and not group.weight:
        weight = "left the chain"
    facts = ", ".join(fact for fact in ("" if ordered else queues, weight) if fact)
    return f"{group.group} ({facts})" if facts else str(group.group)


def _json(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.id,
        "ordered": topic.ordered,
        "groups": [
            {"group": g.group, "queues": g.queues, "weight": g.weight} for g in topic.groups
        ],
    }


def _groups(texts: list[str]) -> dict[str, int]:
    groups: dict[str, int] = {}
    for name, weight in map(_weighted, texts):
        if name in groups:
            raise InvalidArgument(f"--group {name!r} is given twice")
        groups[name] = weight
    return groups


def _weighted(text: str) -> tuple[str, int]:
    name, colon, weight = text.partition(":")
    plain = weight.isascii() and weight.isdigit() and len(weight) < 10
    if not name or (colon and not plain):
        raise InvalidArgument(
            f"--group {text!r} must be GROUP or GROUP:WEIGHT, e.g. g1:3, the weight below 10**9"
        )
    return name, int(weight) if colon else 1
