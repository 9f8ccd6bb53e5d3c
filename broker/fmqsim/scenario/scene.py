"""The scene of a seed: the cluster's shape, settings, weather and traffic. Pure but dice.

The faults and their times are in `faults/schedule.py`, drawn from the same seed.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from e2e.history.cluster_events import GroupSetup, Setup
from e2e.traffic.ordered import OrderedReading, OrderedSending
from e2e.traffic.traffic import Member as Reader
from e2e.traffic.traffic import Plan, Seeks, Sending
from fmqbroker.serving.lease import lease_ms
from fmqcore.failover.evidence import Params
from fmqcore.ids import BrokerId, GroupName
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_config import GroupConfig, Member

CLUSTER: Final = "sim"
PORT: Final = 9000
_SETTINGS: Final[dict[str, Any]] = {
    "cluster": CLUSTER,
    "data_dir": "/data",
    "zookeeper": "zk:2181",
    "tail_cache_bytes": 1 << 20,
    "session_timeout_ms": 1200,
    "grant_ms": 800,
    "heartbeat_ms": 200,
    "dead_after_ms": 1200,
    "claim_interval_ms": 100,
    "redial_max_ms": 300,
    "takeover_checkpoint_ms": 150,
    "loop_stall_ms": 400,
    "ack_timeout_ms": 3000,
    "consumer_heartbeat_ms": 600,
    "consumer_dead_after_ms": 2500,
    "consumer_drain_ms": 500,
    "consumer_ack_timeout_ms": 4000,
    "min_free_bytes": 1 << 20,
}


_BURSTS_A_SECOND: Final = 28
"""Bursts per second of all producers: enough batches for a short run at a bearable cost."""


_SLOWLY_S: Final = (0.01, 0.06)
"""Handling times of a slow consumer, which gets more at a time and acks more at a time."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and how many queues each group holds for it."""

    name: str
    queues: int


