"""A live broker's announcement: `groups/<g>/live/<id>`, an ephemeral node."""

from dataclasses import dataclass
from typing import Final

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.codec import Decoding, dump_json, load_json, read_text


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """What a broker announces about itself in its ephemeral node."""

    id: BrokerId
    incarnation: str
    address: str
    epoch: Epoch  # newest epoch in its journal
    end: Position
    clean: bool = True
    # it acts on a wished master (ADR 0022); one that does not say so may not
    supports_switchover: bool = False


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
            "supports_switchover": live.supports_switchover,
        }
    )


_FORMER_NAMES: Final = {"moves": "supports_switchover"}


def live_from_json(raw: bytes) -> LiveBroker:
    """Decode a live node; raise `Malformed` naming the field."""
    with Decoding("live node"):
        data = load_json(raw, _FORMER_NAMES)
        return LiveBroker(
            id=BrokerId(read_text(data["id"])),
            incarnation=read_text(data["incarnation"]),
            address=read_text(data["address"]),
            epoch=Epoch(int(data["epoch"])),
            end=Position(int(data["end"])),
            clean=bool(data.get("clean", True)),
            supports_switchover=bool(data.get("supports_switchover", False)),
        )
