"""The worlds that are explored: small ones in the tests, large ones by `python -m`."""

from dataclasses import dataclass, field

from fmqcore.tests.ordered.mistakes import (
    ACKED,
    ANOTHER_SENDER,
    BOTH_DEAD,
    OPENED,
    PLANNED_SWITCH,
    READER_AHEAD,
    READER_FORGOTTEN,
    READER_LOST,
    REPEATS_LOST,
    SWITCHED_HELD,
    TAKEN_OVER,
    TWO,
    WITHOUT_END,
)
from fmqcore.tests.ordered.ways import replay
from fmqcore.tests.ordered.world import Faults, Protocol, Size, World, start

ALL = Faults(deaths=9, cuts=9, expiries=9, switches=9, wipes=9)


@dataclass(frozen=True)
class Start:
    """A way to a world, and what may happen from there. `states`: at least so many, to the end."""

    name: str
    script: str
    faults: Faults
    states: int
    size: Size = field(default_factory=lambda: Size(senders=1))
    protocol: Protocol = field(default_factory=Protocol)

    def world(self) -> World:
        """Return the world after the script."""
        return begin(self.script, self.faults, self.size, self.protocol)


def begin(script: str, faults: Faults, size: Size, p: Protocol) -> World:
    """Return the world after a script, with these faults from there on."""
    return replay(start(size, ALL), p, size, script)._replace(faults=faults)


ONE_ACKED = f"""{OPENED}
    A sends 1
    g1 replicates
    g1's slave acks
    g1 acks A
    g1's master dies
    g1's slave dies
    close
    declare the end unknown 1
"""
CONSUMED = f"""{ACKED}
    g1 delivers 1
    {PLANNED_SWITCH}
    A sends 2
    g2 replicates
    g2's slave acks
"""  # 1 is in segment 1 of g1 and consumed, 2 in segment 2 of g2
TWO_QUEUES = f"""{OPENED}
    A sends 1 of queue 0
    A sends 1 of queue 1
    g1 replicates
    g1's slave acks
    close as planned
"""
ACCEPTS = Protocol(accepts_unknown=True)
SMALL = (
    Start("calm", "", Faults(), 100, Size(senders=1, messages=3)),
    Start("a planned switch", ACKED, Faults(switches=1), 500, TWO),
    Start("a late write", ACKED, Faults(switches=1, delays=1), 1_000),
    Start("a death", ACKED, Faults(deaths=1), 5_000),
    Start("a broken stream", ACKED, Faults(cuts=1), 3_000),
    Start("no end", WITHOUT_END, Faults(), 200),
    Start("no end and a switch", WITHOUT_END, Faults(switches=1), 5_000),
    Start("another sender", ACKED, Faults(expiries=1), 500, TWO),
    Start("another sender after a drop", SWITCHED_HELD + "g1 delivers 1\nheads move\n",
        Faults(expiries=1), 10_000, TWO),
    Start("a sender that accepts no end", ONE_ACKED, Faults(expiries=1), 500,
        Size(messages=1), ACCEPTS),
    Start("a group made again", ACKED, Faults(starts=1, switches=1), 5_000, Size(senders=1)),
    Start("a group made again after a drop", CONSUMED, Faults(starts=1), 500, Size(senders=1)),
    Start("a lost reader", READER_AHEAD, Faults(wipes=1), 300),
    Start("a lost reader and another sender", READER_AHEAD, Faults(wipes=1, expiries=1), 300, TWO),
    Start("a lost reader and a switch", READER_LOST, Faults(switches=1, delays=1), 300,
        Size(segments=4, senders=1)),
    Start("a lost reader of repeated records", REPEATS_LOST, Faults(expiries=1), 30_000,
        Size(messages=3)),
    Start("a lost reader of consumed records", READER_FORGOTTEN, Faults(switches=1), 10_000,
        Size(messages=3, segments=4, senders=1)),
    Start("a lost reader of consumed records and another sender", READER_FORGOTTEN,
        Faults(expiries=1), 1_000, Size(messages=2, segments=4)),
    Start("two queues", TWO_QUEUES, Faults(), 300, Size(queues=2, messages=1, senders=1)),
)  # fmt: skip
LARGE = (
    Start("one death from the start", "", Faults(deaths=1, expiries=1), 100_000, TWO),
    Start("a second death", WITHOUT_END, Faults(deaths=1), 100_000),
    Start("a zombie and a switch", ANOTHER_SENDER, Faults(switches=1, delays=1), 20_000, TWO),
    Start("a zombie after a takeover", TAKEN_OVER, Faults(switches=1), 20_000, TWO),
    Start("a death and late writes", ACKED, Faults(deaths=1, delays=2), 50_000),
    Start("two deaths", ACKED, Faults(deaths=2), 1_000_000, Size(senders=1, segments=4)),
    Start("a lost reader and a death", READER_AHEAD, Faults(wipes=1, deaths=1), 20_000, TWO),
    Start("a lost reader of consumed records and four messages", READER_FORGOTTEN,
        Faults(switches=1), 100_000, Size(messages=4, segments=4, senders=1)),
    Start("a lost reader, four messages and a switch", READER_AHEAD, Faults(wipes=1, switches=1),
        500_000, Size(messages=4, segments=4, senders=1)),
    Start("three messages", ACKED, Faults(deaths=1, switches=1), 100_000,
        Size(messages=3, segments=4, senders=1)),
    Start("two queues and a switch", OPENED, Faults(switches=1), 20_000,
        Size(queues=2, messages=1, senders=1)),
    Start("two queues and a death", OPENED, Faults(deaths=1), 100_000,
        Size(queues=2, messages=2, senders=1)),
    Start("a sender that accepts no end, and a death", BOTH_DEAD, Faults(deaths=1, expiries=1),
        50_000, TWO, ACCEPTS),
)  # fmt: skip
