"""What ZooKeeper holds, as typed values and their JSON (DESIGN §6). Pure.

    /fmq/<cluster>/groups                names of removed groups; its children are the groups
    /fmq/<cluster>/groups/<g>/config     GroupConfig   written by the operator or `fmq`
    /fmq/<cluster>/groups/<g>/state      GroupState    PERSISTENT, compare-and-set by version
    /fmq/<cluster>/groups/<g>/live/<id>  LiveBroker    EPHEMERAL: evidence, never truth
    /fmq/<cluster>/topics                TopicNumbers  (`topic_numbers.py`)
    /fmq/<cluster>/topics/<t>            TopicConfig

Unknown JSON fields are ignored, so that a newer writer does not stop an older reader.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Any, Generic, TypeVar

from fmqcore.errors import Malformed
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts, mark_of
from fmqcore.words import (
    BrokerId,
    Epoch,
    GroupName,
    Permission,
    Position,
    TopicId,
    is_name,
    no_name,
)

T = TypeVar("T")


class Mode(Enum):
    """Who serves a group (DESIGN §6)."""

    NEW = "NEW"  # no master has ever opened an epoch
    MASTER = "MASTER"
    SLAVE_CONSUME = "SLAVE_CONSUME"
    HANDOVER = "HANDOVER"


class Removal(Enum):
    """How far the removal of a group has come (`fmq cluster remove-group`)."""

    NONE = ""
    DRAINING = "draining"  # it takes no messages, and is read to its end
    EMPTY = "empty"  # every message was consumed: its brokers may be stopped


@dataclass(frozen=True, slots=True)
class Member:
    """One configured broker of a group; `permission` is the most it may ever serve."""

    id: BrokerId
    address: str  # host:port that clients and slaves dial
    zone: str = ""
    permission: Permission = Permission.FULL


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group as configured. `master`, in the node: who is wanted as master, one of `members`.

    A broker's group store puts the acting master in its place (`acting`): all else reads that.
    """

    group: GroupName
    master: BrokerId
    members: tuple[Member, ...]
    policy: AckPolicy = AckPolicy()
    strict_takeover: bool = False  # a lost takeover record waits for a person
    lost: BrokerId = BrokerId("")  # this master is lost for good: who is wanted may be promoted
    removal: Removal = Removal.NONE

    def member(self, broker: BrokerId) -> Member | None:
        """The member of that name."""
        return next((m for m in self.members if m.id == broker), None)

    @property
    def slaves(self) -> tuple[Member, ...]:
        """All members but the master."""
        return tuple(m for m in self.members if m.id != self.master)

    @property
    def policy_mark(self) -> int:
        """By which the policy, and the slaves that it counts, are known again."""
        return mark_of(self.policy, (m.zone for m in self.slaves))


@dataclass(frozen=True, slots=True)
class GroupState:
    """The one truth of who serves a group.

    `txn` is the writer's own token: after a connection loss it tells whether the write was ours.
    `offsets` is the takeover record: a base64 OFFSETS payload, checkpointed by the reader.
    `reader` is who serves (in HANDOVER: served) the reads: the master's own name in mode MASTER.
    `served_end`: so much of the journal the readers of this takeover may have shown. In a MASTER
    state it is not 0 only if the master opened its term without all of that.
    `heir`: the incarnation of the reader to which the master gave its whole journal with the reads;
    "" once anybody has claimed. `base`: not 0 from a claim of mastership until its term is opened:
    the journal of `master` must have that epoch, or every member but `lost` be heard first.
    `opened`: the newest term that a master opened; its journal has that epoch, for it was durable
    there before it stood here. 0: not known, an older version wrote this.
    """

    mode: Mode = Mode.NEW
    epoch: Epoch = Epoch(0)
    master: BrokerId = BrokerId("")
    reader: BrokerId = BrokerId("")
    isr: frozenset[BrokerId] = frozenset()  # slaves in sync; the master is not in it
    offsets: str = ""
    sealed: bool = False  # `offsets` is the whole frozen record of a reader that handed over
    degraded: bool = False  # the last return lost a takeover record's tail
    why: str = ""  # the last change, for people
    txn: str = ""
    served_end: Position = Position(0)
    heir: str = ""
    base: Epoch = Epoch(0)
    lost: BrokerId = BrokerId("")  # the master from which a promoted one took over
    opened: Epoch = Epoch(0)


