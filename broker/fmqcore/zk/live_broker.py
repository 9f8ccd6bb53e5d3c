"""A live broker's announcement: `groups/<g>/live/<id>`, an ephemeral node."""

import json
from dataclasses import dataclass

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.codec import Decoding, dump_json, read_text


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """What a broker announces about itself in its ephemeral node."""

    id: BrokerId
    incarnation: str
    address: str
    epoch: Epoch  # newest epoch in its journal
    end: Position
    clean: bool = True
    moves: bool = False  # it acts on a wished master (ADR 0022); one that does not say so may not


def live_to_json(live: LiveBroker) -> bytes:
    """Encode a live node."""
    return dump_json(
        {
            "id": live.id,
            "incarnation": live.incarnation,
            "address": live.address,
            "epoch": live.epoch,
            "end": live.end,
            "clean": live.clean,
            "moves": live.moves,
        }
    )


def live_from_json(raw: bytes) -> LiveBroker:
    """Decode a live node; raise `Malformed` naming the field."""
    with Decoding("live node"):
        data = json.loads(raw)
        return LiveBroker(
            id=BrokerId(read_text(data["id"])),
            incarnation=read_text(data["incarnation"]),
            address=read_text(data["address"]),
            epoch=Epoch(int(data["epoch"])),
            end=Position(int(data["end"])),
            clean=bool(data.get("clean", True)),
            moves=bool(data.get("moves", False)),
        )
