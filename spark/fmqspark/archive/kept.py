"""Are the files of an archive as they were made?

The ledger has a CRC32C of each whole file. The checksums that Parquet has in itself are of its
pages alone: where they lie, of which column they are and how many rows there are has none.
"""

from pathlib import Path
from typing import Final

from fmqcore.crc import crc32c, extend
from fmqcore.errors import Malformed
from fmqspark.archive.ledger import ArchivedFile

_BLOCK: Final = 1024 * 1024
REMEDY: Final = (
    "bring it back from a backup, or archive what the journal still has into another folder"
)


def checksum(path: Path) -> int:
    """Of all that is in it. Raises `OSError`."""
    crc = crc32c(b"")
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            crc = extend(crc, block)
    return crc


def require_whole(folder: Path, file: ArchivedFile) -> None:
    """Raises `Malformed` for other bytes than were archived, `OSError` for none that can be read.

    An earlier version noted no checksum: of its files only that they are there is known.
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
        f"{path} is not what was archived: {how}, so nothing of it and behind it is sent; {REMEDY}"
    )
