"""A group's configuration: `groups/<g>/config`."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fmqcore.ids import BrokerId, GroupName, Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts, mark_of
from fmqcore.zk.codec import Decoding, dump_json, load_json, read_name, read_text


class Removal(Enum):
    """How far the removal of a group has progressed (`fmq cluster remove-group`)."""

    NONE = ""
    DRAINING = "draining"  # it takes no messages, and is read to its end
    EMPTY = "empty"  # every message was consumed: its brokers may be stopped


class KeptOut(NamedTuple):
    """Ordered topics send to other groups, if any can take the sends: brokers are restarted here.

    The operator sets it before it stops a broker, and takes it away once the group is whole.
    """

    reason: str  # for people
    since_ms: int  # wall clock


@dataclass(frozen=True, slots=True)
class Member:
    """One configured broker of a group; `permission` is the most it may ever serve."""

    id: BrokerId
    address: str  # host:port that clients and slaves dial
    zone: str = ""
    permission: Permission = Permission.FULL


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group's configuration. `master` in the node is the wanted master, one of `members`.

    A broker's group store replaces it by the acting master (`acting`); all other code reads that.
    """

    group: GroupName
    master: BrokerId
    members: tuple[Member, ...]
    policy: AckPolicy = AckPolicy()
    strict_takeover: bool = False  # a lost takeover record waits for a person
    # this master is lost for good: who is wanted may be promoted
    declared_lost: BrokerId = BrokerId("")
    removal: Removal = Removal.NONE
    kept_out: KeptOut | None = None

    def member(self, broker: BrokerId) -> Member | None:
        """Return the member with that id; None if there is none."""
        return next((m for m in self.members if m.id == broker), None)

    @property
    def slaves(self) -> tuple[Member, ...]:
        """All members but the master."""
        return tuple(m for m in self.members if m.id != self.master)

    @property
    def policy_mark(self) -> int:
        """A number that identifies the policy and the slaves' zones (`policy.mark_of`)."""
        return mark_of(self.policy, (m.zone for m in self.slaves))


def config_to_json(config: GroupConfig) -> bytes:
    """Encode a group's configuration."""
    return dump_json(
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
            **({"declared_lost": config.declared_lost} if config.declared_lost else {}),
            **({"removal": config.removal.value} if config.removal.value else {}),
            **({"kept_out": config.kept_out._asdict()} if config.kept_out else {}),
        }
    )


_FORMER_NAMES: Final = {"lost": "declared_lost"}


def config_from_json(raw: bytes) -> GroupConfig:
    """Decode a group's configuration; raise `Malformed` naming the field."""
    with Decoding("group config"):
        data = load_json(raw, _FORMER_NAMES)
        policy, kept_out = data.get("policy", {}), data.get("kept_out")
        config = GroupConfig(
            group=GroupName(read_name(data["group"])),
            master=BrokerId(read_name(data["master"])),
            members=tuple(
                Member(
                    id=BrokerId(read_name(m["id"])),
                    address=read_text(m["address"]),
                    zone=read_text(m.get("zone", "")),
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
            declared_lost=BrokerId(read_text(data.get("declared_lost", ""))),
            removal=Removal(data.get("removal", "")),
            kept_out=None
            if kept_out is None
            else KeptOut(read_text(kept_out["reason"]), int(kept_out["since_ms"])),
        )
        ids = [m.id for m in config.members]
        if config.master not in ids or len(set(ids)) < len(ids):
            raise ValueError(f"master {config.master} must be one of the members, each named once")
        return config
