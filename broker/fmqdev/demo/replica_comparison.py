"""Compare the journals of two brokers byte by byte, offline, after an orderly stop of both.

Reads segment files as bytes, and checkpoints for where they start and end; knows nothing of
batches, so that it shares no mistake with the code that reads them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmqcore.errors import Malformed
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_base
from fmqdev.demo.verdict import Finding

_CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Compared:
    """Two journals of one group. `finding` is None if they are equal, end to end."""

    group: str
    bytes: int  # compared and equal
    finding: Finding | None


def compare_journals(group: str, master: Path, slave: Path) -> Compared:
    """Compare two data directories, starting at the later of their starts."""
    try:
        ours, theirs = _Journal(master), _Journal(slave)
    except (OSError, Malformed) as error:
        return _differs(group, 0, f"{group}: cannot be read: {error}")
    for journal in (ours, theirs):
        if not journal.checkpoint.clean:
            return _differs(group, 0, f"{group}: {journal.path} was not stopped in order")
    begin = max(ours.checkpoint.journal_start, theirs.checkpoint.journal_start)
    end = min(ours.end, theirs.end)
    different = _first_difference(ours, theirs, begin, end)
    if different is not None:
        return _differs(
            group,
            different - begin,
            f"{group}: {master} and {slave} differ at position {different}",
        )
    if ours.end != theirs.end:
        return _differs(
            group,
            end - begin,
            f"{group}: {master} ends at {ours.end}, {slave} at {theirs.end}",
        )
    return Compared(group, end - begin, None)


def _differs(group: str, equal: int, text: str) -> Compared:
    return Compared(group, max(0, equal), Finding("REPLICAS", 1, text))


class _Journal:
    """One data directory's bytes by position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint: Checkpoint = decode_checkpoint((path / CHECKPOINT).read_bytes())
        bases = ((segment_base(file.name), file) for file in path.iterdir())
        self._segments = sorted((base, file) for base, file in bases if base is not None)

    @property
    def end(self) -> int:
        return self.checkpoint.durable_end

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer at a segment's end, none where there is no file."""
        for base, file in reversed(self._segments):
            if base <= position:
                with file.open("rb") as opened:
                    opened.seek(position - base)
                    return opened.read(length)
        return b""


def _first_difference(one: _Journal, two: _Journal, begin: int, end: int) -> int | None:
    position = begin
    while position < end:
        length = min(_CHUNK, end - position)
        here, there = one.read(position, length), two.read(position, length)
        length = min(len(here), len(there))
        if length == 0:
            return position
        if here[:length] != there[:length]:
            return position + next(n for n in range(length) if here[n] != there[n])
        position += length
    return None