@dataclass(frozen=True, slots=True)
class Weather:
    """The network and disks without faults."""

    delay_ms: float
    jitter_ms: float
    loss: float
    window_bytes: int
    write_ms: float
    drift: float  # clocks run at most so much faster or slower


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """An ordered topic over all groups, and its clients."""

    topic: str
    queues: int
    sending: tuple[OrderedSending, ...]
    reading: tuple[OrderedReading, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a seed decides before the first event."""

    seed: int
    groups: tuple[GroupConfig, ...]
    settings: dict[str, Any]
    topics: tuple[Topic, ...]
    weather: Weather
    plan: Plan
    shuffle: bool
    faults: tuple[str, ...] = ()  # only these, by their names in the table; none: all
    moves: bool = False  # another master may be wanted at any time
    changing: bool = False  # topics change, and one comes and goes
    ordered: OrderedPlan | None = None  # the clients of an ordered topic


@dataclass(frozen=True, slots=True)
class Focus:
    """Narrows what a seed may draw, to find one kind of mistake in few seeds."""

    slaves: int = 0  # one group, with so many; 0: as drawn
    policy: AckPolicy | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    moves: bool = False
    topics: bool = False
    ordered: bool = False  # an ordered topic over two groups or three
    seek_times: bool = False  # the ordered topic's last seek may go to a time, not to the start


def draw(seed: int, focus: Focus | None = None) -> Scene:
    """Return the scene of a seed."""
    dice = random.Random(f"{seed}/scene")
    focus = focus or Focus()
    groups = (_group(dice, "g1", focus.slaves),) if focus.slaves else _groups(dice)
    if focus.ordered:
        groups = _groups_of_chain(random.Random(f"{seed}/chain"))
    if focus.policy is not None:
        groups = tuple(replace(group, policy=focus.policy) for group in groups)
    topics = tuple(Topic(f"t{n}", dice.choice((1, 2, 3))) for n in range(dice.choice((1, 2))))
    settings = {
        **_SETTINGS,
        "segment_bytes": dice.choice((1, 1, 2, 4)) << 16,
        "retention_bytes": dice.choice((0, 0, 1 << 18)),
        "checkpoint_interval_ms": dice.choice((100, 400, 2000)),
        "offsets_interval_ms": dice.choice((20, 100, 250)),
        "takeover_wait_ms": random.Random(f"{seed}/waits").choice((600, 1500, 3000)),
    }
    weather = Weather(
        delay_ms=dice.choice((0.1, 0.3, 2.0)),
        jitter_ms=dice.choice((0.1, 0.5, 3.0)),
        loss=dice.choice((0.0, 0.0, 0.002)),
        window_bytes=dice.choice((16 << 10, 256 << 10, 4 << 20)),
        write_ms=dice.choice((0.2, 0.5, 2.0)),
        drift=dice.choice((0.0, 0.0001, 0.01)),
    )
    plan = _plan(dice, groups, topics)
    settings |= dict(focus.settings)
    shuffle = dice.random() < 0.5
    asked = focus.faults, focus.moves, focus.topics
    chain = None
    if focus.ordered:
        chain = _ordered_plan(random.Random(f"{seed}/senders"), focus.seek_times)
    return Scene(seed, groups, settings, topics, weather, plan, shuffle, *asked, chain)


def setup_at(at_ms: float, configs: Iterable[GroupConfig], settings: Mapping[str, Any]) -> Setup:
    """Return the configured cluster as an event of a history."""
    return Setup(
        at_ms,
        tuple(map(_setup_of, configs)),
        settings["takeover_checkpoint_ms"],
        settings["retention_bytes"],
        Params(takeover_wait_ms=settings["takeover_wait_ms"]).served_wait_ms,
        lease_ms(settings["session_timeout_ms"]),
    )


def _setup_of(config: GroupConfig) -> GroupSetup:
    return GroupSetup(
        name=config.group,
        master=config.master,
        members=tuple(member.id for member in config.members),
        policy=config.policy,
        zones=tuple(member.zone for member in config.members),
        strict_takeover=config.strict_takeover,
    )


def _groups(dice: random.Random) -> tuple[GroupConfig, ...]:
    slaves = [dice.choice((1, 1, 1, 1, 1, 2, 2, 3))]
    if dice.random() < 0.4:
        slaves.append(dice.choice((0, 1, 1, 2)))
    return tuple(_group(dice, f"g{at}", count) for at, count in enumerate(slaves, 1))


def _groups_of_chain(dice: random.Random) -> tuple[GroupConfig, ...]:
    """Two groups or three, each of two brokers or three: acks of a chain need two disks."""
    count = dice.choice((2, 2, 2, 3))
    return tuple(_group(dice, f"g{at}", dice.choice((1, 1, 1, 2))) for at in range(1, count + 1))


def _ordered_plan(dice: random.Random, seek_times: bool) -> OrderedPlan:
    topic, queues = "chain", dice.choice((1, 1, 2))
    sending = tuple(
        OrderedSending(
            name,
            topic,
            queues,
            burst=dice.choice(((1, 1), (1, 6), (5, 20))),
            size=(24, dice.choice((80, 400, 3000))),
            stay_s=dice.choice(((0.5, 3.0), (4.0, 15.0))),
        )
        for name in ("copier", "deputy")
    )
    reading = (
        OrderedReading("o1", "ledger", topic),
        OrderedReading("o2", "ledger", topic, stay_s=(1.0, 5.0)),
    )[: dice.choice((1, 2))]
    if dice.random() < 0.5:  # it reads segments that have ended
        late = OrderedReading("o3", "audit", topic, stay_s=(0.5, 2.0), rest_s=(2.0, 6.0))
        reading = (*reading, late)
    if dice.random() < 0.4:
        reading = (*reading, OrderedReading("o4", "again", topic, remade=True))
    if dice.random() < 0.4:
        seekers = OrderedReading("o5", "seekers-in-order", topic, seeks=True, to_times=seek_times)
        reading = (*reading, seekers)
    if dice.random() < 0.5:
        sending = tuple(replace(one, accepts=True) for one in sending)
    return OrderedPlan(topic, queues, sending, reading)


def _group(dice: random.Random, name: str, slaves: int) -> GroupConfig:
    zones = dice.choice(((), (), ("a", "b")))
    members = tuple(
        Member(
            BrokerId(f"{name}-{n}"), f"{name}-{n}:{PORT}", zones[n % len(zones)] if zones else ""
        )
        for n in range(slaves + 1)
    )
    return GroupConfig(GroupName(name), members[0].id, members, _policy(dice, slaves, bool(zones)))


def _policy(dice: random.Random, slaves: int, zones: bool) -> AckPolicy:
    many = [HowMany.ONE] * 4 + [HowMany.ALL] * 3 + [HowMany.MAJORITY, HowMany.NONE]
    if slaves >= 3 and zones:
        many += [HowMany.ZONES] * 2
    flush = dice.choice([Flush.FSYNC] * 4 + [Flush.OS_CACHE, Flush.INTERVAL])
    counts = dice.choice([SlaveCounts.DURABLE] * 4 + [SlaveCounts.RECEIVED, SlaveCounts.SENT])
    how = dice.choice(many) if slaves else dice.choice((HowMany.NONE, HowMany.ALL))
    return AckPolicy(flush, 300, counts, how, strict=how is HowMany.ALL and dice.random() < 0.2)


def _plan(dice: random.Random, groups: tuple[GroupConfig, ...], topics: tuple[Topic, ...]) -> Plan:
    sending, members = [], []
    for at, topic in enumerate(topics):
        levels = ["replicated", "replicated", dice.choice(("all", "persisted", "received"))]
        if at:
            levels.pop()
        elif dice.random() < 0.25:
            levels.append("one_way")
        pins = tuple((str(g.group), q) for g in groups for q in range(topic.queues))
        for number, level in enumerate(levels):
            sending.append(
                Sending(
                    f"p{at}{number}",
                    topic.name,
                    level,
                    keys=dice.choice((0, 3, 12)),
                    burst=dice.choice(((1, 1), (1, 3), (2, 5))),
                    size=(24, dice.choice((80, 400, 3000))),
                    window=dice.choice((20, 200)),
                    pins=pins if dice.random() < 0.5 else (),
                    linger_ms=dice.choice((0, 0, 5)),
                    delivery_timeout_s=dice.choice((2.0, 8.0, 20.0)),
                )
            )
        members += [_member(dice, at, number, topic) for number in range(dice.choice((1, 1, 2)))]
    seeking: tuple[Seeks, ...] = ()
    if dice.random() < 0.4:
        members.append(Reader("sought", topics[0].name, "seekers", nacks=0.0, handle_s=_SLOWLY_S))
        seeking = (Seeks("seeker", topics[0].name, "seekers"),)
    elif dice.random() < 0.6:
        members.append(
            Reader("audit", topics[0].name, "audit", nacks=0.0, holds=0.0, handle_s=_SLOWLY_S)
        )
    pause_s = len(sending) / _BURSTS_A_SECOND
    for at, one in enumerate(sending):
        spread_s = pause_s * dice.choice((0.4, 0.9))
        sending[at] = replace(one, pause_s=(pause_s - spread_s, pause_s + spread_s))
    return Plan(tuple(sending), tuple(members), seeking)


def _member(dice: random.Random, at: int, number: int, topic: Topic) -> Reader:
    return Reader(
        f"m{at}{number}",
        topic.name,
        "billing",
        stay_s=None if number == 0 else (1.5, 6.0),
        abrupt=dice.choice((0.0, 0.5)),
        nacks=dice.choice((0.0, 0.03)),
        buffer_bytes=dice.choice((8 << 10, 256 << 10)),
        handle_s=dice.choice(((0.0, 0.01), _SLOWLY_S)),
    )
