"""How far two journals agree, decided from their epoch histories alone. Pure.

Only one master ever writes in an epoch, and it opens the epoch with an EPOCH batch (and the frames
around the batch, if it found no room). So two journals in which epoch e begins at the same position
hold the same bytes from there until the first of the two leaves e, by its end or its next epoch.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from fmqcore.ids import Epoch, Position

EpochStart = tuple[Epoch, Position]
"""An epoch and the position where it begins."""

_BEFORE_ALL: EpochStart = (Epoch(0), Position(0))


class Common(NamedTuple):
    """The newest epoch that both opened at the same position, and where the journals part."""

    epoch: Epoch
    start: Position
    end: Position


def common_end(
    own: Sequence[EpochStart], my_end: Position, theirs: Sequence[EpochStart], their_end: Position
) -> Common | None:
    """Return where two journals part; None if they share no epoch: another lineage.

    A journal without any epoch holds at most its first SNAP, written before the first EPOCH: up to
    there it agrees with any other.
    """
    if not own or not theirs:
        own, theirs = [_BEFORE_ALL, *own], [_BEFORE_ALL, *theirs]
    shared = set(own) & set(theirs)
    if not shared:
        return None
    newest = max(shared)
    end = min(_end_of(newest, own, my_end), _end_of(newest, theirs, their_end))
    return Common(*newest, end)


def _end_of(epoch: EpochStart, history: Sequence[EpochStart], end: Position) -> Position:
    return next((start for number, start in history if number > epoch[0]), end)


def is_history(epochs: Sequence[EpochStart], end: Position) -> bool:
    """Whether epochs and starts rise, and all starts are below the end."""
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(epochs))
    return rising and all(start < end for _, start in epochs)
