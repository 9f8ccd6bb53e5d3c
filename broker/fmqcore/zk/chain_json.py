"""The JSON of a chain: node `ordered/<topic>`. `chain` has the types.

Values per queue are objects (`{"0": 7}`). Unknown keys are kept, of the chain and of each segment:
an older broker must not drop what a newer one has written, because every change rewrites the whole
node.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from fmqcore.ids import MAX_QUEUES, GroupName, Offset, TopicId
from fmqcore.zk.chain import (
    DEFAULT_LEASE_MS,
    Chain,
    ChainGroup,
    Floor,
    PerQueue,
    PerSubscription,
    RecordPlace,
    Segment,
    Sender,
    sorted_pairs,
)
from fmqcore.zk.codec import (
    Decoding,
    dump_json,
    read_extra,
    read_name,
    read_text,
    with_extra,
)


def chain_to_json(chain: Chain) -> bytes:
    """Encode a chain."""
    floor = chain.floor
    known = {
        "topic": chain.topic,
        "queues": chain.queues,
        "groups": [{"group": g.group, "weight": g.weight} for g in chain.groups],
        "closing": chain.closing,
        "closing_class": chain.closing_class,
        "closing_since_ms": chain.closing_since_ms,
        "segments": [_segment_to_dict(s) for s in chain.segments],
        "sender": {"id": chain.sender.id, "epoch": chain.sender.epoch},
        "heads": _places_to_dict(chain),
        "last_start": chain.last_start,
        "floor": {
            "k": floor.number,
            "sender_epoch": floor.sender_epoch,
            "last_sequence": _to_dict(floor.last_sequence),
            "passed": _pairs_to_dict(floor.passed),
            "last_records": {str(q): [*at] for q, at in enumerate(floor.last_records) if at},
        },
        "lease_ms": chain.lease_ms,
        "allow_single": chain.allow_single,
        "topic_id": chain.topic_id,
    }
    return dump_json(with_extra(known, chain.extra))


def chain_from_json(raw: bytes) -> Chain:
    """Decode a chain; raise `Malformed` naming the field."""
    with Decoding("ordered topic's chain"):
        data = json.loads(raw)
        queues = int(data["queues"])
        if not 1 <= queues <= MAX_QUEUES:
            raise ValueError(f"queues: {queues} is not between 1 and {MAX_QUEUES}")
        sender, floor = data.get("sender", {}), data.get("floor", {})
        places = data.get("heads", {})
        heads, start_numbers, start_offsets = _places_from_dict(places, queues)
        return Chain(
            topic=read_name(data["topic"]),
            queues=queues,
            groups=tuple(
                ChainGroup(GroupName(read_name(g["group"])), int(g.get("weight", 1)))
                for g in data["groups"]
            ),
            segments=tuple(_segment_from_dict(s, queues) for s in data.get("segments", ())),
            closing=None if data.get("closing") is None else read_text(data["closing"]),
            closing_class=read_text(data.get("closing_class", "")),
            closing_since_ms=int(data.get("closing_since_ms", 0)),
            sender=Sender(read_text(sender.get("id", "")), int(sender.get("epoch", 0))),
            heads=heads,
            start_numbers=start_numbers,
            start_offsets=start_offsets,
            temporary=frozenset(name for name, own in places.items() if own.get(_TEMPORARY)),
            last_start=int(data.get("last_start", 0)),
            floor=Floor(
                number=int(floor.get("k", 0)),
                sender_epoch=int(floor.get("sender_epoch", 0)),
                last_sequence=_from_dict(floor.get("last_sequence") or {}, queues, empty=True),
                passed=_pairs_from_dict(floor.get("passed", {}), queues),
                last_records=_records_from_dict(floor.get("last_records", {}), queues),
            ),
            lease_ms=int(data.get("lease_ms", DEFAULT_LEASE_MS)),
            allow_single=bool(data.get("allow_single", False)),
            topic_id=TopicId(int(data.get("topic_id", 0))),
            extra=read_extra(data, _CHAIN_KEYS),
        )


_UNKNOWN: Final = "unknown"


_CHAIN_KEYS: Final = frozenset(
    ("topic", "queues", "groups", "closing", "segments", "sender", "heads", "floor", "lease_ms")
) | {"allow_single", "closing_class", "closing_since_ms", "last_start", "topic_id"}


_START_NUMBER: Final = "start_number"


_START_OFFSET: Final = "start_offset"


_TEMPORARY: Final = "temporary"


_SEGMENT_KEYS: Final = frozenset(
    ("k", "group", "sender_epoch", "first_sequence", "start", "end", "last_sequence", "passed")
) | {"loss", "opened_ms", "ended_ms"}


def _segment_to_dict(segment: Segment) -> dict[str, Any]:
    last = segment.last_sequence
    end = None if segment.end is None else _to_dict(segment.end)
    known = {
        "k": segment.number,
        "group": segment.group,
        "sender_epoch": segment.sender_epoch,
        "first_sequence": _to_dict(segment.first_sequence),
        "start": _to_dict(segment.start),
        "end": _UNKNOWN if segment.end_unknown else end,
        "last_sequence": None if last is None else _to_dict(last),
        "passed": _pairs_to_dict(segment.passed),
        "loss": segment.loss,
        "opened_ms": segment.opened_ms,
        "ended_ms": segment.ended_ms,
    }
    return with_extra(known, segment.extra)


def _segment_from_dict(data: Mapping[str, Any], queues: int) -> Segment:
    end = data.get("end")
    unknown = end == _UNKNOWN
    return Segment(
        number=int(data["k"]),
        group=GroupName(read_name(data["group"])),
        sender_epoch=int(data["sender_epoch"]),
        first_sequence=_from_dict(data["first_sequence"], queues),
        start=_from_dict(data["start"], queues),
        end=None if end is None or unknown else _from_dict(end, queues),
        end_unknown=unknown,
        passed=_pairs_from_dict(data.get("passed", {}), queues),
        loss=bool(data.get("loss", False)),
        opened_ms=int(data.get("opened_ms", 0)),
        ended_ms=int(data.get("ended_ms", 0)),
        extra=read_extra(data, _SEGMENT_KEYS),
    )


def _to_dict(values: PerQueue) -> dict[str, int]:
    return {str(queue): value for queue, value in enumerate(values)}


def _from_dict(data: Mapping[str, Any], queues: int, *, empty: bool = False) -> PerQueue:
    if empty and not data:
        return ()
    if len(data) != queues:
        raise ValueError(f"{dict(data)!r} does not have a value for each of {queues} queues")
    return tuple(Offset(int(data[str(queue)])) for queue in range(queues))


def _records_from_dict(data: Mapping[str, Any], queues: int) -> tuple[RecordPlace | None, ...]:
    if not data:
        return ()
    return tuple(_record_from_list(data.get(str(queue))) for queue in range(queues))


def _record_from_list(values: Any) -> RecordPlace | None:
    if values is None:
        return None
    epoch, sequence, number, group, offset = values
    name = GroupName(read_name(group))
    return RecordPlace(int(epoch), int(sequence), int(number), name, Offset(int(offset)))


def _pairs_to_dict(pairs: PerSubscription) -> dict[str, dict[str, int]]:
    return {name: _to_dict(values) for name, values in pairs}


def _pairs_from_dict(data: Mapping[str, Any], queues: int) -> PerSubscription:
    return sorted_pairs({read_name(n): _from_dict(values, queues) for n, values in data.items()})


def _places_to_dict(chain: Chain) -> dict[str, dict[str, Any]]:
    """Each subscription's heads; its starts beside them, as short as can be: most are alike."""
    places: dict[str, dict[str, Any]] = _pairs_to_dict(chain.heads)
    for name, numbers in chain.start_numbers:
        alike = len(set(numbers)) == 1
        places[name][_START_NUMBER] = numbers[0] if alike else _to_dict(numbers)
    for name, offsets in chain.start_offsets:
        places[name][_START_OFFSET] = {q: n for q, n in _to_dict(offsets).items() if n}
    for name in chain.temporary:
        places[name][_TEMPORARY] = True
    return places


def _places_from_dict(
    data: Mapping[str, Mapping[str, Any]], queues: int
) -> tuple[PerSubscription, PerSubscription, PerSubscription]:
    """Return heads, start numbers and start offsets."""
    heads, numbers, offsets = dict[str, PerQueue](), dict[str, PerQueue](), dict[str, PerQueue]()
    for text, place in data.items():
        name, own = read_name(text), dict(place)
        number, offset = own.pop(_START_NUMBER, 0), own.pop(_START_OFFSET, {})
        own.pop(_TEMPORARY, None)
        heads[name] = _from_dict(own, queues)
        if isinstance(number, Mapping):
            numbers[name] = _from_dict(number, queues)
        elif number:
            numbers[name] = (int(number),) * queues
        if offset:
            every = dict.fromkeys(map(str, range(queues)), 0) | dict(offset)
            offsets[name] = _from_dict(every, queues)
    return sorted_pairs(heads), sorted_pairs(numbers), sorted_pairs(offsets)
