"""Store times fall only at a correction: readers by time skip what cannot hold that time. Pure.

A correction is a SNAP that names the newest store time before it (ADR 0070).

Each batch is compared with the one before it, so a wrong one is reported once. Behind damage the
comparison starts again, as with chain and offsets. A broker's start does not check store times.
"""

from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.journal.findings import Code, Finding, error


def falls(before_ms: int, header: BatchHeader, file: str) -> list[Finding]:
    """Return a finding if the batch was stored before its predecessor, according to its header."""
    corrected = header.type == BatchType.SNAP and header.corrected_from_ms >= before_ms
    if header.store_ms >= before_ms or corrected:
        return []
    sentence = f"store time {header.store_ms} after {before_ms} in the batch before it"
    return [error(Code.J003, file, header.position, sentence)]
