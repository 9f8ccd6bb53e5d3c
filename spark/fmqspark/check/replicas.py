"""Compare replicas: read again, on any engine, the blocks that `compare.py` asks for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchType, parse_header
from fmqcore.ids import Position
from fmqcore.journal.segments import Segment, segment_name, segment_of_snap
from fmqcore.scan.digests import Batch, batches
from fmqcore.scan.headers import ScanRange, scan_headers
from fmqspark.check import compare
from fmqspark.check.rows import Covered, State
from fmqspark.check.tolerant_reader import PatchyBytes, open_patchy
from fmqspark.engines.engine import Engine
from fmqspark.source.files import DataDirectory, Throttle


@dataclass(frozen=True, slots=True)
class DrillTask:
    """A block to read batch by batch."""

    path: str
    drill: compare.Drill
    bytes_per_s: float


def read_block(task: DrillTask) -> tuple[compare.Drill, list[Batch] | str]:
    """Return the batches of a block; or why it cannot be read any more."""
    drill = task.drill
    base = Position(drill.base)
    try:
        with open_patchy(task.path, segment_name(base), Throttle(task.bytes_per_s)) as data:
            segment = _segment(base, data)
            found: list[Batch] = []
            at, before = drill.first, -1
            while before < at < drill.end:  # a chain that breaks is that replica's own finding
                wanted = ScanRange(segment, Position(at), Position(drill.end))
                block, scan = scan_headers(data.read, wanted)
                found += batches(block)
                before, at = at, scan.position
            return drill, found if at >= drill.end or not data.why else data.why
    except OSError as failed:
        return drill, failed.strerror or str(failed)


def _segment(base: Position, data: PatchyBytes) -> Segment:
    """Return a segment as long as its SNAP says, or as its file if the SNAP is damaged.

    A file may be longer, or truncated.
    """
    with suppress(BadBatch):
        snap = parse_header(data.read(HEADER_LEN, 0))
        snap_segment = segment_of_snap(snap) if snap.type == BatchType.SNAP else None
        if snap_segment is not None and snap_segment.base == base:
            return snap_segment
    return Segment(base, Position(base + len(data)))


def compare_all(
    views: Mapping[str, DataDirectory],
    replicas: Sequence[compare.Replica],
    rate: float,
    engine: Engine,
) -> compare.Comparison:
    """Read again what differs, and return the comparison."""
    judge = compare.Judge(replicas)
    lost: list[Covered] = []
    for keys, drills in compare.rounds(replicas, compare.suspects(replicas)):
        tasks = [DrillTask(views[d.replica].path, d, rate) for d in drills]
        drilled: dict[tuple[str, compare.Key], list[Batch]] = {}
        for drill, found in engine.run(read_block, tasks):
            batches_there = drilled.setdefault((drill.replica, drill.key), [])
            if isinstance(found, str):
                lost.append(_lost_sight(views[drill.replica], drill, found))
                replica = next(each for each in replicas if each.name == drill.replica)
                replica.holes.append((drill.first, drill.end))
            else:
                batches_there += found
        judge.take(keys, drilled)
    findings, coverage = judge.made()
    return compare.Comparison(findings, lost + coverage)


def _lost_sight(view: DataDirectory, drill: compare.Drill, why: str) -> Covered:
    """Return the coverage of a block that could not be read again to be compared."""
    name = segment_name(Position(drill.base))
    retired = view.live and not Path(view.path, name).exists()
    state = State.RETIRED if retired else State.UNREAD
    return Covered(drill.replica, name, drill.first, drill.end, state.value, f"to compare: {why}")
