"""The single source of truth for who serves a group: `groups/<g>/state`."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.codec import Decoding, dump_json, load_json, read_text
from fmqcore.zk.group_config import GroupConfig

REASON_BEGIN_AGAIN = "a person let the group begin again with what its journals hold"
"""`reason` of the state that `begin_again_state` makes; no broker writes it."""


class Mode(Enum):
    """How a group is served."""

    NEW = "NEW"  # no master has ever opened an epoch
    MASTER = "MASTER"
    SLAVE_CONSUME = "SLAVE_CONSUME"
    HANDOVER = "HANDOVER"


@dataclass(frozen=True, slots=True)
class GroupState:
    """The single source of truth for who serves a group.

    `write_token` is the writer's own token: after a connection loss it shows whether the write was
    its own. `offsets` is the takeover record: a base64 OFFSETS payload, checkpointed by the reader.
    `reader` is the broker that serves (in HANDOVER: served) the reads: in mode MASTER the master.
    `max_delivered_position`: the end of what the readers of this takeover may have served of the
    journal. In a MASTER state it is not 0 only if the master opened its term without all of that.
    `successor_incarnation`: the incarnation of the reader to which the master gave its whole
    journal with the reads; "" once any broker has claimed. `required_epoch`: not 0 from a claim of
    mastership until its term is opened: the journal of `master` must have that epoch, or it must
    first hear every member but `declared_lost`. `last_opened_epoch`: the newest term that a master
    opened; its journal has that epoch, because the epoch was durable there before it was written
    here. 0: unknown, an older version wrote this.
    """

    mode: Mode = Mode.NEW
    epoch: Epoch = Epoch(0)
    master: BrokerId = BrokerId("")
    reader: BrokerId = BrokerId("")
    isr: frozenset[BrokerId] = frozenset()  # slaves in sync; the master is not in it
    offsets: str = ""
    offsets_final: bool = False  # `offsets` is the whole frozen record of a reader that handed over
    degraded: bool = False  # the last return lost a takeover record's tail
    reason: str = ""  # the last change, for people
    write_token: str = ""
    max_delivered_position: Position = Position(0)
    successor_incarnation: str = ""
    required_epoch: Epoch = Epoch(0)
    declared_lost: BrokerId = BrokerId("")  # the master from which a promoted one took over
    last_opened_epoch: Epoch = Epoch(0)


def begin_again_state(state: GroupState) -> GroupState:
    """Return the state in which the group starts again with what its journals hold now.

    A person decides this. It is as if no term had been opened, except that the epochs continue and
    the acting master stays: it opens the next term once it has heard every member, if any journal
    has records.
    """
    return GroupState(epoch=state.epoch, master=state.master, reason=REASON_BEGIN_AGAIN)


def acting(config: GroupConfig, state: GroupState) -> GroupConfig:
    """Return the configuration with the acting master in place of the wanted one."""
    if state.master in ("", config.master):
        return config
    return replace(config, master=state.master)


def state_to_json(state: GroupState) -> bytes:
    """Encode a group's state."""
    return dump_json(
        {
            "mode": state.mode.value,
            "epoch": state.epoch,
            "master": state.master,
            "reader": state.reader,
            "isr": sorted(state.isr),
            "offsets": state.offsets,
            "max_delivered_position": state.max_delivered_position,
            "successor_incarnation": state.successor_incarnation,
            "required_epoch": state.required_epoch,
            "declared_lost": state.declared_lost,
            "last_opened_epoch": state.last_opened_epoch,
            "offsets_final": state.offsets_final,
            "degraded": state.degraded,
            "reason": state.reason,
            "write_token": state.write_token,
        }
    )


_FORMER_NAMES: Final = {
    "served_end": "max_delivered_position",
    "heir": "successor_incarnation",
    "base": "required_epoch",
    "opened": "last_opened_epoch",
    "sealed": "offsets_final",
    "lost": "declared_lost",
    "why": "reason",
    "txn": "write_token",
}


def state_from_json(raw: bytes) -> GroupState:
    """Decode a group's state; raise `Malformed` naming the field."""
    with Decoding("group state"):
        data = load_json(raw, _FORMER_NAMES)
        return GroupState(
            mode=Mode(data["mode"]),
            epoch=Epoch(int(data["epoch"])),
            master=BrokerId(read_text(data.get("master", ""))),
            reader=BrokerId(read_text(data.get("reader", ""))),
            isr=frozenset(BrokerId(read_text(b)) for b in data.get("isr", ())),
            offsets=read_text(data.get("offsets", "")),
            max_delivered_position=Position(int(data.get("max_delivered_position", 0))),
            successor_incarnation=read_text(data.get("successor_incarnation", "")),
            required_epoch=Epoch(int(data.get("required_epoch", 0))),
            declared_lost=BrokerId(read_text(data.get("declared_lost", ""))),
            last_opened_epoch=Epoch(int(data.get("last_opened_epoch", 0))),
            offsets_final=bool(data.get("offsets_final", False)),
            degraded=bool(data.get("degraded", False)),
            reason=read_text(data.get("reason", "")),
            write_token=read_text(data.get("write_token", "")),
        )
