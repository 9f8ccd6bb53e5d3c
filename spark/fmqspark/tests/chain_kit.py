"""An ordered topic over two groups: its members' journals, the chain, faults on purpose.

As the picture in `docs/internals/ordered.md`: g1 holds segment 1, orphans, and segment 3 (open); g2
holds segment 2, which starts with records that segment 1 has, too. Queue 0 of two; queue 1 has a
few records of the same kind.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fmqcore.batch.control import Seal, encode_seal, encode_topic
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.copies import with_copy
from fmqcore.ordered.headers import header_sender
from fmqcore.properties import NONE
from fmqcore.tests.journal.writer import JournalWriter
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.chain_json import chain_to_json
from fmqspark.source.members import MemberPath
from fmqspark.tests.kit import write

TOPIC = TopicId(7)
G1, G2 = GroupName("g1"), GroupName("g2")
CHAIN = Chain(
    "changes",
    2,
    (ChainGroup(G1), ChainGroup(G2)),
    segments=(
        Segment(1, G1, 1, (1, 1), (0, 0), (40, 6)),
        Segment(2, G2, 1, (39, 7), (0, 0), (32, 0)),
        Segment(3, G1, 1, (71, 7), (42, 6)),
    ),
    sender=Sender("copier-0000000001", 1),
    topic_id=TOPIC,
)
NEXT = 90
"""The sequence after the last one of queue 0 in segment 3."""


def value(queue: int, sequence: int) -> bytes:
    """Return the value of the record with that sequence."""
    return b"%d/%d/" % (queue, sequence) + b"v" * (sequence % 7)


class GroupWriter(JournalWriter):
    """A journal of one group that holds ordered batches."""

    def __init__(self, topic: str = "changes") -> None:
        super().__init__()
        self.open_epoch(1)
        self.topic(TOPIC, topic, 2)

    def send(
        self, queue: int, first: int, last: int, *, sender: int = 1, **fields: Any
    ) -> BatchHeader:
        """Append sequences `first` to `last` as one batch, as a broker writes its header."""
        return self.data(
            TOPIC,
            queue,
            [value(queue, sequence) for sequence in range(first, last + 1)],
            **{**header_sender(sender, first)._asdict(), **fields},
        )

    def note(self, chain: Chain) -> BatchHeader:
        """Append the chain, as a master does before a segment's first record."""
        properties = with_copy(NONE, chain)
        return self.append(BatchType.CONFIG, encode_topic(TOPIC, "changes", 2, properties))

    def seal(self, segment: int) -> BatchHeader:
        """Append SEAL, as the master of a closed segment does."""
        return self.append(BatchType.SEAL, encode_seal(Seal(TOPIC, segment, (0,))))


def batches(first: int, last: int, size: int = 3) -> Iterator[tuple[int, int]]:
    """Cut a range of sequences into batches."""
    for begin in range(first, last + 1, size):
        yield begin, min(begin + size - 1, last)


@dataclass(slots=True)
class Journals:
    """The journals of both groups; all members of a group hold the same."""

    g1: JournalWriter
    g2: JournalWriter


def first_segment() -> GroupWriter:
    """Return g1 up to the end of segment 1, and the orphans above it."""
    writer = GroupWriter()
    for first, last in batches(1, 6):
        writer.send(1, first, last)
    for first, last in batches(1, 42, 2):
        writer.send(0, first, last)
    writer.seal(1)
    return writer


def sound() -> Journals:
    """Return journals that are as the chain says."""
    g1, g2 = first_segment(), GroupWriter()
    for first, last in batches(39, 70):
        g2.send(0, first, last)
    g2.seal(2)
    g1.open_epoch(2)
    for first, last in batches(71, NEXT - 1):
        g1.send(0, first, last)
    g1.send(1, 7, 9)
    return Journals(g1, g2)


def switched(sender: int = 1, *, rolled: bool = False) -> Journals:
    """Return journals that went on after `CHAIN` was written: segment 4 in g2, and 5 in g1.

    `rolled`: each group begins another segment file between the opening and the first record.
    """
    journals = sound()
    fourth = Segment(4, G2, sender, (NEXT, 10), (32, 0))
    fifth = Segment(5, G1, sender, (NEXT + 10, 10), (61, 9))
    chain = CHAIN
    for writer, segment in ((journals.g2, fourth), (journals.g1, fifth)):
        assert isinstance(writer, GroupWriter)
        chain = replace(chain, segments=(*chain.segments, segment))
        writer.seal(segment.number - 1)
        writer.open_epoch(writer.epoch + 1)
        writer.note(chain)
        if rolled:
            writer.roll()
        first = segment.first_sequence[0]
        writer.send(0, first, first + 9, sender=sender)
    return journals


def ordered_rows() -> list[tuple[int, int, int, bytes]]:
    """Return (queue, segment, sequence, value) of all that readers of `CHAIN` get, in order."""
    spans = [(0, 1, 1, 40), (0, 2, 41, 70), (0, 3, 71, NEXT - 1), (1, 1, 1, 6), (1, 3, 7, 9)]
    return [
        (queue, segment, sequence, value(queue, sequence))
        for queue, segment, first, last in spans
        for sequence in range(first, last + 1)
    ]


def members(folder: Path, journals: Journals | None = None) -> tuple[MemberPath, ...]:
    """Write two members of each group."""
    journals = journals or sound()
    return tuple(
        MemberPath(group, str(write(folder / f"{group}-{number}", writer)))
        for group, writer in ((G1, journals.g1), (G2, journals.g2))
        for number in range(2)
    )


def named(paths: tuple[MemberPath, ...]) -> list[str]:
    """Return members as a person names them."""
    return [f"{member.group}={member.path}" for member in paths]


def chain_file(folder: Path, chain: Chain = CHAIN) -> Path:
    """Write what `fmq ordered status -o json` prints of the topic."""
    path = folder / "chain.json"
    status = {"topic": chain.topic, "chain": json.loads(chain_to_json(chain))}
    path.write_text(json.dumps([status]))
    return path


def changed(number: int, **fields: Any) -> Chain:
    """Return the chain with another segment of that number."""
    segments = tuple(replace(s, **fields) if s.number == number else s for s in CHAIN.segments)
    return replace(CHAIN, segments=segments)
