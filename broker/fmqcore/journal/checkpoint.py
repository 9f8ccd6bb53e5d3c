"""The checkpoint: what a broker knew for sure when it last wrote the file. Pure.

On disk: the small file `checkpoint`, replaced atomically. It holds no journal data; a journal opens
without it, too, but then nothing in the last segment counts as known durable.

Its truth depends on the order of writes. `durable_end` is written after the fsync that it reports.
Retention: first the checkpoint with the new `journal_start`, then the files are removed.
Truncation, and dropping everything for a reset: first a checkpoint with `drop_from`, then the files
are removed and zeroed, then a checkpoint without it. Start: an unclean one is written before the
first append.
"""

from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer, crc32c
from fmqcore.batch.fields import Fields
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position

_MAGIC: Final = 0x43514D46  # "FMQC"
_VERSION: Final = 1
_HEAD: Final = Struct("<IHHI")
_FIXED: Final = Struct("<QQQQIIII")
_BASE: Final = Struct("<Q")
_EPOCH: Final = Struct("<IQ")
_NO_DROP: Final = 2**64 - 1
_CLEAN: Final = 1
_LACKS: Final = 2
_TAIL_LOST: Final = 4
_UNPROVEN: Final = 8
_MARK_SHIFT: Final = 8


class Checkpoint(NamedTuple):
    """`journal_start` ≤ `durable_end`; `commit_end` is the newest known, on either side."""

    journal_start: Position
    durable_end: Position  # everything below was fsynced
    commit_end: Position
    last_header_crc: int  # of the batch that ends at `durable_end`; 0 if the journal begins there
    clean: bool  # the broker stopped in order: `durable_end` is the journal's end
    bases: tuple[Position, ...]  # of the segments that there are, ascending
    epochs: tuple[tuple[Epoch, Position], ...] = ()
    drop_from: Position | None = None  # being cut: what lies at or above this is void
    lacks: bool = False  # its start was after an unclean stop, and nothing made it whole since
    acked_under: int = 0  # `mark_of` the policy of the terms opened since it was whole; 0: unknown
    tail_lost: bool = False  # and what lay behind its end then could not be read
    unproven: bool = False  # the directory started without a checkpoint and is not whole yet


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the file's bytes."""
    drop_from = _NO_DROP if checkpoint.drop_from is None else checkpoint.drop_from
    body = b"".join(
        (
            _FIXED.pack(
                checkpoint.journal_start,
                checkpoint.durable_end,
                checkpoint.commit_end,
                drop_from,
                checkpoint.last_header_crc,
                _flags(checkpoint),
                len(checkpoint.bases),
                len(checkpoint.epochs),
            ),
            *(_BASE.pack(base) for base in checkpoint.bases),
            *(_EPOCH.pack(epoch, start) for epoch, start in checkpoint.epochs),
        )
    )
    return _HEAD.pack(_MAGIC, _VERSION, 0, crc32c(body)) + body


def decode_checkpoint(data: Buffer) -> Checkpoint:
    """Decode the file; raise `Malformed`."""
    fields = Fields(data, "checkpoint")
    magic, version, zero, crc = fields.take(_HEAD)
    if (magic, version, zero) != (_MAGIC, _VERSION, 0):
        raise fields.malformed(f"magic {magic:#x} version {version} is not ours")
    if crc != crc32c(bytes(data)[_HEAD.size :]):
        raise fields.malformed("its CRC does not match")
    journal_start, durable, commit, drop, last_crc, flags, bases, epochs = fields.take(_FIXED)
    checkpoint = Checkpoint(
        journal_start=Position(journal_start),
        durable_end=Position(durable),
        commit_end=Position(commit),
        last_header_crc=last_crc,
        clean=bool(flags & _CLEAN),
        bases=tuple(Position(base) for (base,) in fields.many(_BASE, bases)),
        epochs=tuple(
            (Epoch(epoch), Position(start)) for epoch, start in fields.many(_EPOCH, epochs)
        ),
        drop_from=None if drop == _NO_DROP else Position(drop),
        lacks=bool(flags & _LACKS),
        acked_under=flags >> _MARK_SHIFT,
        tail_lost=bool(flags & _TAIL_LOST),
        unproven=bool(flags & _UNPROVEN),
    )
    fields.done()
    if list(checkpoint.bases) != sorted(set(checkpoint.bases)):
        raise Malformed("checkpoint does not decode: its segments do not rise")
    return checkpoint


def _flags(checkpoint: Checkpoint) -> int:
    flags = _CLEAN if checkpoint.clean else 0
    flags |= _LACKS if checkpoint.lacks else 0
    flags |= checkpoint.acked_under << _MARK_SHIFT
    flags |= _UNPROVEN if checkpoint.unproven else 0
    return flags | (_TAIL_LOST if checkpoint.tail_lost else 0)
