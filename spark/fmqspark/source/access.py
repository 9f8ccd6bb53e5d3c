"""Read a replica's bytes, from a directory's files or a live broker, in one way.

A source is a path, or `fmq://host:port`. Leaves nothing on disk.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fmqcore.errors import FmqError
from fmqcore.ids import Position
from fmqcore.journal.segments import index_name, segment_name
from fmqspark.source.brokers import Wish, broker_index, is_broker, open_broker_segment
from fmqspark.source.files import Throttle, open_segment, read_small

T = TypeVar("T")


class Bytes(Protocol):
    """One opened segment."""

    bytes_read: int

    def read(self, length: int, at: int) -> bytes:
        """Return `length` bytes from `at` on, fewer at the end. Raises `OSError`, `FmqError`."""
        ...


@contextmanager
def open_bytes(
    source: str, base: Position, throttle: Throttle, until: Position, ahead: Position | None = None
) -> Iterator[Bytes]:
    """Open a segment; no bytes at or behind `until` are asked for.

    Bytes behind `ahead` will hardly be asked for. Raises `OSError`, `FmqError`, also while they are
    read.
    """
    if is_broker(source):
        wish = Wish(base, until, until if ahead is None else ahead)
        with open_broker_segment(source, wish, throttle) as remote:
            yield remote
    else:
        with open_segment(source, segment_name(base), throttle, sparse=True) as data:
            yield data


def index_bytes(source: str, base: Position) -> bytes | None:
    """Return a segment's index file; None if there is none. Raises `OSError`, `BrokerGone`."""
    if is_broker(source):
        return broker_index(source, base)
    return read_small(source, index_name(base))


def first_of(sources: Sequence[str], read: Callable[[str], T]) -> T:
    """Return what the first source that can gives; raise the first one's error if none can."""
    failures: list[FmqError | OSError] = []
    for source in sources:
        try:
            return read(source)
        except (FmqError, OSError) as error:
            failures.append(error)
    raise failures[0]
