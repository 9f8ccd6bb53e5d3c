"""Check that the files of an archive are as they were made.

The ledger has a CRC32C of each whole file. Parquet's own checksums cover its pages alone: where
they lie, of which column they are and how many rows there are has no checksum.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmqcore.batch.crc import crc32c, extend
from fmqcore.errors import Malformed
from fmqspark.archive.ledger import ArchivedFile, Ledger

_BLOCK: Final = 1024 * 1024
REMEDY: Final = (
    "restore it from a backup, or archive what the journal still has into another folder"
)

_REMEDIES: Final = (
    "bring them back from a backup, or archive what the journal still has into another folder"
)


def checksum(path: Path) -> int:
    """Return the CRC32C of a whole file. Raises `OSError`."""
    crc = crc32c(b"")
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            crc = extend(crc, block)
    return crc


def require_whole(folder: Path, file: ArchivedFile) -> None:
    """Raise `Malformed` if a file's bytes are not what was archived, `OSError` if unreadable.

    An earlier version noted no checksum: only that its files are there is known.
    """
    path = folder / file.path
    try:
        size = path.stat().st_size
        if file.crc is None or (size == file.bytes and checksum(path) == file.crc):
            return
    except (FileNotFoundError, NotADirectoryError):
        raise OSError(f"{path} is gone: {REMEDY}") from None
    except OSError as error:
        raise OSError(f"{path} cannot be read ({error.strerror}): {REMEDY}") from error
    how = "other bytes" if size == file.bytes else f"{size:,} bytes instead of {file.bytes:,}"
    raise Malformed(
        f"{path} is not what was archived: {how}, so it and what follows are not sent; {REMEDY}"
    )


@dataclass(frozen=True, slots=True)
class Amiss:
    """Files that a ledger lists, by their paths there: no longer there, or of another size."""

    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def counts(self, ignore_missing: bool) -> bool:
        """Return whether the archive is less than it was, and not on purpose."""
        return bool(self.changed or (self.gone and not ignore_missing))

    def lines(self, ignore_missing: bool) -> list[str]:
        """Return a line for each kind."""
        lines = []
        if self.gone:
            then = f"{_REMEDIES}; if they were moved away on purpose: --ignore-missing"
            lines.append(
                f"{len(self.gone)} archived file(s) are gone, like {self.gone[0]}: "
                f"{'ignored' if ignore_missing else then}"
            )
        if self.changed:
            lines.append(
                f"{len(self.changed)} archived file(s) have another size than they were "
                f"written with, like {self.changed[0]}: {_REMEDIES}"
            )
        return lines


def compare_sizes(folder: Path, ledger: Ledger) -> Amiss:
    """Compare the size of each file; a file that cannot be looked at is passed over."""
    gone, changed = list[str](), list[str]()
    for file in ledger.files():
        try:
            if (folder / file.path).stat().st_size != file.bytes:
                changed.append(file.path)
        except (FileNotFoundError, NotADirectoryError):
            gone.append(file.path)
        except OSError:
            continue
    return Amiss(tuple(gone), tuple(changed))
