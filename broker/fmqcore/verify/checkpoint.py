"""Compare a checkpoint's claims with the journal wherever that is possible. Pure.

A checkpoint lags behind: if the broker is running or was killed, the journal continues behind its
`durable_end`, and its `commit_end` may be past what a power cut left. But a batch ends at each of
the two, and everything below the durable end must be unchanged: the batch that ends there, the
segments and the terms. A truncation changes that and first says so (`drop_from`); what it makes
void is not judged.
"""

from collections.abc import Sequence

from fmqcore.batch.header import BatchHeader
from fmqcore.ids import Epoch, Position
from fmqcore.journal.checkpoint import Checkpoint
from fmqcore.journal.findings import Code, Finding, error
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import CHECKPOINT
from fmqcore.journal.state import MAX_EPOCHS, JournalState


class Claims:
    """Its claims about one segment: `see` the batches around `places`, then take `findings`."""

    def __init__(self, checkpoint: Checkpoint | None, file: SegmentFile) -> None:
        self._checkpoint = checkpoint
        self._around: dict[Position, BatchHeader] = {}
        ends = {checkpoint.commit_end} if checkpoint else set()
        self._cutting = checkpoint is not None and checkpoint.drop_from is not None
        if checkpoint is not None and not self._cutting:
            ends.add(checkpoint.durable_end)
        self.places = tuple(place for place in sorted(ends) if file.base < place <= file.end)

    def see(self, header: BatchHeader) -> None:
        """Look at a batch of that segment."""
        for place in self.places:
            if header.position < place <= header.end:
                self._around[place] = header

    def findings(self, state: JournalState | None) -> list[Finding]:
        """Return findings. `state`: the journal's state where reading ended; None if unknown."""
        checkpoint = self._checkpoint
        if checkpoint is None:
            return []
        found = [
            _claim(place, f"no batch ends at {place}, which it names: one is at {batch.position}")
            for place, batch in self._around.items()
            if batch.end != place
        ]
        durable_end = checkpoint.durable_end
        batch = self._around.get(durable_end)
        if batch is None or self._cutting or batch.end != durable_end:
            return found
        if batch.header_crc != checkpoint.last_header_crc:
            sentence = (
                f"the batch before {durable_end} has CRC {batch.header_crc:#010x}, "
                f"the checkpoint says {checkpoint.last_header_crc:#010x}"
            )
            found.append(_claim(durable_end, sentence))
        return found if state is None else found + _epochs(checkpoint, state)


def check_bases(checkpoint: Checkpoint | None, files: Sequence[SegmentFile]) -> list[Finding]:
    """Check that it lists all segments below its durable end. (`survey` checks that they exist.)"""
    if checkpoint is None or checkpoint.drop_from is not None:
        return []
    unknown = [
        file
        for file in files
        if file.base < checkpoint.durable_end and file.base not in checkpoint.bases
    ]
    return [_claim(file.base, f"it does not know of {file.name}") for file in unknown]


def check_stop(checkpoint: Checkpoint | None, end: Position) -> list[Finding]:
    """Check that after an orderly stop the journal ends where the checkpoint says."""
    if checkpoint is None or not checkpoint.clean or end <= checkpoint.durable_end:
        return []
    stop = checkpoint.durable_end
    sentence = f"the broker stopped in order at {stop}, and the journal goes on to {end}"
    return [_claim(stop, sentence)]


def _epochs(checkpoint: Checkpoint, state: JournalState) -> list[Finding]:
    """Check that the journal has the listed terms, except those dropped from a full table."""
    known = state.epochs
    oldest = known[0][0] if len(known) == MAX_EPOCHS else Epoch(0)
    wrong = [
        (e, start) for e, start in checkpoint.epochs if e >= oldest and (e, start) not in known
    ]
    return [
        _claim(start, f"it says that epoch {epoch} begins at {start}: the journal does not")
        for epoch, start in wrong[:1]
    ]


def _claim(place: Position, sentence: str) -> Finding:
    return error(Code.M001, CHECKPOINT, place, sentence)
