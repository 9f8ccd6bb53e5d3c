"""Store times never fall within a journal: readers by time skip what cannot hold that time. Pure.

Each batch is compared with the one before it, so a wrong one is reported once. Behind damage the
comparison starts again, as with chain and offsets. A broker's start does not check store times.
"""

from fmqcore.batch.header import BatchHeader
from fmqcore.journal.findings import Code, Finding, error


def falls(before_ms: int, header: BatchHeader, file: str) -> list[Finding]:
    """Return a finding if the batch was stored before its predecessor, according to its header."""
    if header.store_ms >= before_ms:
        return []
    sentence = f"store time {header.store_ms} after {before_ms} in the batch before it"
    return [error(Code.J003, file, header.position, sentence)]
