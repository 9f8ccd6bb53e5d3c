"""`fmq ordered`: the chains of ordered topics: status, switch, release."""

import json
import shutil
import sys
from typing import Annotated, Any

import typer

from fmqcli.common import (
    BROKERS,
    Brokers,
    Output,
    OutputOption,
    client,
    confirm,
    run,
    talk,
    write,
)
from fmqcli.given_names import name_option, name_parser
from fmqclient.admin.infos import OrderedTopicStatus
from fmqcore.errors import InvalidArgument
from fmqcore.ordered.waits import read_waits
from fmqcore.zk.chain import Chain, Segment
from fmqcore.zk.chain_json import chain_to_json

app = typer.Typer(
    help="Ordered topics: the chain of segments, switch, release.", no_args_is_help=True
)

Topic = Annotated[str, typer.Argument(parser=name_parser("topic"), help="the ordered topic")]


@app.command()
def status(
    topic: Annotated[
        str | None,
        typer.Argument(parser=name_parser("topic"), help="the ordered topic; left out: all"),
    ] = None,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Show each chain as a picture: its segments, where consumers are, and who waits for what."""

    async def work() -> list[OrderedTopicStatus]:
        async with client(brokers) as connected:
            found: list[OrderedTopicStatus] = await connected.admin().ordered.status(topic or "")
            return found

    found = run(work)
    _show(output, found)
    if not found:
        talk("there is no ordered topic: fmq topic create NAME --ordered --groups GROUP,GROUP")


@app.command()
def switch(
    topic: Topic,
    off: Annotated[
        str | None,
        name_option("group", "switch only if sends go to this group now", "--off", metavar="GROUP"),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="why, as `fmq ordered status` shows it")
    ] = "",
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """Close the open segment, so that sends go on in another group. Nothing is lost."""

    async def work() -> tuple[OrderedTopicStatus, OrderedTopicStatus]:
        async with client(brokers) as connected:
            admin = connected.admin().ordered
            (before,) = await admin.status(topic)
            return before, await admin.switch(topic, off=off or "", reason=reason)

    before, after = run(work)
    if reason := _unswitched(before, after, off):
        talk(f"{reason}: nothing was done")
    _show(output, [after])


def _unswitched(before: OrderedTopicStatus, after: OrderedTopicStatus, off: str | None) -> str:
    """Return why a switch closed no segment; "" if it closed one."""
    topic, chain, last = after.topic, after.chain, after.chain.last
    if after.switched_segment:
        old = before.chain.last
        if old is None or old.number != after.switched_segment or before.chain.closing is None:
            return ""
        state = "has ended" if old.has_ended else "is being closed"
        return f"segment {old.number} of {topic} {state} already ({before.chain.closing})"
    if last is None:
        return f"{topic} has no segment yet"
    groups = sorted({g.group for g in chain.groups} | {s.group for s in chain.segments})
    if off not in groups:
        return f"group {off} is none of the groups of {topic} ({', '.join(groups)})"
    if last.has_ended:
        return f"the last segment of {topic} was in {last.group}, not in {off}, and has ended"
    return f"the sends of {topic} go to {last.group}, not to {off}"


@app.command()
def release(
    topic: Topic,
    segment: Annotated[int, typer.Argument(min=1, help="the segment whose end is unknown")],
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="release the segment even if acknowledged messages are lost"
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    output: OutputOption = Output.TABLE,
    brokers: Brokers = BROKERS,
) -> None:
    """End a segment where the members that are left end it: the others are lost for good."""
    old = run(lambda: _segment(brokers, topic, segment))
    if not yes and old is not None and old.has_ended:  # else it is refused anyway
        loss = "; messages that only a lost member held are LOST" if accept_loss else ""
        confirm(f"End segment {segment} of {topic} where its group's live brokers end it{loss}?")

    async def work() -> OrderedTopicStatus:
        async with client(brokers) as connected:
            after: OrderedTopicStatus = await connected.admin().ordered.release(
                topic, segment, accept_loss=accept_loss
            )
            return after

    after = run(work)
    if old is not None and (new := after.chain.segment(segment)) is not None:
        _report_release(topic, old, new, accept_loss=accept_loss)
    _show(output, [after])


def _report_release(topic: str, old: Segment, new: Segment, *, accept_loss: bool) -> None:
    """Print what a release did that the picture does not show: nothing, or an accepted loss."""
    if new.loss and not old.loss:
        talk(f"the loss at the end of segment {new.number} of {topic} is accepted")
    elif old.end is not None and new.end == old.end:
        done = f"segment {new.number} of {topic} has its end, and its members reach it"
        more = (
            ""
            if accept_loss
            else (
                "; if sends wait for a loss to be accepted, run "
                f"`fmq ordered release {topic} {new.number} --accept-loss`"
            )
        )
        talk(f"{done}: nothing to do{more}")


async def _segment(brokers: str, topic: str, number: int) -> Segment | None:
    """Return a segment of the topic's chain as it is now."""
    async with client(brokers) as connected:
        (found,) = await connected.admin().ordered.status(topic)
    chain: Chain = found.chain
    return chain.segment(number)


def chain_groups(text: str) -> dict[str, int]:
    """Parse `g1,g2:3`: the groups of a chain with their weights. Raises `InvalidArgument`."""
    groups: dict[str, int] = {}
    for item in text.split(","):
        name, colon, weight = item.strip().partition(":")
        plain = weight.isascii() and weight.isdigit() and len(weight) < 10
        if not name or (colon and not plain):
            raise InvalidArgument(
                f"--groups {text!r} must be GROUP[:WEIGHT],GROUP[:WEIGHT], for example g1,g2:3"
            )
        if name in groups:
            raise InvalidArgument(f"--groups {text!r}: group {name} is given twice")
        groups[name] = int(weight) if colon else 1
    return groups


def _show(output: Output, found: list[OrderedTopicStatus]) -> None:
    if output is Output.JSON:
        write(json.dumps([_json(status) for status in found], indent=2).encode() + b"\n")
        return
    from fmqcli.output.chain import picture

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    blocks = ("".join(f"{line}\n" for line in picture(status, width)) for status in found)
    if text := "\n".join(blocks):
        write(text.encode())


def _json(status: OrderedTopicStatus) -> dict[str, Any]:
    return {
        "topic": status.topic,
        "phase": status.phase,
        "reason": status.reason,
        "since_ms": status.since_ms,
        "answered_ms": status.answered_ms,
        "senders": list(status.senders),
        "groups": [{"group": g, "obstacle": o} for g, o in status.obstacles.items()],
        "waiting_subscriptions": [
            {**wait._asdict(), "queues": list(wait.queues)}
            for wait in read_waits(status.chain, status.stuck)
        ],
        "stuck_segments": [{"segment": n, "remedy": text} for n, text in status.stuck.items()],
        "chain": json.loads(chain_to_json(status.chain)),
    }
