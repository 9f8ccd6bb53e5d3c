"""The last records before a new sender's first ones, read from the groups that have them."""

import asyncio
from typing import Final

import structlog

from fmqbroker.ordered.group_ends import GroupEndsCaller
from fmqcore.errors import FmqError
from fmqcore.ids import GroupName
from fmqcore.ordered.senders import records_before
from fmqcore.zk.chain import Chain, RecordPlace
from fmqport.clock import Clock
from fmqproto.v1.client_pb2 import LastRecord

_log = structlog.get_logger()

_TRIES: Final = 3
_PAUSE_S: Final = 0.3


async def last_records(
    caller: GroupEndsCaller, clock: Clock, chain: Chain, sender_epoch: int
) -> dict[int, LastRecord]:
    """Return by queue the last record before that sender epoch's first one.

    Left out: a queue without any. A record that no broker returns after a few tries comes without
    its batch: its sequence is known, and sends go on.
    """
    records = _bare_records(chain, sender_epoch)
    places = records_before(chain, sender_epoch)
    by_group: dict[GroupName, dict[int, RecordPlace]] = {}
    for queue, place in places.items():
        records[queue].ordered_sequence = place.sequence
        records[queue].offset = place.offset
        by_group.setdefault(place.group, {})[queue] = place
    found = await asyncio.gather(
        *(_batches(caller, clock, chain, group, wanted) for group, wanted in by_group.items())
    )
    for batches in found:
        for queue, batch in batches.items():
            records[queue].batch = batch
    return records


def _bare_records(chain: Chain, sender_epoch: int) -> dict[int, LastRecord]:
    own = next((s for s in chain.segments if s.sender_epoch == sender_epoch), None)
    if own is None:
        return {}
    numbers = (first - 1 for first in own.first_sequence)
    return {queue: LastRecord(ordered_sequence=n) for queue, n in enumerate(numbers) if n}


async def _batches(
    caller: GroupEndsCaller,
    clock: Clock,
    chain: Chain,
    group: GroupName,
    places: dict[int, RecordPlace],
) -> dict[int, bytes]:
    offsets = {queue: place.offset for queue, place in places.items()}
    for number in range(_TRIES):
        try:
            return dict((await caller.ask(group, chain, offsets)).batches)
        except FmqError as error:
            reason = str(error)
        if number + 1 < _TRIES:
            await clock.sleep(_PAUSE_S)
    _log.warning("last_records_unread", topic=chain.topic, group=group, error=reason)
    return {}
