"""Convert between wire messages and core values, for both ends of replication.

Not here: the decisions (`fmqcore.replication`) and their timing (`replication/master_stream.py`,
`replication/slave_stream.py`).
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from fmqcore.batch.header import BadBatch
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.replication.epoch_history import EpochStart
from fmqcore.replication.reconciliation import Decision, SlaveView
from fmqport.transport import TransportError
from fmqproto.v1 import replication_pb2 as wire

MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""Maximum bytes of batches in one message (one larger batch goes alone)."""

_EXPECTED: Final = (FmqError, BadBatch, asyncio.CancelledError)


class LinkBroken(FmqError):
    """The other end broke the protocol, or the link must end: close it and dial again."""


def slave_view(hello: wire.Hello) -> SlaveView:
    """Return a Hello as the core's `SlaveView`."""
    return SlaveView(
        cluster=hello.cluster,
        group=GroupName(hello.group),
        broker=BrokerId(hello.broker),
        epochs=[(Epoch(e.epoch), Position(e.start)) for e in hello.epochs],
        journal_start=Position(hello.journal_start),
        end=Position(hello.end),
        durable_end=Position(hello.durable_end),
        commit_end=Position(hello.commit_end),
        reader=hello.is_reader,
        last_header_crc=hello.last_header_crc,
        tail_lost=hello.tail_lost,
        whole=hello.clean,
        emptied=_is_emptied(hello),
    )


def _is_emptied(hello: wire.Hello) -> bool:
    """Return whether the slave's disk was lost and nothing has made it whole since.

    A slave of an older version does not report it: then, whether its disk may have been lost.
    """
    if hello.HasField("emptied"):
        return hello.emptied
    return hello.end == hello.journal_start or hello.tail_lost


def welcome(
    decision: Decision, epochs: Iterable[EpochStart], epoch: Epoch, me: str, incarnation: str
) -> wire.Welcome:
    """Return a decision as the Welcome that the slave reads."""
    return wire.Welcome(
        action=wire.Action.Name(int(decision.action)),
        position=decision.position,
        epochs=epoch_starts(epochs),
        reason=decision.reason,
        epoch=epoch,
        master=me,
        incarnation=incarnation,
    )


def epoch_starts(epochs: Iterable[EpochStart]) -> list[wire.EpochStart]:
    """Return an epoch history in wire form."""
    return [wire.EpochStart(epoch=epoch, start=start) for epoch, start in epochs]


async def until_broken(*duties: Coroutine[Any, Any, None]) -> str:
    """Run a link's duties concurrently until one ends; return why. A bug is raised.

    No `TaskGroup`: if a duty failed and the caller was cancelled at the same moment, it would
    raise only the failure, and a loop around this call would go on for ever.
    """
    tasks = [asyncio.ensure_future(duty) for duty in duties]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    broken = [error for error in ended if isinstance(error, FmqError | BadBatch)]
    for error in ended:
        if error is not None and not isinstance(error, _EXPECTED):
            raise error
    # A stream that was torn down because another duty ended is not the cause.
    broken.sort(key=lambda error: isinstance(error, TransportError))
    return str(broken[0]) if broken else "a duty has ended"
