"""Checks each end of a segment when its master writes it into the chain.

The master has a durable SEAL with that end, and every member of the group holds all up to it: a
master that is alone must not end a segment at its own end. A takeover reader needs neither: its
claim has ended every later ack, and acks need its disk.

Members count with the most that was ever seen on their disks, so an emptied disk, of which the
master cannot know yet, is no finding.
"""

from collections.abc import Iterator
from typing import Protocol

from fmqbroker.journal.journal import Journal
from fmqcore.ids import Position, TopicId
from fmqcore.zk.chain import Chain, Segment
from fmqcore.zk.group_state import Mode
from fmqsim.report.broker_watch import Insight


class EndWorld(Protocol):
    """What the check sees of the world (`scenario.world.World`)."""

    def insight(self, broker: str) -> Insight | None:
        """Return the insight into a broker's process; None if it does not run."""
        ...

    def most_durable(self, group: str) -> dict[str, int]:
        """Return the furthest durable end that was ever seen of each configured member."""
        ...


def wrong_end(world: EndWorld, broker: str, chain: Chain, segment: Segment) -> Iterator[str]:
    """Yield what is wrong with an end that this broker is about to write."""
    insight, end = world.insight(broker), segment.end
    if insight is None or insight.gate is None or insight.journal is None or end is None:
        return
    if insight.gate.mode is not Mode.MASTER:
        return
    journal, name = insight.journal, f"segment {segment.number} of {chain.topic}"
    seal = journal.state.seals.get(TopicId(chain.topic_id), {}).get(segment.number)
    if seal is None or seal.ends != end or seal.end > journal.durable_end:
        yield f"{broker} ends {name} at {end}, and has no durable SEAL with that end"
    for member, durable_end in world.most_durable(str(segment.group)).items():
        held = _ends_at(journal, chain, Position(durable_end))
        if held is not None and any(h < e for h, e in zip(held, end, strict=True)):
            yield f"{broker} ends {name} at {end}, and {member} holds {held} only"


def _ends_at(journal: Journal, chain: Chain, position: Position) -> tuple[int, ...] | None:
    """Return the queues' ends below a position; None: the index does not reach it."""
    if position < journal.index_start:
        return None
    topic = TopicId(chain.topic_id)
    return tuple(journal.committed_offset(topic, q, position) for q in range(chain.queues))
