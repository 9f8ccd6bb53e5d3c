"""Store times never fall within a journal: who reads by time leaves out what cannot hold it. Pure.

Each batch is held against the one before it, so one that is wrong is told once. Behind damage, as
with chain and offsets, it begins anew. A broker's start does not look at it.
"""

from fmqcore.batch.header import BatchHeader
from fmqcore.journal.findings import Code, Finding, error


def falls(before_ms: int, header: BatchHeader, file: str) -> list[Finding]:
    """The finding, if the batch says that it was stored before the one before it."""
    if header.store_ms >= before_ms:
        return []
    sentence = f"store time {header.store_ms} after {before_ms} in the batch before it"
    return [error(Code.J003, file, header.position, sentence)]
