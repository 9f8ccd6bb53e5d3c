"""Read a data directory as it was left: its journal's batches and the resulting state.

Reads bytes by name, so a simulated disk works as well as a real one; uses the scan of `fmqcore`,
which checks every CRC, position, chain, offset and epoch. Repairs nothing and judges nothing:
unreadable parts are reported in `trouble`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from e2e.history.client_events import Place
from e2e.traffic.values import record_of
from fmqcore.batch.columns import BadColumns, decode
from fmqcore.batch.control import decode_epoch
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.scan import Blank, Cursor, Fault, Scan, begin_next
from fmqcore.journal.segments import CHECKPOINT, segment_base
from fmqcore.journal.state import JournalState

NamedBytes = tuple[str, Buffer]


class Batch(NamedTuple):
    """One stored batch; `records` are the numbers in its values (DATA only)."""

    header: BatchHeader
    records: tuple[int, ...]
    keys: tuple[str, ...]
    opened_by: str = ""  # EPOCH: the broker whose term it opens


@dataclass(frozen=True, slots=True)
class Journal:
    """A broker's journal from `journal_start` to `end`."""

    broker: str
    group: str
    journal_start: Position
    end: Position
    batches: tuple[Batch, ...]
    begins: dict[Place, int]  # the first offset kept; a missing place starts at 0
    floors: dict[tuple[str, Place], int]  # (readers, place) → committed offset
    topics: dict[int, str]
    trouble: tuple[str, ...] = ()
    state: JournalState = field(default_factory=JournalState, repr=False)

    def place(self, header: BatchHeader) -> Place:
        """Return the place of a DATA batch's records."""
        topic = self.topics.get(header.topic_id, f"topic-{header.topic_id}")
        return Place(topic, self.group, header.queue_id)


def load_directory(broker: str, group: str, path: Path) -> Journal:
    """Load a real data directory. The broker must have stopped."""
    files = sorted(p for p in path.iterdir() if p.is_file())
    return load(broker, group, [(p.name, p.read_bytes()) for p in files])


def load(broker: str, group: str, files: Iterable[NamedBytes]) -> Journal:
    """Load a journal from (name, bytes) of every file in the directory."""
    named = dict(files)
    walk = _Walk(named)
    walk.run()
    state, topics = walk.state, walk.topics
    begins = {
        Place(topics.get(key[0], f"topic-{key[0]}"), group, key[1]): int(offset)
        for key, offset in walk.begins.items()
    }
    floors = {
        (
            key.group,
            Place(topics.get(key.topic_id, f"topic-{key.topic_id}"), group, key.queue_id),
        ): (int(entry.floor))
        for key, entry in state.offsets.items()
        if not entry.deleted
    }
    return Journal(
        broker=broker,
        group=group,
        journal_start=walk.journal_start,
        end=walk.end,
        batches=tuple(walk.batches),
        begins=begins,
        floors=floors,
        topics=topics,
        trouble=tuple(walk.trouble),
        state=state,
    )


class _Walk:
    """Walks over all segments, in order."""

    def __init__(self, files: dict[str, Buffer]) -> None:
        self.batches: list[Batch] = []
        self.state = JournalState()
        self.topics: dict[int, str] = {}
        self.begins: dict[tuple[int, int], int] = {}
        self.trouble: list[str] = []
        self.journal_start = self.end = Position(0)
        self._until: Position | None = None
        checkpoint = None
        if CHECKPOINT in files:
            try:
                checkpoint = decode_checkpoint(files[CHECKPOINT])
            except Malformed as error:
                self.trouble.append(str(error))
        self._segments = sorted(
            (base, data) for name, data in files.items() if (base := segment_base(name)) is not None
        )
        if checkpoint is not None:
            self._until = checkpoint.drop_from
            self._segments = [s for s in self._segments if s[0] >= checkpoint.journal_start]
            self.journal_start = self.end = checkpoint.journal_start
        elif self._segments:
            self.journal_start = self.end = self._segments[0][0]

    def run(self) -> None:
        cursor = Cursor(self.journal_start, None if self.journal_start else 0)
        for base, data in self._segments:
            if self._until is not None and base >= self._until:
                break
            if base != cursor.position:
                self.trouble.append(f"no segment at {cursor.position}; the next is at {base}")
                break
            begin_next(cursor)
            scan = Scan(data, base, cursor, until=self._until)
            for header in scan:
                self._take(header, scan)
            self.end = cursor.position
            if isinstance(scan.stop, Fault):
                self.trouble.append(f"at {scan.stop.position}: {scan.stop.sentence}")
            if isinstance(scan.stop, Blank | Fault):
                break
        self.topics |= {int(key): name for key, (name, _) in self.state.topics.items()}

    def _take(self, header: BatchHeader, scan: Scan) -> None:
        records: tuple[int, ...] = ()
        keys: tuple[str, ...] = ()
        opened_by = ""
        payload: Buffer = b""
        if header.type == BatchType.DATA:
            records, keys = self._records(header, scan.payload(header))
        else:
            payload = scan.payload(header)
        if header.type == BatchType.EPOCH:
            opened_by = str(decode_epoch(payload).master)
        try:
            apply_batch(self.state, header, payload)
        except Malformed as error:
            self.trouble.append(f"at {header.position}: {error}")
        if header.type == BatchType.SNAP and header.position == self.journal_start:
            self.begins = {(t, q): int(o) for (t, q), o in self.state.next_offsets.items()}
        if header.type in (BatchType.SNAP, BatchType.CONFIG):
            self.topics |= {int(key): name for key, (name, _) in self.state.topics.items()}
        self.batches.append(Batch(header, records, keys, opened_by))

    def _records(
        self, header: BatchHeader, payload: Buffer
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        try:
            found = decode(header.attrs, header.record_count, payload)
        except BadColumns as error:
            self.trouble.append(f"at {header.position}: {error}")
            return (), ()
        keys = tuple(key.decode("latin-1") for key in found.keys or ())
        return tuple(map(record_of, found.values)), keys