def begun_again(state: GroupState) -> GroupState:
    """A person decides to go on with what the journals hold now.

    As if no term had been opened, but that the epochs go on, and the acting master stays: it opens
    the next term once it has heard every member, if anybody's journal holds anything.
    """
    why = "a person let the group begin again with what its journals hold"
    return GroupState(epoch=state.epoch, master=state.master, why=why)


def acting(config: GroupConfig, state: GroupState) -> GroupConfig:
    """The configuration with the acting master in the place of the wanted one."""
    if state.master in ("", config.master):
        return config
    return replace(config, master=state.master)


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """What a broker says of itself in its ephemeral node."""

    id: BrokerId
    incarnation: str
    address: str
    epoch: Epoch  # newest epoch in its journal
    end: Position
    clean: bool = True
    moves: bool = False  # it acts on a wished master (ADR 0022); one that does not say so may not


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group that holds queues of a topic. Weight 0: no new messages, still read."""

    group: GroupName
    queues: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic: its number, and which groups hold how many queues of it."""

    name: str
    id: TopicId
    groups: tuple[TopicGroup, ...] = ()

    def queues_in(self, group: GroupName) -> int:
        """Queues that `group` holds of it; 0 if none."""
        return next((g.queues for g in self.groups if g.group == group), 0)

    def queues_before(self, group: GroupName) -> int | None:
        """Queues in the groups that are listed before `group`; None if no other one has any."""
        if all(g.group == group or not g.queues for g in self.groups):
            return None
        before = takewhile(lambda g: g.group != group, self.groups)
        return sum(g.queues for g in before)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value as read from its node, with the node's version for compare-and-set; -1 = absent."""

    value: T
    version: int


def config_to_json(config: GroupConfig) -> bytes:
    """Encode a group's configuration."""
    return _dump(
        {
            "group": config.group,
            "master": config.master,
            "members": [
                {"id": m.id, "address": m.address, "zone": m.zone, "permission": m.permission.name}
                for m in config.members
            ],
            "policy": {
                "flush": config.policy.flush.value,
                "flush_interval_ms": config.policy.flush_interval_ms,
                "counts": config.policy.counts.value,
                "how_many": config.policy.how_many.value,
                "strict": config.policy.strict,
            },
            "strict_takeover": config.strict_takeover,
            **({"lost": config.lost} if config.lost else {}),
            **({"removal": config.removal.value} if config.removal.value else {}),
        }
    )


def config_from_json(raw: bytes) -> GroupConfig:
    """Decode a group's configuration; raise `Malformed` saying which field."""
    with _Decoding("group config"):
        data = json.loads(raw)
        policy = data.get("policy", {})
        config = GroupConfig(
            group=GroupName(_name(data["group"])),
            master=BrokerId(_name(data["master"])),
            members=tuple(
                Member(
                    id=BrokerId(_name(m["id"])),
                    address=_text(m["address"]),
                    zone=_text(m.get("zone", "")),
                    permission=Permission[m.get("permission", "FULL")],
                )
                for m in data["members"]
            ),
            policy=AckPolicy(
                flush=Flush(policy.get("flush", "fsync")),
                flush_interval_ms=int(policy.get("flush_interval_ms", 1000)),
                counts=SlaveCounts(policy.get("counts", "durable")),
                how_many=HowMany(policy.get("how_many", "one")),
                strict=bool(policy.get("strict", False)),
            ),
            strict_takeover=bool(data.get("strict_takeover", False)),
            lost=BrokerId(_text(data.get("lost", ""))),
            removal=Removal(data.get("removal", "")),
        )
        ids = [m.id for m in config.members]
        if config.master not in ids or len(set(ids)) < len(ids):
            raise ValueError(f"master {config.master} must be one of the members, each named once")
        return config


