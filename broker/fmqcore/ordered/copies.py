"""Copies of chains in the journals, and what follows when ZooKeeper is behind them. Pure.

A master notes the chain in its journal before the first record of each segment (in the topic's
CONFIG batch, under `CHAIN_COPY`), so SNAPs and slaves have it. ZooKeeper decides; a copy counts
only if ZooKeeper was lost or restored from an older backup: then its chain ends before a segment of
which a journal holds records. What came after the newest copy needs no copy: an end is given again
(its SEAL is in the journal), heads move again by the progress that journals hold, and a segment
without a record is lost without a loss.
"""

import base64
import binascii
import zlib
from dataclasses import replace
from typing import Final, NamedTuple

from fmqcore.errors import Malformed
from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.invariants import require_sound
from fmqcore.ordered.subscriptions import first_number, newest_number
from fmqcore.ordered.transitions import close
from fmqcore.properties import MAX_BYTES, Properties
from fmqcore.zk.chain import Chain, PerSubscription, sorted_pairs
from fmqcore.zk.chain_json import chain_from_json, chain_to_json

CHAIN_COPY: Final = "chain"
"""Name of the property that holds a copy; no topic property may have it."""
_MAX_JSON_BYTES: Final = 1024 * 1024
"""Most bytes that a copy may unpack to."""
_CLOSING: Final = "ZooKeeper holds an older chain than the journals: it is being restored"
_RESTORED: Final = (
    "the chain was restored from a copy in the journals, which may lack later segments without a "
    "record"
)


class ChainCopy(NamedTuple):
    """A chain as it was when its last segment was opened. `packed` "": too large to be kept."""

    number: int  # the last segment's
    packed: str

    def unpack(self) -> Chain | None:
        """Return the chain; None if the copy has only its number. Raises `Malformed`."""
        if not self.packed:
            return None
        try:
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(base64.b64decode(self.packed), _MAX_JSON_BYTES)
            if unpacker.unconsumed_tail or not unpacker.eof:
                raise ValueError(f"more than {_MAX_JSON_BYTES} bytes, or truncated")
        except (ValueError, binascii.Error, zlib.error) as error:
            raise Malformed(f"a chain's copy does not decompress: {error}") from error
        return chain_from_json(raw)


NO_COPY: Final = ChainCopy(0, "")


def copy_in(properties: Properties) -> ChainCopy:
    """Return the copy among a topic's noted properties; `NO_COPY` if there is none."""
    value = properties.get(CHAIN_COPY)
    match value:
        case {"k": int(number), "chain": str(packed)}:
            return ChainCopy(number, packed)
    return NO_COPY


def without_copy(properties: Properties) -> Properties:
    """Return the topic's own properties."""
    return Properties(pair for pair in properties.texts if pair[0] != CHAIN_COPY)


def with_copy(properties: Properties, chain: Chain) -> Properties:
    """Return the topic's own properties with a copy of the chain, if there is room for it whole."""
    assert chain.last is not None
    packed = base64.b64encode(zlib.compress(chain_to_json(chain), 9)).decode()
    for text in (packed, ""):
        copied = _with(properties, ChainCopy(chain.last.number, text))
        if copied.size() <= MAX_BYTES:
            return copied
    return properties  # the topic's own properties fill all of the room


def keep_copy(properties: Properties, noted: Properties) -> Properties:
    """Return the topic's new properties with the copy that was noted before."""
    copy = copy_in(noted)
    kept = _with(properties, copy) if copy.number else properties
    return kept if kept.size() <= MAX_BYTES else properties


def _with(properties: Properties, copy: ChainCopy) -> Properties:
    value = Properties.of({CHAIN_COPY: {"k": copy.number, "chain": copy.packed}})
    return Properties((*without_copy(properties).texts, *value.texts))


# ---- when ZooKeeper is behind


def is_behind(chain: Chain, number: int) -> bool:
    """Return whether the chain lacks segment `number`, of which a journal has records (K16)."""
    return number >= chain.next_number


def why_behind(chain: Chain, number: int) -> str:
    """Return the sentence for senders, consumers and people."""
    return (
        f"the chain of ordered topic {chain.topic} in ZooKeeper ends with segment "
        f"{chain.next_number - 1}, and a journal holds records of segment {number}: ZooKeeper was "
        "lost or restored from an older backup; a broker of that segment's group restores the "
        f"chain: see that all groups of {chain.topic} run"
    )


def why_not_restorable(chain: Chain, copy: ChainCopy) -> str | None:
    """Return why the copy cannot replace the chain; None if it can. Raises `Malformed`."""
    known = copy.unpack()
    remedy = (
        "restore a newer backup of ZooKeeper, or delete the topic and create it again (records "
        "that no consumer has read stay in the journals: `fmq job archive`)"
    )
    if known is None:
        return f"its copy in the journals was too large: {remedy}"
    if known.queues != chain.queues:
        return (
            f"the journals hold it with {known.queues} queues, and it was created with "
            f"{chain.queues}: delete it, and create it with --queues {known.queues}"
        )
    return None


def restored(chain: Chain, known: Chain) -> Chain:
    """Return the next chain on the way to `known`, a copy from a journal.

    An open segment is closed first, which ends the leases on it. The restored one is closed, too:
    its sender may have left it for a later segment that got no record, and its master may have
    sealed it.
    """
    if chain.last is not None and chain.closing is None:
        return close(chain, _CLOSING, CloseReason.RESTORE)
    is_new = chain.last is None and not chain.floor.number
    after = require_sound(
        replace(
            known,
            groups=chain.groups if is_new else known.groups,  # of a new one: a person's wish
            heads=_heads(chain, known),
            start_numbers=_start_numbers(chain, known),
            temporary=_temporary(chain, known),
            last_start=max(chain.last_start, known.last_start),
            closing=None,
            closing_class="",
            closing_since_ms=0,
            lease_ms=chain.lease_ms,
            allow_single=chain.allow_single,
            topic_id=chain.topic_id,
        )
    )
    return after if after.last is None else close(after, _RESTORED, CloseReason.RESTORE)


def _start_numbers(chain: Chain, known: Chain) -> PerSubscription:
    """The copy's start numbers, so that progress since these counts (K18)."""
    names = {name for name, _ in known.heads}
    others = {name: numbers for name, numbers in chain.start_numbers if name not in names}
    return sorted_pairs(others | dict(known.start_numbers))


def _temporary(chain: Chain, known: Chain) -> frozenset[str]:
    """The consumer groups that neither knows by name."""
    by_name = {name for c in (chain, known) for name, _ in c.heads if name not in c.temporary}
    return (chain.temporary | known.temporary) - by_name


def _heads(chain: Chain, known: Chain) -> PerSubscription:
    """The copy's heads, and those of consumer groups that it does not know.

    These begin with the first record of their segment: the offset of their start (which the
    restored chain does not have) may be of another segment.
    """
    first, newest = first_number(known), newest_number(known)
    since = {
        name: tuple(max(first, min(number, newest)) for number in numbers)
        for name, numbers in chain.heads
    }
    return sorted_pairs(since | dict(known.heads))
