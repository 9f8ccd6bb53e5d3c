"""Compare places on disk: which are the same under any name, and which lie in which.

A directory or file is known by its number on its disk: a link or another mount is the same one.
Leaves nothing on disk.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from fmqcore.errors import InvalidArgument
from fmqcore.journal.segments import segment_base


def each_once(paths: Sequence[Path]) -> None:
    """Require each directory once, and no segment file in two: each replica has its own bytes.

    Raises `InvalidArgument`.
    """
    if len({_identity(path) for path in paths}) != len(paths):
        raise InvalidArgument("the same directory is named twice: name each replica once")
    holders: dict[tuple[int, int], Path] = {}
    for path in paths if len(paths) > 1 else ():
        for name, number in _segments(path):
            if (other := holders.setdefault(number, path)) is not path:
                raise InvalidArgument(
                    f"{path / name} is the same file as one in {other} (a link): these are no two "
                    "replicas; name each replica once"
                )


def no_data_directory(folder: Path, paths: Sequence[Path]) -> None:
    """Require that `folder` is not in, around or one of `paths`. Raises `InvalidArgument`.

    A job does not write to what it reads.
    """
    for path in paths:
        if _identity(folder) == _identity(path):
            raise InvalidArgument(f"--out {folder} is a data directory: name another folder")
        if _identity(path) in _above(folder):
            raise InvalidArgument(
                f"--out {folder} lies within the data directory {path}: name a folder elsewhere"
            )
        if _identity(folder) in _above(path):
            raise InvalidArgument(
                f"--out {folder}: the data directory {path} lies within it: name a folder beside it"
            )


def _identity(path: Path) -> tuple[int, int] | str:
    """Return what identifies a place; its real name, if there is nothing yet."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError:
        return real
    return (found.st_dev, found.st_ino) if found.st_ino else real  # some disks number nothing


def _above(path: Path) -> set[tuple[int, int] | str]:
    """Return the folders in which a path lies."""
    return {_identity(each) for each in Path(os.path.realpath(path)).parents}


def _segments(path: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield names and numbers of segment files; the reader reports what cannot be looked at."""
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if segment_base(entry.name) is None:
                continue
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_ino:
                    yield entry.name, (found.st_dev, found.st_ino)