def removed_to_json(groups: Collection[GroupName]) -> bytes:
    """Encode the names of removed groups; a cluster without any has no text there."""
    return _dump({"removed": sorted(groups)}) if groups else b""


def removed_from_json(raw: bytes) -> frozenset[GroupName]:
    """Decode the names of removed groups; raise `Malformed` saying which field."""
    if not raw:
        return frozenset()
    with _Decoding("names of removed groups"):
        return frozenset(GroupName(_name(name)) for name in json.loads(raw).get("removed", ()))


def state_to_json(state: GroupState) -> bytes:
    """Encode a group's state."""
    return _dump(
        {
            "mode": state.mode.value,
            "epoch": state.epoch,
            "master": state.master,
            "reader": state.reader,
            "isr": sorted(state.isr),
            "offsets": state.offsets,
            "served_end": state.served_end,
            "heir": state.heir,
            "base": state.base,
            "lost": state.lost,
            "opened": state.opened,
            "sealed": state.sealed,
            "degraded": state.degraded,
            "why": state.why,
            "txn": state.txn,
        }
    )


def state_from_json(raw: bytes) -> GroupState:
    """Decode a group's state; raise `Malformed` saying which field."""
    with _Decoding("group state"):
        data = json.loads(raw)
        return GroupState(
            mode=Mode(data["mode"]),
            epoch=Epoch(int(data["epoch"])),
            master=BrokerId(_text(data.get("master", ""))),
            reader=BrokerId(_text(data.get("reader", ""))),
            isr=frozenset(BrokerId(_text(b)) for b in data.get("isr", ())),
            offsets=_text(data.get("offsets", "")),
            served_end=Position(int(data.get("served_end", 0))),
            heir=_text(data.get("heir", "")),
            base=Epoch(int(data.get("base", 0))),
            lost=BrokerId(_text(data.get("lost", ""))),
            opened=Epoch(int(data.get("opened", 0))),
            sealed=bool(data.get("sealed", False)),
            degraded=bool(data.get("degraded", False)),
            why=_text(data.get("why", "")),
            txn=_text(data.get("txn", "")),
        )


def live_to_json(live: LiveBroker) -> bytes:
    """Encode a live node."""
    return _dump(
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
    """Decode a live node; raise `Malformed` saying which field."""
    with _Decoding("live node"):
        data = json.loads(raw)
        return LiveBroker(
            id=BrokerId(_text(data["id"])),
            incarnation=_text(data["incarnation"]),
            address=_text(data["address"]),
            epoch=Epoch(int(data["epoch"])),
            end=Position(int(data["end"])),
            clean=bool(data.get("clean", True)),
            moves=bool(data.get("moves", False)),
        )


def topic_to_json(topic: TopicConfig) -> bytes:
    """Encode a topic."""
    return _dump(
        {
            "name": topic.name,
            "id": topic.id,
            "groups": [
                {"group": g.group, "queues": g.queues, "weight": g.weight} for g in topic.groups
            ],
        }
    )


def topic_from_json(raw: bytes) -> TopicConfig:
    """Decode a topic; raise `Malformed` saying which field."""
    with _Decoding("topic"):
        data = json.loads(raw)
        return TopicConfig(
            name=_name(data["name"]),
            id=TopicId(int(data["id"])),
            groups=tuple(
                TopicGroup(GroupName(_name(g["group"])), int(g["queues"]), int(g.get("weight", 1)))
                for g in data["groups"]
            ),
        )


def _dump(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _name(value: Any) -> str:
    text = _text(value)
    if not is_name(text):
        raise ValueError(no_name("group, broker or topic", text))
    return text


class _Decoding:
    """Turns what a bad document raises into one `Malformed`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (KeyError, ValueError, TypeError, AttributeError)):
            raise Malformed(f"{self._what} does not decode: {error!r}") from error
