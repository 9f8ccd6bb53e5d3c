"""The parts of an open journal, for the files that change its shape (`truncation.py`, ...)."""

from dataclasses import dataclass

from fmqbroker.journal.catalog import Catalog
from fmqbroker.journal.checkpoints import Checkpoints
from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.reader import Reader
from fmqbroker.journal.store import SegmentStore
from fmqbroker.journal.tail_cache import Tail


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that a journal is made of, one of each."""

    store: SegmentStore
    tail: Tail
    flusher: Flusher
    catalog: Catalog
    checkpoints: Checkpoints
    reader: Reader
